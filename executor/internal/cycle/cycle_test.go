package cycle

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// sequence returns numbers that are a beginning and then go round, None where a cycle has not the number 1.
func sequence(begins, round []int32, where *Cycle, length int) (all []int32) {
	c := Cycle{begins, round}
	for k := range length {
		n := c.Entry(k)
		if where.Entry(k) != 1 {
			n = None
		}
		all = append(all, n)
	}
	return all
}

func random(r *rand.Rand, length, numbers int) (all []int32) {
	for range length {
		all = append(all, int32(r.IntN(numbers)))
	}
	return all
}

// When a part of a sequence shows each number some times, the cycle folded from it has all numbers of the whole sequence.
func TestFoldedSequencesGoOn(t *testing.T) {
	t.Parallel()
	always := Always(1)
	dense, sparse := 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		begins, round := random(r, r.IntN(10), 4), random(r, 1+r.IntN(12), 4)
		where := Cycle{random(r, r.IntN(6), 2), random(r, 1+r.IntN(5), 2)}
		const seen, whole = 400, 2000
		all := sequence(begins, round, &always, whole)
		c, ok := Fold(all[:seen])
		if !ok || len(c.Round) > len(round) || !slices.Equal(sequence(c.Begins, c.Round, &always, whole), all) {
			t.Fatalf("case %d: %v of %v, %v: %v", seed, c, begins, round, ok)
		}
		dense++
		part := sequence(begins, round, &where, whole)
		c, ok = FoldWhere(part[:seen], &where, 1)
		if !ok {
			t.Fatalf("case %d: %v, %v where %v is 1: not folded", seed, begins, round, where)
		}
		for k, n := range part {
			if n != None && c.Entry(k) != n {
				t.Fatalf("case %d: %v of %v, %v where %v is 1: %d at %d, want %d", seed, c, begins, round, where, c.Entry(k), k, n)
			}
		}
		if slices.Contains(where.Round, 0) && slices.Contains(where.Round, 1) {
			sparse++
		}
	}
	if dense < 2000 || sparse < 1000 {
		t.Errorf("%d sequences, %d with places that have no number", dense, sparse)
	}
}

// A round that is seen too seldom is none: nothing says that it goes on.
func TestRoundsThatAreSeenTooSeldom(t *testing.T) {
	t.Parallel()
	where := Cycle{Round: []int32{0, 0, 0, 0, 1}}
	var all []int32
	for k := range 5 * 7 * TimesSeen {
		if all = append(all, None); where.Entry(k) == 1 {
			all[k] = int32(k % 7)
		}
	}
	for length := range all {
		if c, ok := FoldWhere(all[:length], &where, 1); ok && length < 5*7*TimesSeen-4 {
			t.Errorf("%d numbers, of a round of 35 that has 7: %v", length, c)
		}
	}
	if c, ok := FoldWhere(all, &where, 1); !ok || len(c.Round) != 7 {
		t.Errorf("%v, %v: want a round of 7", c, ok)
	}
	for length := range 5 * TimesSeen {
		if c, ok := Fold(slices.Repeat([]int32{1, 2, 3, 4, 5}, TimesSeen)[:length]); ok {
			t.Errorf("%d numbers of a round of 5: %v", length, c)
		}
	}
}

// A joined cycle has a number for each way in which others come together, and none where one of them has none.
func TestJoin(t *testing.T) {
	t.Parallel()
	a, b, c := Cycle{[]int32{5}, []int32{0, 1, 2}}, Cycle{[]int32{7, 7, 8}, []int32{0, 1, None, 3}}, Always(4)
	joined, tuples := Join([]*Cycle{&a, &b, &c})
	if len(joined.Begins) != 3 || len(joined.Round) != 12 || len(tuples) != 3+9 {
		t.Errorf("%v, %v", joined, tuples)
	}
	for k := range 100 {
		want := []int32{a.Entry(k), b.Entry(k), c.Entry(k)}
		n := joined.Entry(k)
		if n == None != slices.Contains(want, None) || n != None && !slices.Equal(tuples[n], want) {
			t.Errorf("at %d: %d, want %v", k, n, want)
		}
	}
}
