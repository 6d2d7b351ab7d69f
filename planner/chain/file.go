package chain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
)

// Read reads and validates a chain file. Errors name the file, the layer, the field and its value.
func Read(path string) (*Chain, error) { return fields.ReadFile[Chain](path) }

// Decode reads and validates one chain; nothing but white space may follow it.
func Decode(r io.Reader) (*Chain, error) { return fields.Decode[Chain](r) }

// Write validates the chain and writes it to a file, whole or not at all.
func (c *Chain) Write(path string) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, c.Encode)
}

// Encode writes the chain with one layer a line.
func (c *Chain) Encode(w io.Writer) error { return c.list().WriteLines(w, "layers") }

// MarshalJSON writes the chain on one line.
func (c Chain) MarshalJSON() ([]byte, error) { return c.list().MarshalJSON() }

// MarshalJSON writes the layer with all its defaults resolved.
func (l Layer) MarshalJSON() ([]byte, error) { return l.list().MarshalJSON() }

func (c *Chain) list() fields.List {
	out := fields.List{{Name: "format", Value: Format}, {Name: "name", Value: c.Name}}
	out = fields.Unless(out, false, "estimated", c.Estimated)
	out = fields.Unless(out, "", "device", c.Device)
	out = fields.Unless(out, "", "dtype", c.DType)
	out = fields.Unless(out, 0, "batch", c.Batch)
	out = fields.Unless(out, 0, "bandwidth_bytes_per_s", c.Bandwidth)
	out = fields.Unless(out, 0, "host_memory_bandwidth_bytes_per_s", c.HostMemoryBandwidth)
	out = fields.Optional(out, "copies_beside", c.CopiesBeside)
	out = fields.Optional(out, "host_updates_beside", c.HostUpdatesBeside)
	out = fields.Optional(out, "copies_beside_host_updates", c.CopiesBesideHostUpdates)
	out = fields.Optional(out, "ops_beside_host_updates", c.OpsBesideHostUpdates)
	out = fields.Optional(out, "host_updates_beside_ops", c.HostUpdatesBesideOps)
	out = append(out, fields.Field{Name: "input_bytes", Value: c.InputBytes})
	if len(c.Branches) > 0 {
		out = append(out, fields.Field{Name: "branches", Value: c.Branches})
	}
	out = append(out, fields.Field{Name: "layers", Value: c.Layers})
	if len(c.Others) > 0 {
		out = append(out, fields.Field{Name: "other_batches", Value: c.Others})
	}
	return out.With(c.Extra)
}

func (l *Layer) list() fields.List {
	out := fields.List{
		{Name: "name", Value: l.Name},
		{Name: "forward_s", Value: l.ForwardS},
		{Name: "backward_s", Value: l.BackwardS},
		{Name: "output_bytes", Value: l.OutputBytes},
		{Name: "saved_bytes", Value: l.SavedBytes},
		{Name: "gradient_bytes", Value: l.GradientBytes},
		{Name: "forward_overhead_bytes", Value: l.ForwardOverheadBytes},
		{Name: "backward_overhead_bytes", Value: l.BackwardOverheadBytes},
		{Name: "weight_bytes", Value: l.WeightBytes},
	}
	out = fields.Unless(out, 0, "unrounded_weight_bytes", l.UnroundedWeightBytes)
	out = l.Update.list(out)
	out = fields.Optional(out, "discard_forward_s", l.DiscardForwardS)
	out = fields.Optional(out, "discard_overhead_bytes", l.DiscardOverheadBytes)
	out = fields.Optional(out, "backward_input_s", l.BackwardInputS)
	out = fields.Optional(out, "backward_weight_s", l.BackwardWeightS)
	out = fields.Optional(out, "forward_beside", l.ForwardBeside)
	out = fields.Optional(out, "backward_beside", l.BackwardBeside)
	return out.With(l.Extra)
}

