package data

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ledger is a data set of n training samples whose images hold split and index.
type ledger struct {
	Dataset
	train, test int64
}

func (l ledger) Name() string    { return "ledger" }
func (l ledger) Shape() [3]int   { return [3]int{1, 2, 1} }
func (l ledger) TrainLen() int64 { return l.train }
func (l ledger) TestLen() int64  { return l.test }

func (l ledger) Fill(split Split, index int64, dst []float32) (int, error) {
	dst[0], dst[1] = float32(split), float32(index)
	return int(index), nil
}

// batch returns the sample indices of a batch, checking that images and labels belong together.
func batch(t testing.TB, b *Batcher[float32], step int64) (indices []int64, fresh int) {
	t.Helper()
	images, labels := make([]float32, 2*b.batch), make([]int32, b.batch)
	fresh, err := b.Fill(step, images, labels)
	if err != nil {
		t.Fatal(err)
	}
	for i, label := range labels {
		if Split(images[2*i]) != b.split || images[2*i+1] != float32(label) {
			t.Fatalf("step %d: image %d is %v, its label %d", step, i, images[2*i:2*i+2], label)
		}
		indices = append(indices, int64(label))
	}
	return indices, fresh
}

func fillBatch(t testing.TB, b *Batcher[float32], step int64, images []float32, labels []int32) {
	t.Helper()
	if _, err := b.Fill(step, images, labels); err != nil {
		t.Fatal(err)
	}
}

// fill returns the label of a sample that has no error.
func fill(t testing.TB, set Dataset, split Split, index int64, dst []float32) int {
	t.Helper()
	label, err := set.Fill(split, index, dst)
	if err != nil {
		t.Error(err) // from any goroutine
	}
	return label
}

func newBatcher(t testing.TB, set Dataset, split Split, n int, seed uint64) *Batcher[float32] {
	t.Helper()
	b, err := NewBatcher(set, split, n, seed)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each epoch holds every training sample once, in an order of its own, across batches that straddle its end.
func TestEpochIsAPermutation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Int64Range(1, 300).Draw(rt, "samples")
		size := rapid.IntRange(1, 40).Draw(rt, "batch")
		b := newBatcher(t, ledger{train: n, test: 1}, Train, size, rapid.Uint64().Draw(rt, "seed"))
		var order []int64
		for step := int64(0); int64(len(order)) < 3*n; step++ {
			indices, fresh := batch(t, b, step)
			if fresh != size {
				rt.Fatalf("%d of %d training samples count", fresh, size)
			}
			order = append(order, indices...)
		}
		for epoch := range int64(3) {
			part := slices.Clone(order[epoch*n : (epoch+1)*n])
			slices.Sort(part)
			for i, index := range part {
				if index != epoch*n+int64(i) {
					rt.Fatalf("epoch %d: place %d of the sorted order holds %d", epoch, i, index)
				}
			}
		}
	})
}

// The order depends on the seed and the epoch, and is no shift or reversal of the stored one.
func TestOrderIsShuffled(t *testing.T) {
	t.Parallel()
	const n = 1437
	orders := map[string]bool{}
	for seed := range uint64(4) {
		b := newBatcher(t, ledger{train: n, test: 1}, Train, n, seed)
		for epoch := range int64(3) {
			indices, _ := batch(t, b, epoch)
			neighbors := 0
			for i := 1; i < n; i++ {
				if d := indices[i] - indices[i-1]; d == 1 || d == -1 {
					neighbors++
				}
			}
			if neighbors > 12 { // 2 are expected
				t.Errorf("seed %d, epoch %d: %d neighbors stay neighbors", seed, epoch, neighbors)
			}
			for i := range indices {
				indices[i] -= epoch * n
			}
			orders[fmt.Sprint(indices)] = true
		}
	}
	if len(orders) != 12 {
		t.Errorf("%d different orders of 12", len(orders))
	}
}

