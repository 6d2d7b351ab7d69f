package chain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"plimsoll/internal/fields"
)

// Update is the costs of keeping and updating a layer's weights (design, section 8). The zero value is that of a layer whose gradient has
// the size of its weights, without optimizer state, updated in no time on the device and not on the host.
type Update struct {
	GradientBytes *int64   // weight_gradient_bytes; nil: as WeightBytes; 0: the layer is frozen
	StateBytes    int64    // what an update needs beyond weights and gradient: moments, a master copy of rounded weights
	DeviceS       float64  // update_s, on the device
	HostS         *float64 // host_update_s; nil: the host cannot
	// WeightsOf is the layer whose weights these are, where two layers are tied, numbered from 1; 0: the layer's own. The sizes and times of
	// the owner count.
	WeightsOf int

	owner string // weights_of of a file that names the layer, until the chain is read
}

// Owner returns the layer whose weights layer l reads, l itself where they are its own; 0: it has none.
func (c *Chain) Owner(l int) int {
	switch layer := c.Layer(l); {
	case layer.Update.WeightsOf > 0:
		return layer.Update.WeightsOf
	case layer.WeightBytes > 0:
		return l
	}
	return 0
}

// WeightGradient returns the bytes of the gradient of the layer's own weights; 0: the layer is frozen, or has none.
func (l *Layer) WeightGradient() int64 {
	if l.Update.GradientBytes != nil {
		return *l.Update.GradientBytes
	}
	return l.WeightBytes
}

// list appends the fields that are set.
func (u *Update) list(out fields.List) fields.List {
	out = fields.Optional(out, "weight_gradient_bytes", u.GradientBytes)
	out = fields.Unless(out, 0, "state_bytes", u.StateBytes)
	out = fields.Unless(out, 0, "update_s", u.DeviceS)
	out = fields.Optional(out, "host_update_s", u.HostS)
	return fields.Unless(out, 0, "weights_of", u.WeightsOf)
}

// take reads the fields of a layer.
func (u *Update) take(o *fields.Object) {
	u.GradientBytes = o.OptionalInt("weight_gradient_bytes")
	u.StateBytes = o.Int("state_bytes", 0)
	u.DeviceS = o.Float("update_s", 0)
	u.HostS = o.OptionalFloat("host_update_s")
	raw := o.Raw("weights_of")
	switch number, name := 0, ""; {
	case raw == nil:
	case json.Unmarshal(raw, &number) == nil && number != 0:
		u.WeightsOf = number
	case json.Unmarshal(raw, &name) == nil && name != "":
		u.owner = name
	default:
		o.Refuse("weights_of", string(raw), "is not the number or the name of a layer")
	}
}

// nameOwners replaces the names that weights_of has in the file by numbers.
func (c *Chain) nameOwners() error {
	for i := range c.Layers {
		u := &c.Layers[i].Update
		if u.owner == "" {
			continue
		}
		for k := range c.Layers {
			if c.Layers[k].Name != u.owner {
				continue
			}
			if u.WeightsOf > 0 {
				return c.inLayer(i, badOwner(strconv.Quote(u.owner), fmt.Sprintf("is the name of layers %d and %d: give the number", u.WeightsOf, k+1)))
			}
			u.WeightsOf = k + 1
		}
		if u.WeightsOf == 0 {
			return c.inLayer(i, badOwner(strconv.Quote(u.owner), "is the name of no layer"))
		}
		u.owner = ""
	}
	return nil
}

func badOwner(value, reason string) error {
	return &fields.Error{Field: "weights_of", Value: value, Reason: reason}
}

// update checks the fields of one layer.
func (t *totals) update(l *Layer) {
	u := &l.Update
	if u.GradientBytes != nil {
		t.bytes("weight_gradient_bytes", *u.GradientBytes)
	}
	t.bytes("state_bytes", u.StateBytes)
	t.time("update_s", u.DeviceS)
	t.optionalTime("host_update_s", u.HostS)
	gradient := l.WeightGradient()
	switch {
	case t.err != nil || u.WeightsOf != 0:
	case l.WeightBytes == 0 && gradient > 0:
		t.fail("weight_gradient_bytes", strconv.FormatInt(gradient, 10), "belongs to a layer with weight_bytes above 0")
	case gradient == 0 && u.StateBytes > 0:
		t.fail("state_bytes", strconv.FormatInt(u.StateBytes, 10), "belongs to a layer that is updated: weight_bytes and weight_gradient_bytes above 0")
	}
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

// mergeUpdate returns the update of the layer that stands for layers first..last, none of which is tied.
func (c *Chain) mergeUpdate(first, last int) (m Update) {
	var gradient int64
	var host float64
	hosted, said := true, false
	for l := first; l <= last; l++ {
		layer := c.Layer(l)
		u := &layer.Update
		gradient += layer.WeightGradient()
		said = said || u.GradientBytes != nil
		m.StateBytes += u.StateBytes
		m.DeviceS += u.DeviceS
		switch {
		case u.HostS != nil:
			host += *u.HostS
		case layer.WeightGradient() > 0:
			hosted = false
		}
	}
	if said {
		m.GradientBytes = &gradient
	}
	if hosted && gradient > 0 {
		m.HostS = &host
	}
	return m
}

// tie is a layer and the layer whose weights it reads.
type tie struct{ layer, owner int }

// groupTies returns the ties of the layers as ties of groups, whose last layers are given. A tied layer and the layer whose weights it reads
// must each be a group of their own. Errors: ErrGroups.
func (c *Chain) groupTies(lasts []int) (ties []tie, err error) {
	alone := func(l int) (group int, ok bool) {
		group, ok = slices.BinarySearch(lasts, l)
		return group + 1, ok && (group == 0 && l == 1 || group > 0 && lasts[group-1] == l-1)
	}
	for i := range c.Layers {
		o := c.Layers[i].Update.WeightsOf
		if o == 0 {
			continue
		}
		layer, first := alone(i + 1)
		owner, second := alone(o)
		if !first || !second {
			return nil, fmt.Errorf("%w %v: layers %d and %d have the same weights, and each must be a group of its own", ErrGroups, lasts, o, i+1)
		}
		ties = append(ties, tie{layer, owner})
	}
	return ties, nil
}
