package data

import (
	"math"
	"math/rand/v2"
)

// Cloze is a data set of text whose labels are the tokens that were masked, and no others (Devlin et al. 2019, BERT, section 3.1).
type Cloze struct {
	Sequences
	seed uint64
	mask int32
}

// Of the tokens that count, so many percent are masked. Of these, so many are the mask and so many another token, and the rest stay.
const (
	clozeShare = 15
	maskShare  = 80
	otherShare = 10
)

// NewCloze masks tokens of a data set of text, other ones each time that a sample comes; held-out samples always have the same ones.
func NewCloze(of Sequences, seed uint64, mask int32) *Cloze { return &Cloze{of, seed, mask} }

// FillTokens implements Sequences. A label of the text asks for the token behind its own place, and one of the tokens asked for at least is masked. No
// other token is.
func (c *Cloze) FillTokens(split Split, index int64, dst []float32, labels []int32) error {
	if err := c.Sequences.FillTokens(split, index, dst, labels); err != nil {
		return err
	}
	if split == Test {
		index %= c.TestLen()
	}
	var r rand.PCG
	r.Seed(hash(c.seed, clozeKey, uint64(split)), mix(uint64(index)<<1|uint64(split)))
	var counted []int
	for i, label := range labels {
		if label != Ignored && i+1 < len(labels) {
			counted = append(counted, i+1)
		}
		labels[i] = Ignored
	}
	if len(counted) == 0 {
		return nil
	}
	none := true
	for _, i := range counted {
		if below(&r, 100) < clozeShare {
			c.hide(&r, &dst[i], &labels[i])
			none = false
		}
	}
	if i := counted[below(&r, len(counted))]; none {
		c.hide(&r, &dst[i], &labels[i])
	}
	return nil
}

// hide makes a token a label, and puts another one in its place.
func (c *Cloze) hide(r *rand.PCG, token *float32, label *int32) {
	*label = int32(math.Float32bits(*token))
	switch n := below(r, 100); {
	case n < maskShare:
		*token = math.Float32frombits(uint32(c.mask))
	case n < maskShare+otherShare:
		*token = math.Float32frombits(uint32(below(r, c.Classes())))
	}
}

func (c *Cloze) tokenizer() string { return Tokenizer(c.Sequences) }

// Skipped implements Skipper.
func (c *Cloze) Skipped() int64 { return Skipped(c.Sequences) }