// A batch is a function of seed and step: a new batcher continues where another one was stopped.
func TestResume(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, set Dataset) {
		const size, steps = 24, 150 // more than two epochs of digits
		pixels := size * len(canvas(set))
		uninterrupted := newBatcher(t, set, Train, size, 5)
		images, again := make([]float32, pixels), make([]float32, pixels)
		labels, labelsAgain := make([]int32, size*Labels(set)), make([]int32, size*Labels(set))
		for step := range int64(steps) {
			fillBatch(t, uninterrupted, step, images, labels)
			if step%29 != 0 {
				continue
			}
			resumed := newBatcher(t, small(t, set.Name()), Train, size, 5)
			fillBatch(t, resumed, step, again, labelsAgain)
			if !slices.Equal(images, again) || !slices.Equal(labels, labelsAgain) {
				t.Errorf("batch %d differs after a restart", step)
			}
		}
	})
}

// A pass over the test split sees every sample once, in order; the last batch is filled up and says so.
func TestTestPass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Int64Range(1, 200).Draw(rt, "samples")
		size := rapid.IntRange(1, 64).Draw(rt, "batch")
		b := newBatcher(t, ledger{test: n}, Test, size, rapid.Uint64().Draw(rt, "seed"))
		next := int64(0)
		for step := range b.Steps() {
			indices, fresh := batch(t, b, step)
			if fresh < 1 || fresh < size && step != b.Steps()-1 {
				rt.Fatalf("batch %d of %d counts %d samples", step, b.Steps(), fresh)
			}
			for _, index := range indices[:fresh] {
				if index != next {
					rt.Fatalf("batch %d has sample %d, want %d", step, index, next)
				}
				next++
			}
		}
		if _, fresh := batch(t, b, b.Steps()); next != n || fresh != 0 {
			rt.Fatalf("a pass counts %d of %d samples, the batch after it %d", next, n, fresh)
		}
	})
}

// Endless sets are taken in order and have no number of steps.
func TestEndless(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, ledger{train: 0, test: 1}, Train, 10, 3)
	indices, fresh := batch(t, b, 7)
	if b.Steps() != 0 || fresh != 10 || indices[0] != 70 || indices[9] != 79 {
		t.Errorf("%d steps; batch 7 counts %d and is %v", b.Steps(), fresh, indices)
	}
}

func TestBatcherErrors(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, -1} {
		if b, err := NewBatcher(ledger{}, Train, n, 1); b != nil || !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("batch %d: %v, %v", n, b, err)
		}
	}
	b := newBatcher(t, ledger{train: 4, test: 1}, Train, 2, 1)
	for name, misuse := range map[string]func(){
		"images": func() { _, _ = b.Fill(0, make([]float32, 3), make([]int32, 2)) },
		"labels": func() { _, _ = b.Fill(0, make([]float32, 4), make([]int32, 3)) },
		"step":   func() { _, _ = b.Fill(-1, make([]float32, 4), make([]int32, 2)) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "BUG: ") {
					t.Errorf("%s: %s", name, text)
				}
			}()
			misuse()
		}()
	}
}

func TestPermutation(t *testing.T) {
	t.Parallel()
	checked := 0
	for n := uint64(1); n <= 130; n++ {
		for key := range uint64(8) {
			seen := make([]bool, n)
			p := newPermutation(n, hash(key, orderKey, n))
			for i := range n {
				j := p.at(i)
				if j >= n || seen[j] {
					t.Fatalf("n %d, key %d: %d goes to %d, as another does or outside", n, key, i, j)
				}
				seen[j] = true
			}
			checked++
		}
	}
	if checked != 130*8 {
		t.Errorf("%d permutations were checked", checked)
	}
}

// Every element goes to every place about equally often (chi-squared with 11*11 degrees of freedom, within five
// standard deviations).
func TestPermutationIsEven(t *testing.T) {
	t.Parallel()
	const n, keys = 12, 6000
	var counts [n][n]float64
	for key := range uint64(keys) {
		p := newPermutation(n, hash(1, orderKey, key))
		for i := range uint64(n) {
			counts[i][p.at(i)]++
		}
	}
	chi := 0.0
	for i := range n {
		for j := range n {
			d := counts[i][j] - keys/n
			chi += d * d / (keys / n)
		}
	}
	if chi < 121-5*15.6 || chi > 121+5*15.6 {
		t.Errorf("chi-squared is %.1f, want about 121", chi)
	}
}
