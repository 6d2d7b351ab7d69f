package kernels

import (
	"math"
	"slices"
)

// Defaults returns the op with zero attributes replaced by 1.
func (c Conv2D) Defaults() Conv2D {
	for _, p := range []*int{&c.StrideH, &c.StrideW, &c.DilationH, &c.DilationW, &c.Groups} {
		if *p == 0 {
			*p = 1
		}
	}
	return c
}

// Infer implements Op.
func (c Conv2D) Infer(in []Desc) (Desc, error) {
	d := c.Defaults()
	if err := oneImage(c.Kind(), in); err != nil {
		return Desc{}, err
	}
	depth := in[0].Shape[3]
	if err := products(c, in[0]); err != nil {
		return Desc{}, err
	}
	switch {
	case d.Out < 1 || d.Out > MaxExtent:
		return Desc{}, bad(c.Kind(), "Out", "%d is not a number of output channels", d.Out)
	case d.Groups < 1 || depth%d.Groups != 0 || d.Out%d.Groups != 0:
		return Desc{}, bad(c.Kind(), "Groups", "%d does not divide %d input and %d output channels", d.Groups, depth, d.Out)
	}
	h, err := window(c.Kind(), "H", in[0].Shape[1], d.KernelH, d.StrideH, d.PadH, d.DilationH)
	if err != nil {
		return Desc{}, err
	}
	w, err := window(c.Kind(), "W", in[0].Shape[2], d.KernelW, d.StrideW, d.PadW, d.DilationW)
	if err != nil {
		return Desc{}, err
	}
	if err := F32(d.Out, d.KernelH, d.KernelW, depth/d.Groups).check(); err != nil {
		return Desc{}, bad(c.Kind(), "Out", "the weight %v", err)
	}
	return output(c.Kind(), in[0].DType, in[0].Shape[0], h, w, d.Out)
}

// Infer implements Op.
func (b BatchNorm) Infer(in []Desc) (Desc, error) {
	if !(b.Epsilon >= 0) {
		return Desc{}, bad(b.Kind(), "Epsilon", "%v is negative", b.Epsilon)
	}
	if !(b.Momentum >= 0 && b.Momentum <= 1) {
		return Desc{}, bad(b.Kind(), "Momentum", "%v is not in [0, 1]", b.Momentum)
	}
	want := 1
	if b.Residual {
		want = 2
	}
	return same(b.Kind(), in, want)
}

// Infer implements Op.
func (r ReLU) Infer(in []Desc) (Desc, error) {
	y, err := same(r.Kind(), in, 1)
	switch {
	case err != nil:
		return y, err
	case !(r.Max >= 0 && r.Max <= math.MaxFloat32):
		return Desc{}, bad(r.Kind(), "Max", "%v is not from 0, which means none, and finite", r.Max)
	case y.DType == BFloat16 && r.Max != RoundBFloat16(r.Max):
		return Desc{}, bad(r.Kind(), "Max", "%v is no bfloat16, which the input is: what is clipped could not be told", r.Max)
	}
	return y, nil
}

// Infer implements Op.
func (a Add) Infer(in []Desc) (Desc, error) { return same(a.Kind(), in, 2) }

// Infer implements Op.
func (d Dropout) Infer(in []Desc) (Desc, error) {
	if !(d.P >= 0 && d.P < 1) {
		return Desc{}, bad(d.Kind(), "P", "%v is not in [0, 1)", d.P)
	}
	return same(d.Kind(), in, 1)
}

// Infer implements Op.
func (c Concat) Infer(in []Desc) (Desc, error) {
	if len(in) < 1 || len(in[0].Shape) < 1 {
		return Desc{}, bad(c.Kind(), "X", "no inputs, or one without axes")
	}
	axis, depth := len(in[0].Shape)-1, 0
	if c.Axis != 0 {
		axis = c.Axis
	}
	if axis < 0 || axis >= len(in[0].Shape) {
		return Desc{}, bad(c.Kind(), "Axis", "%d is none of %v", c.Axis, in[0])
	}
	others := func(d Desc) Shape { return slices.Delete(slices.Clone(d.Shape), axis, axis+1) }
	for i, d := range in {
		if err := tensor(c.Kind(), i, d); err != nil {
			return Desc{}, err
		}
		if len(d.Shape) != len(in[0].Shape) || !slices.Equal(others(d), others(in[0])) || d.DType != in[0].DType {
			return Desc{}, bad(c.Kind(), "X", "input %d is %v, input 0 is %v: only axis %d may differ", i, d, in[0], axis)
		}
		if depth += d.Shape[axis]; depth > MaxExtent {
			return Desc{}, bad(c.Kind(), "X", "the extents of inputs 0 to %d sum to more than %d", i, MaxExtent)
		}
	}
	y := slices.Clone(in[0].Shape)
	y[axis] = depth
	out, err := output(c.Kind(), in[0].DType, y...)
	if err == nil && JoinedRow(c, out) > MaxExtent {
		return Desc{}, bad(c.Kind(), "X", "rows of %v from axis %d on have more than %d elements", out, axis, MaxExtent)
	}
	return out, err
}

