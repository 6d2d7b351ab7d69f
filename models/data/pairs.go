package data

// pairs is a data set of pairs of samples of another one; class 1 says that both are of one class.
type pairs struct {
	Dataset
	seed uint64
}

// pairTries bounds the search for the second sample of a pair. When it ends without one that was wanted, the pair is of
// whatever was found last.
const pairTries = 256

// Pairs returns the data set of pairs of samples. Each sample of a split is paired with another sample of the split, which
// has the same class in about half of the pairs. An image of a pair is the first one with the second one below it, so that
// its height is doubled.
func Pairs(of Dataset, seed uint64) Dataset { return &pairs{of, seed} }

// Classes implements Dataset: others, the same.
func (p *pairs) Classes() int { return 2 }

// Shape implements Dataset.
func (p *pairs) Shape() [3]int {
	s := p.Dataset.Shape()
	return [3]int{2 * s[0], s[1], s[2]}
}

// Skipped implements Skipper.
func (p *pairs) Skipped() int64 { return Skipped(p.Dataset) }

// Palette implements Pictures.
func (p *pairs) Palette() []float32 { return Palette(p.Dataset) }

// Fill implements Dataset.
func (p *pairs) Fill(split Split, index int64, dst []float32) (int, error) {
	return fillPair(p, p.Dataset.Fill, split, index, dst)
}

// FillBytes implements Pictures, where the data set is one.
func (p *pairs) FillBytes(split Split, index int64, dst []uint8) (int, error) {
	return fillPair(p, p.Dataset.(Pictures).FillBytes, split, index, dst)
}

// fillPair fills a sample's halves.
func fillPair[T Element](p *pairs, fill func(Split, int64, []T) (int, error), split Split, index int64, dst []T) (label int, err error) {
	half := len(dst) / 2
	first, err := fill(split, index, dst[:half])
	if err != nil {
		return 0, err
	}
	draw := hash(p.seed, pairKey, uint64(index)<<1|uint64(split))
	want := int(draw & 1)
	for try := range uint64(pairTries) {
		second, err := fill(split, p.partner(split, index, mix(draw+try*golden)), dst[half:])
		if err != nil {
			return 0, err
		}
		if label = b2i(first == second); label == want {
			break
		}
	}
	return label, nil
}

// partner returns another sample of the epoch of index.
func (p *pairs) partner(split Split, index int64, draw uint64) int64 {
	n := p.TestLen()
	if split == Train {
		n = p.TrainLen()
	}
	if n == 0 { // there is no end of samples
		return int64(draw >> 1)
	}
	if n == 1 {
		return index
	}
	at := index % n
	other := int64(draw % uint64(n-1))
	if other >= at {
		other++
	}
	return index - at + other
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