// UnmarshalJSON reads and validates a chain; on an error the chain is left as it was.
func (c *Chain) UnmarshalJSON(data []byte) error {
	read, err := parse(data)
	if err == nil {
		err = read.Validate()
	} else {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err != nil {
		return err
	}
	*c = *read
	return nil
}

func parse(data []byte) (*Chain, error) {
	o, err := fields.Parse(data)
	if err != nil {
		return nil, err
	}
	others, failure := takeOthers(o)
	c, err := take(o)
	if err = cmp.Or(err, failure); err != nil {
		return nil, err
	}
	c.Others = others
	return c, nil
}

// parseOne reads a chain that has no other batch sizes.
func parseOne(data []byte) (*Chain, error) {
	o, err := fields.Parse(data)
	if err != nil {
		return nil, err
	}
	if o.Has("other_batches") {
		o.Refuse("other_batches", "there", "do not belong to another batch size")
	}
	return take(o)
}

// take takes the fields of a chain, but for other batch sizes.
func take(o *fields.Object) (*Chain, error) {
	o.Format(Format)
	o.Require("input_bytes", "layers")
	c := &Chain{
		Name:       o.String("name", ""),
		InputBytes: o.Int("input_bytes", 0),
		Bandwidth:  o.Float("bandwidth_bytes_per_s", 0),
		Device:     o.String("device", ""),
		DType:      o.String("dtype", ""),
		Batch:      int(o.Int("batch", 0)),
		Estimated:  o.Bool("estimated", false),
		Branches:   takeBranches(o),

		CopiesBeside:        takeCopiesBeside(o, "copies_beside"),
		HostMemoryBandwidth: o.Float("host_memory_bandwidth_bytes_per_s", 0),

		HostUpdatesBeside:       takeBeside(o, "host_updates_beside"),
		CopiesBesideHostUpdates: takeCopiesBeside(o, "copies_beside_host_updates"),
		OpsBesideHostUpdates:    o.OptionalFloat("ops_beside_host_updates"),
		HostUpdatesBesideOps:    o.OptionalFloat("host_updates_beside_ops"),
	}
	layers := o.Array("layers")
	if err := o.Err(); err != nil {
		return nil, err
	}
	c.Extra = o.Rest()
	c.Layers = make([]Layer, len(layers))
	for i, raw := range layers {
		if err := c.Layers[i].UnmarshalJSON(raw); err != nil {
			return nil, c.inLayer(i, err)
		}
	}
	return c, c.nameOwners()
}

// UnmarshalJSON reads one layer and fills in the defaults. The name is set even when another field is bad, so
// that the error can be reported with it.
func (l *Layer) UnmarshalJSON(data []byte) error {
	o, err := fields.Parse(data)
	if err != nil {
		return err
	}
	l.Name = o.String("name", "")
	o.Require("forward_s", "backward_s", "output_bytes")
	l.ForwardS = o.Float("forward_s", 0)
	l.BackwardS = o.Float("backward_s", 0)
	l.OutputBytes = o.Int("output_bytes", 0)
	l.SavedBytes = o.Int("saved_bytes", l.OutputBytes)
	l.GradientBytes = o.Int("gradient_bytes", l.OutputBytes)
	l.ForwardOverheadBytes = o.Int("forward_overhead_bytes", 0)
	l.BackwardOverheadBytes = o.Int("backward_overhead_bytes", 0)
	l.WeightBytes = o.Int("weight_bytes", 0)
	l.UnroundedWeightBytes = o.Int("unrounded_weight_bytes", 0)
	l.Update.take(o)
	l.DiscardForwardS = o.OptionalFloat("discard_forward_s")
	l.DiscardOverheadBytes = o.OptionalInt("discard_overhead_bytes")
	l.BackwardInputS = o.OptionalFloat("backward_input_s")
	l.BackwardWeightS = o.OptionalFloat("backward_weight_s")
	l.ForwardBeside, l.BackwardBeside = takeBeside(o, "forward_beside"), takeBeside(o, "backward_beside")
	l.Extra = o.Rest()
	return o.Err()
}

// list appends the fields that are set.
func (u *Update) list(out fields.List) fields.List {
	out = fields.Optional(out, "weight_gradient_bytes", u.GradientBytes)
	out = fields.Unless(out, 0, "wide_gradient_bytes", u.WideGradientBytes)
	out = fields.Unless(out, 0, "state_bytes", u.StateBytes)
	out = fields.Unless(out, 0, "update_s", u.DeviceS)
	out = fields.Optional(out, "host_update_s", u.HostS)
	out = fields.Unless(out, 0, "norm_s", u.NormS)
	return fields.Unless(out, 0, "weights_of", u.WeightsOf)
}

// take reads the fields of a layer.
func (u *Update) take(o *fields.Object) {
	u.WideGradientBytes = o.Int("wide_gradient_bytes", 0)
	u.GradientBytes = o.OptionalInt("weight_gradient_bytes")
	u.StateBytes = o.Int("state_bytes", 0)
	u.DeviceS = o.Float("update_s", 0)
	u.HostS = o.OptionalFloat("host_update_s")
	u.NormS = o.Float("norm_s", 0)
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