// Infer implements Op.
func (m MaxPool) Infer(in []Desc) (Desc, error) {
	y, err := pool(m.Kind(), in, AvgPool(m))
	if err == nil && in[0].Shape[1]*in[0].Shape[2] > MaxExtent {
		return Desc{}, bad(m.Kind(), "X", "input 0 is %v: a position in an image must fit in 31 bits", in[0])
	}
	return y, err
}

// Infer implements Op.
func (a AvgPool) Infer(in []Desc) (Desc, error) { return pool(a.Kind(), in, a) }

// Defaults returns the op with a zero Epsilon and Momentum replaced by PyTorch's 1e-5 and 0.1.
func (b BatchNorm) Defaults() BatchNorm {
	if b.Epsilon == 0 {
		b.Epsilon = 1e-5
	}
	if b.Momentum == 0 {
		b.Momentum = 0.1
	}
	return b
}

// Defaults returns the op with zero strides replaced by the kernel's extent.
func (a AvgPool) Defaults() AvgPool {
	if a.StrideH == 0 {
		a.StrideH = a.KernelH
	}
	if a.StrideW == 0 {
		a.StrideW = a.KernelW
	}
	return a
}

// Defaults returns the op with zero strides replaced by the kernel's extent.
func (m MaxPool) Defaults() MaxPool { return MaxPool(AvgPool(m).Defaults()) }

// Infer implements Op.
func (g GlobalAvgPool) Infer(in []Desc) (Desc, error) {
	if err := oneImage(g.Kind(), in); err != nil {
		return Desc{}, err
	}
	return output(g.Kind(), in[0].DType, in[0].Shape[0], in[0].Shape[3])
}

// Infer implements Op.
func (a AdaptiveAvgPool) Infer(in []Desc) (Desc, error) {
	if err := oneImage(a.Kind(), in); err != nil {
		return Desc{}, err
	}
	if min(a.OutH, a.OutW) < 1 || max(a.OutH, a.OutW) > maxAttribute {
		return Desc{}, bad(a.Kind(), "Out", "%dx%d is not a number of windows", a.OutH, a.OutW)
	}
	depth, windows := in[0].Shape[3], a.OutH*a.OutW
	if windows > MaxExtent/depth {
		return Desc{}, bad(a.Kind(), "Out", "%dx%d windows of %d channels have more than %d features", a.OutH, a.OutW, depth, MaxExtent)
	}
	return output(a.Kind(), in[0].DType, in[0].Shape[0], depth*windows)
}

// Infer implements Op.
func (l Linear) Infer(in []Desc) (Desc, error) {
	if len(in) != 1 || len(in[0].Shape) < 2 {
		return Desc{}, bad(l.Kind(), "X", "want one input of at least two axes, have %v", in)
	}
	if err := tensor(l.Kind(), 0, in[0]); err != nil {
		return Desc{}, err
	}
	if err := products(l, in[0]); err != nil {
		return Desc{}, err
	}
	if l.Out < 1 || l.Out > MaxExtent {
		return Desc{}, bad(l.Kind(), "Out", "%d is not a number of output features", l.Out)
	}
	features := l.Features(in[0])
	if features > MaxElements/int64(l.Out) {
		return Desc{}, bad(l.Kind(), "Out", "a weight of %dx%d has more than %d elements", l.Out, features, int64(MaxElements))
	}
	if l.LastAxis {
		return output(l.Kind(), in[0].DType, append(slices.Clone(head(in[0])), l.Out)...)
	}
	return output(l.Kind(), in[0].DType, in[0].Shape[0], l.Out)
}

// Infer implements Op.
func (s SoftmaxCrossEntropy) Infer(in []Desc) (Desc, error) {
	if len(in) != 2 || len(in[0].Shape) < 2 {
		return Desc{}, bad(s.Kind(), "X", "want logits N,C and labels N, have %v", in)
	}
	if err := tensor(s.Kind(), 0, in[0]); err != nil {
		return Desc{}, err
	}
	if want := (Desc{Shape: head(in[0]), DType: Int32}); !in[1].Equal(want) {
		return Desc{}, bad(s.Kind(), "X", "labels are %v, want %v", in[1], want)
	}
	return F32(3), nil
}

// Infer implements Op.
func (c Cast) Infer(in []Desc) (Desc, error) {
	if !c.To.Float() {
		return Desc{}, bad(c.Kind(), "To", "%v is neither float32 nor bfloat16", c.To)
	}
	y, err := same(c.Kind(), in, 1)
	if err == nil && y.DType == c.To {
		return Desc{}, bad(c.Kind(), "To", "input 0 is %v already", y)
	}
	return y.As(c.To), err
}

