// Package cycle finds what repeats itself in sequences of numbers, and joins sequences that go round by themselves.
package cycle

import (
	"slices"
)

// None stands for no number: at its place nobody asks for one.
const None = -1

// TimesSeen is how often a round must be seen to follow itself.
const TimesSeen = 3

// Cycle is a sequence of numbers that goes round and round behind its beginning.
type Cycle struct{ Begins, Round []int32 }

// Always returns the sequence of one number.
func Always(number int32) Cycle { return Cycle{Round: []int32{number}} }

// Entry returns a number of the sequence; before its beginning the round is taken to have gone on for ever.
func (c *Cycle) Entry(k int) int32 {
	if k >= 0 && k < len(c.Begins) {
		return c.Begins[k]
	}
	n := len(c.Round)
	return c.Round[((k-len(c.Begins))%n+n)%n]
}

// Fold finds the shortest round of a sequence that is seen often enough; false: there is none.
func Fold(all []int32) (c Cycle, ok bool) {
	for n := 1; TimesSeen*n <= len(all); n++ {
		begin := len(all) - n
		for begin > 0 && all[begin-1] == all[begin-1+n] {
			begin--
		}
		if begin <= len(all)/2 && begin+TimesSeen*n <= len(all) {
			return Cycle{slices.Clone(all[:begin]), slices.Clone(all[begin : begin+n])}, true
		}
	}
	return c, false
}

// FoldWhere is Fold for a sequence that has numbers only where a cycle has one number, and None elsewhere. Numbers that are whole rounds
// apart are one number, and each number of the round that anybody may ask for was seen TimesSeen times.
func FoldWhere(series []int32, where *Cycle, number int32) (c Cycle, ok bool) {
	most := len(series) / TimesSeen
	rounds, times := make([]int32, most), make([]int, most)
	for n := 1; n <= most; n++ {
		round, seen := rounds[:n], times[:n]
		begin := lastRounds(series, round, seen)
		if begin > len(series)/2 || begin+TimesSeen*n > len(series) || !where.covers(number, seen) {
			continue
		}
		return Cycle{slices.Clone(series[:begin]), slices.Concat(round[begin%n:], round[:begin%n])}, true
	}
	return c, false
}

// lastRounds finds the numbers of the last rounds of a sequence, by place mod len(round), and how often each is seen, and returns where
// these rounds begin.
func lastRounds(series, round []int32, seen []int) (begin int) {
	clear(seen)
	for i := range round {
		round[i] = None
	}
	for k := len(series) - 1; k >= 0; k-- {
		at := k % len(round)
		if series[k] == None {
			continue
		}
		if seen[at] > 0 && round[at] != series[k] {
			return k + 1
		}
		round[at] = series[k]
		seen[at]++
	}
	return 0
}

// covers reports whether all places of a number, mod len(seen), were seen often enough.
func (c *Cycle) covers(number int32, seen []int) bool {
	n := gcd(len(seen), len(c.Round))
	for k, x := range c.Round {
		for at := (k + len(c.Begins)) % n; x == number && at < len(seen); at += n {
			if seen[at] < TimesSeen {
				return false
			}
		}
	}
	return true
}

// Join returns the cycle of some cycles together, and by its numbers what these have: a number for each. A place where one has None has None.
func Join(cycles []*Cycle) (joined Cycle, tuples [][]int32) {
	begins, length := 0, 1
	for _, c := range cycles {
		begins, length = max(begins, len(c.Begins)), Together(length, len(c.Round))
	}
	numbers, known := make([]int32, begins+length), map[string]int32{}
	for k := range numbers {
		tuple := make([]int32, len(cycles))
		for i, c := range cycles {
			tuple[i] = c.Entry(k)
		}
		if numbers[k] = None; slices.Contains(tuple, None) {
			continue
		}
		text := Text(tuple)
		n, have := known[text]
		if !have {
			n = int32(len(tuples))
			known[text], tuples = n, append(tuples, tuple)
		}
		numbers[k] = n
	}
	return Cycle{numbers[:begins:begins], numbers[begins:]}, tuples
}

// Together returns after how many periods two cycles of so many come back together.
func Together(a, b int) int { return a / gcd(a, b) * b }

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Text returns a text that tells lists of numbers apart.
func Text(numbers []int32) string {
	text := make([]byte, 0, 4*len(numbers))
	for _, n := range numbers {
		text = append(text, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return string(text)
}
