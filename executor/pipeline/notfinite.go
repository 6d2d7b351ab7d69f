package pipeline

import (
	"encoding/binary"

	"plimsoll/executor/internal/stageops"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// FirstNotFinite runs the training forward of a minibatch once more, with the weights as they are and without side effects. It returns the name
// of the first layer whose output has an element that is not finite; "" where there is none: then only gradients were not. It is for plans of
// one stage, between runs or behind one that failed, and it allocates.
//
// The minibatch is counted through all runs; images and labels are as Feed gives them. Errors: *LimitError where the forward of all
// layers does not fit; those of the device.
func (e *Executor) FirstNotFinite(minibatch int, images []float32, labels []int32) (string, error) {
	d := e.drivers[0]
	x := &evaluation{stage: d.stages[0], driver: d}
	if !x.alone() {
		panic("BUG: a layer that is not finite is looked for in several stages")
	}
	for l := range e.Layers {
		x.ops = append(x.ops, stageops.Op{Layer: l + 1, Program: &e.Layers[l].Forget})
	}
	g := &allocator{end: e.memory[0].Static}
	scalars, classes := g.alloc(kernels.ScalarsBytes), g.alloc(e.Model.Labels.Bytes())
	x.layOut(scalars, g)
	if room := max(e.opt.limit(0), e.memory[0].Extent); g.end > room {
		return "", &LimitError{Device: d.Number, Needed: g.end, Limit: room, Static: e.memory[0].Static}
	}
	values := make([]byte, kernels.ScalarsBytes)
	e.scalars(minibatch).Put(values)
	type part struct {
		to   runtime.Span
		from []byte
	}
	parts, each := []part{{scalars, values}, {classes, asBytes(labels)}}, e.Model.Input.Bytes()
	for k, to := range x.inputs {
		parts = append(parts, part{to.Part(0, each), asBytes(images)[int64(k)*each:][:each]})
	}
	for _, part := range parts {
		if err := d.write(part.to.Part(0, int64(len(part.from))), part.from); err != nil {
			return "", err
		}
	}
	for i := range x.ops {
		x.frames[i].labels = classes
		if finite, err := x.finite(i); err != nil || !finite {
			return e.Model.Layers[i].Name, err
		}
	}
	return "", nil
}

// finite runs an op of a forward and reports whether its output is finite.
func (x *evaluation) finite(i int) (bool, error) {
	d := x.driver
	list, err := d.binder.op(x.stage, &x.ops[i], &x.frames[i])
	if err != nil {
		return false, err
	}
	for _, l := range list {
		if err := d.compute.S.Launch(l.Launch); err != nil {
			return false, err
		}
	}
	layer := d.lay.Model.Layers[x.ops[i].Layer-1]
	out := layer.Desc(layer.Output())
	values := make([]byte, out.Bytes())
	if err := d.read(x.frames[i].output.Part(0, out.Bytes()), values); err != nil {
		return false, err
	}
	return finiteValues(values, out.DType), nil
}

// finiteValues reports whether all numbers of a floating point type are finite: the exponent of one that is not has ones alone.
func finiteValues(values []byte, dtype kernels.DType) bool {
	const exponent = 0x7f80 // in the upper half of a float32, which a bfloat16 is
	size := int(dtype.Size())
	for at := size - 2; at < len(values); at += size {
		if binary.LittleEndian.Uint16(values[at:])&exponent == exponent {
			return false
		}
	}
	return true
}