func pool(kind string, in []Desc, a AvgPool) (Desc, error) {
	a = a.Defaults()
	if err := oneImage(kind, in); err != nil {
		return Desc{}, err
	}
	if kind == (MaxPool{}).Kind() && a.Inside {
		return Desc{}, bad(kind, "Inside", "a maximum never counts padding")
	}
	if a.PadH > a.KernelH/2 || a.PadW > a.KernelW/2 {
		return Desc{}, bad(kind, "Pad", "%dx%d is more than half of the %dx%d window", a.PadH, a.PadW, a.KernelH, a.KernelW)
	}
	h, err := window(kind, "H", in[0].Shape[1], a.KernelH, a.StrideH, a.PadH, 1)
	if err != nil {
		return Desc{}, err
	}
	w, err := window(kind, "W", in[0].Shape[2], a.KernelW, a.StrideW, a.PadW, 1)
	if err != nil {
		return Desc{}, err
	}
	if a.Ceil {
		h, w = more(h, in[0].Shape[1], a.KernelH, a.StrideH, a.PadH), more(w, in[0].Shape[2], a.KernelW, a.StrideW, a.PadW)
	}
	return output(kind, in[0].DType, in[0].Shape[0], h, w, in[0].Shape[3])
}

// more returns the windows along an axis with a last one that reaches beyond its end, if it begins before that.
func more(windows, extent, kernel, stride, pad int) int {
	if (extent+2*pad-kernel)%stride != 0 && windows*stride < extent+pad {
		return windows + 1
	}
	return windows
}

// window returns the output extent of a sliding window along one axis, as PyTorch:
// floor((extent + 2*pad - dilation*(kernel-1) - 1) / stride) + 1.
func window(kind, axis string, extent, kernel, stride, pad, dilation int) (int, error) {
	field := "window " + axis
	if kernel < 1 || stride < 1 || pad < 0 || dilation < 1 {
		return 0, bad(kind, field, "kernel %d, stride %d, padding %d, dilation %d are not all valid", kernel, stride, pad, dilation)
	}
	if max(kernel, stride, pad, dilation) > maxAttribute {
		return 0, bad(kind, field, "kernel %d, stride %d, padding %d, dilation %d: at most %d is allowed", kernel, stride, pad, dilation, maxAttribute)
	}
	span := int64(dilation)*int64(kernel-1) + 1
	room := int64(extent) + 2*int64(pad) - span
	if room < 0 {
		return 0, bad(kind, field, "a window of %d does not fit in %d with padding %d: use larger images", span, extent, pad)
	}
	return int(room/int64(stride)) + 1, nil
}

// maxAttribute bounds the attributes of windows.
const maxAttribute = 1 << 24

// products refuses TF32 where there is no float32 to round.
func products(op Op, x Desc) error {
	if UsesTF32(op) && x.DType != Float32 {
		return bad(op.Kind(), "TF32", "input 0 is %v: TF32 is for float32", x)
	}
	return nil
}

// output describes an output, which must not be too large.
func output(kind string, t DType, extents ...int) (Desc, error) {
	d := Desc{Shape: extents, DType: t}
	if err := d.check(); err != nil {
		return Desc{}, bad(kind, "Y", "%v", err)
	}
	return d, nil
}

// tensor refuses an input that is not of an activation's type and at least one axis.
func tensor(kind string, index int, d Desc) error {
	if len(d.Shape) < 1 || !d.DType.Float() {
		return bad(kind, "X", "input %d is %v, want float32 or bfloat16 with at least one axis", index, d)
	}
	if err := d.check(); err != nil {
		return bad(kind, "X", "input %d is %v", index, err)
	}
	return nil
}

// oneImage refuses anything but one input N,H,W,C.
func oneImage(kind string, in []Desc) error {
	if len(in) != 1 {
		return bad(kind, "X", "want 1 input, have %d", len(in))
	}
	if err := tensor(kind, 0, in[0]); err != nil {
		return err
	}
	if len(in[0].Shape) != 4 {
		return bad(kind, "X", "input 0 is %v, want 4 axes", in[0])
	}
	return nil
}

// same refuses anything but n inputs of one shape and type, and returns it.
func same(kind string, in []Desc, n int) (Desc, error) {
	if len(in) != n {
		return Desc{}, bad(kind, "X", "want %d inputs, have %d", n, len(in))
	}
	for i := range in {
		if err := tensor(kind, i, in[i]); err != nil {
			return Desc{}, err
		}
		if !in[i].Equal(in[0]) {
			return Desc{}, bad(kind, "X", "input %d is %v, input 0 is %v: want equal shapes and types", i, in[i], in[0])
		}
	}
	return Desc{Shape: slices.Clone(in[0].Shape), DType: in[0].DType}, nil
}

// Params implements Op.
func (c Conv2D) Params(in []Desc) []Param {
	d := c.Defaults()
	depth := in[0].Shape[3] / d.Groups
	area := d.KernelH * d.KernelW
	fanIn, fanOut := depth*area, d.Out*area
	ps := []Param{{Name: "weight", Desc: F32(d.Out, d.KernelH, d.KernelW, depth), Trained: true, FanIn: fanIn, FanOut: fanOut}}
	if d.Bias {
		ps = append(ps, Param{Name: "bias", Desc: F32(d.Out), Trained: true, FanIn: fanIn, FanOut: fanOut})
	}
	return ps
}

// Saved implements Op: the position of each maximum.
func (m MaxPool) Saved(in []Desc) []Desc {
	y, err := m.Infer(in)
	if err != nil {
		return nil
	}
	return []Desc{{Shape: y.Shape, DType: Int32}}
}
