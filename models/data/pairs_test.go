package data

import (
	"slices"
	"testing"
)

// The first of a pair is the sample itself, the second another sample of the split. The label says whether the labels of both are equal, as
// they are for half of the pairs. The same index gives the same pair.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"digits", "glyphs"} { // with an end, and without one
		of, err := Open(name, Options{Seed: 3, Image: 16, Channels: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := Pairs(of, 3)
		if p.Classes() != 2 || p.Shape() != [3]int{32, 16, 1} || p.TrainLen() != of.TrainLen() || Skipped(p) != 0 {
			t.Fatalf("%d classes, shape %v, %d samples", p.Classes(), p.Shape(), p.TrainLen())
		}
		for _, split := range []Split{Train, Test} {
			same, pixels := 0, make([]float32, 256)
			const n = 100
			for i := range int64(n) {
				pair, again := make([]float32, 512), make([]float32, 512)
				label, err := p.Fill(split, i, pair)
				if err != nil {
					t.Fatal(err)
				}
				same += label
				if second, err := p.Fill(split, i, again); err != nil || second != label || !slices.Equal(pair, again) {
					t.Fatalf("%s: pair %d is not the same again: %v", name, i, err)
				}
				first, err := of.Fill(split, i, pixels)
				if err != nil || !slices.Equal(pair[:256], pixels) {
					t.Fatalf("%s: pair %d does not begin with its sample: %v", name, i, err)
				}
				if got := labelOf(t, p.(*pairs), split, i, pair[256:]); b2i(got == first) != label {
					t.Fatalf("%s: pair %d of classes %d and %d has label %d", name, i, first, got, label)
				}
			}
			if same < n/3 || same > 2*n/3 {
				t.Errorf("%s: %d of %d pairs are of one class", name, same, n)
			}
		}
	}
}

// labelOf finds the second sample of a pair among all that were candidates.
func labelOf(t *testing.T, p *pairs, split Split, index int64, image []float32) int {
	t.Helper()
	draw, pixels := hash(p.seed, pairKey, uint64(index)<<1|uint64(split)), make([]float32, len(image))
	for try := range uint64(pairTries) {
		label, err := p.Dataset.Fill(split, p.partner(split, index, mix(draw+try*golden)), pixels)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(pixels, image) {
			return label
		}
	}
	t.Fatalf("pair %d: its second sample is none", index)
	return -1
}
