package chain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"plimsoll/internal/fields"
)

// Sizes returns the chain at each batch size that it was measured at, the smallest first; none of them has others.
func (c *Chain) Sizes() []*Chain {
	first := *c
	first.Others = nil
	all := append([]*Chain{&first}, c.Others...)
	slices.SortStableFunc(all, func(a, b *Chain) int { return cmp.Compare(a.Batch, b.Batch) })
	return all
}

// At returns the chain at a batch size; one that was measured at one size alone is itself, whatever that is. nil: it was measured at others.
func (c *Chain) At(batch int) *Chain {
	if len(c.Others) == 0 {
		return c
	}
	for _, x := range c.Sizes() {
		if x.Batch == batch {
			return x
		}
	}
	return nil
}

// takeOthers reads the same layers at other batch sizes.
func takeOthers(o *fields.Object) (all []*Chain, err error) {
	for i, raw := range o.Array("other_batches") {
		x, err := parseOne(raw)
		if err != nil {
			return nil, fmt.Errorf("other_batches[%d]: %w", i, err)
		}
		all = append(all, x)
	}
	return all, nil
}

// checkOthers refuses other batch sizes that are none, or those of another model.
func (c *Chain) checkOthers() error {
	known := map[int]bool{c.Batch: true}
	for i, x := range c.Others {
		fail := func(field string, value any, reason string) error {
			return fmt.Errorf("other_batches[%d]: %w", i, &fields.Error{Field: field, Value: fmt.Sprint(value), Reason: reason})
		}
		switch {
		case c.Batch == 0:
			return &fields.Error{Field: "batch", Value: "0", Reason: "of a chain with other_batches is missing"}
		case len(x.Others) > 0:
			return fail("other_batches", len(x.Others), "do not belong to another batch size")
		case known[x.Batch] || x.Batch == 0:
			return fail("batch", x.Batch, "is no other batch size")
		case x.Name != c.Name:
			return fail("name", strconv.Quote(x.Name), "is not the chain's, "+strconv.Quote(c.Name))
		case x.Len() != c.Len():
			return fail("layers", x.Len(), fmt.Sprintf("is not how many the chain has, %d", c.Len()))
		case !slices.Equal(x.Branches, c.Branches):
			return fail("branches", x.Branches, fmt.Sprintf("are not the chain's, %v", c.Branches))
		}
		known[x.Batch] = true
		for l := range c.Layers {
			if field, got, want := differentWeights(&x.Layers[l], &c.Layers[l]); field != "" {
				return x.inLayer(l, fail(field, got, fmt.Sprintf("is not the chain's, %d", want)))
			}
		}
		if err := x.validate(); err != nil {
			return fmt.Errorf("other_batches[%d]: %w", i, err)
		}
	}
	return nil
}

// differentWeights returns the first field, of the sizes of weights, gradient and state, in which two layers differ; "" where they agree.
func differentWeights(a, b *Layer) (field string, got, want int64) {
	switch {
	case a.WeightBytes != b.WeightBytes:
		return "weight_bytes", a.WeightBytes, b.WeightBytes
	case a.WideWeights() != b.WideWeights():
		return "unrounded_weight_bytes", a.WideWeights(), b.WideWeights()
	case a.WeightGradient() != b.WeightGradient():
		return "weight_gradient_bytes", a.WeightGradient(), b.WeightGradient()
	case a.Update.StateBytes != b.Update.StateBytes:
		return "state_bytes", a.Update.StateBytes, b.Update.StateBytes
	case a.Update.WeightsOf != b.Update.WeightsOf:
		return "weights_of", int64(a.Update.WeightsOf), int64(b.Update.WeightsOf)
	}
	return "", 0, 0
}
