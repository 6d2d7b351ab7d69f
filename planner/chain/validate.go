package chain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"plimsoll/internal/fields"
)

// Validate checks the invariants of the type. Errors name layer, field and value.
func (c *Chain) Validate() error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

func (c *Chain) validate() error {
	if len(c.Layers) == 0 {
		return &fields.Error{Field: "layers", Value: "[]", Reason: "must hold at least the loss"}
	}
	var sum totals
	sum.bytes("input_bytes", c.InputBytes)
	sum.bandwidth("bandwidth_bytes_per_s", c.Bandwidth)
	sum.bandwidth("host_memory_bandwidth_bytes_per_s", c.HostMemoryBandwidth)
	sum.number("batch", float64(c.Batch))
	sum.copiesBeside("copies_beside", c.CopiesBeside)
	sum.optionalBeside("host_updates_beside", c.HostUpdatesBeside)
	sum.copiesBeside("copies_beside_host_updates", c.CopiesBesideHostUpdates)
	sum.optionalFactor("ops_beside_host_updates", c.OpsBesideHostUpdates)
	sum.optionalFactor("host_updates_beside_ops", c.HostUpdatesBesideOps)
	if sum.err != nil {
		return sum.err
	}
	for i := range c.Layers {
		if sum.layer(&c.Layers[i]); sum.err != nil {
			return c.inLayer(i, sum.err)
		}
	}
	if err := cmp.Or(c.checkOwners(), c.checkBranches()); err != nil {
		return err
	}
	return c.checkOthers()
}

// checkOwners refuses tied layers that do not agree with the layer whose weights they read.
func (c *Chain) checkOwners() error {
	for i := range c.Layers {
		if reason := c.badTie(i + 1); reason != "" {
			return c.inLayer(i, badOwner(strconv.Itoa(c.Layers[i].Update.WeightsOf), reason))
		}
	}
	return nil
}

// badTie returns the rule that weights_of of layer l breaks, or "".
func (c *Chain) badTie(l int) (reason string) {
	tied, o := c.Layer(l), c.Layer(l).Update.WeightsOf
	if o == 0 {
		return ""
	}
	if o < 1 || o > c.Len() || o == l {
		return fmt.Sprintf("is not the number of another layer, of 1 to %d", c.Len())
	}
	owner, u := c.Layer(o), &tied.Update
	switch {
	case owner.Update.WeightsOf != 0 || owner.WeightBytes == 0:
		return "is a layer without weights of its own"
	case tied.WeightBytes != 0 && tied.WeightBytes != owner.WeightBytes:
		return fmt.Sprintf("is a layer with weight_bytes %d, and this one has %d: leave them out here", owner.WeightBytes, tied.WeightBytes)
	case u.GradientBytes != nil && *u.GradientBytes != owner.WeightGradient(), u.StateBytes != 0 && u.StateBytes != owner.Update.StateBytes:
		return "is a layer with another weight_gradient_bytes or state_bytes: leave them out here"
	}
	return ""
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
	case a.Update.WideGradientBytes != b.Update.WideGradientBytes:
		return "wide_gradient_bytes", a.Update.WideGradientBytes, b.Update.WideGradientBytes
	case a.Update.StateBytes != b.Update.StateBytes:
		return "state_bytes", a.Update.StateBytes, b.Update.StateBytes
	case a.Update.WeightsOf != b.Update.WeightsOf:
		return "weights_of", int64(a.Update.WeightsOf), int64(b.Update.WeightsOf)
	}
	return "", 0, 0
}
