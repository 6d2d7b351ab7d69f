package kernels

func (ConvTranspose2D) Kind() string                       { return "convtranspose2d" }
func (ConvTranspose2D) Saved([]Desc) []Desc                { return nil }
func (ConvTranspose2D) Needs() Needs                       { return Needs{Inputs: []bool{true}} }
func (c ConvTranspose2D) usesTF32() bool                   { return c.TF32 }
func (ConvTranspose2D) Split() bool                        { return true }
func (ConvTranspose2D) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }

// Params implements Op.
func (c ConvTranspose2D) Params(in []Desc) []Param {
	op, y := c.Adjoint(in[0])
	p := op.Params([]Desc{y})[0]
	p.FanIn, p.FanOut = p.FanOut, p.FanIn
	return []Param{p}
}

// Adjoint returns the convolution whose gradient by its image the op is, and that image: the op's output.
func (c ConvTranspose2D) Adjoint(x Desc) (Conv2D, Desc) {
	op := Conv2D{
		Out: x.Shape[3], KernelH: c.KernelH, KernelW: c.KernelW, StrideH: c.StrideH, StrideW: c.StrideW, PadH: c.PadH, PadW: c.PadW,
		DilationH: c.DilationH, DilationW: c.DilationW, Groups: c.Groups, TF32: c.TF32,
	}.Defaults()
	extent := func(n, kernel, stride, pad, dilation, extra int) int {
		return (n-1)*stride - 2*pad + dilation*(kernel-1) + extra + 1
	}
	h := extent(x.Shape[1], op.KernelH, op.StrideH, op.PadH, op.DilationH, c.ExtraH)
	w := extent(x.Shape[2], op.KernelW, op.StrideW, op.PadW, op.DilationW, c.ExtraW)
	return op, Desc{Shape: Shape{x.Shape[0], h, w, c.Out}, DType: x.DType}
}

// Infer implements Op.
func (c ConvTranspose2D) Infer(in []Desc) (Desc, error) {
	if err := oneImage(c.Kind(), in); err != nil {
		return Desc{}, err
	}
	if err := products(c, in[0]); err != nil {
		return Desc{}, err
	}
	for _, n := range []int{c.KernelH, c.KernelW, c.StrideH, c.StrideW, c.PadH, c.PadW, c.DilationH, c.DilationW, c.ExtraH, c.ExtraW, c.Out, c.Groups} {
		if n < 0 || n > maxAttribute {
			return Desc{}, bad(c.Kind(), "window", "%+v has a number that is not from 0 to %d", c, maxAttribute)
		}
	}
	op, y := c.Adjoint(in[0])
	if c.ExtraH >= op.StrideH || c.ExtraW >= op.StrideW {
		return Desc{}, bad(c.Kind(), "Extra", "%dx%d more pixels are not fewer than a stride of %dx%d", c.ExtraH, c.ExtraW, op.StrideH, op.StrideW)
	}
	if min(y.Shape[1], y.Shape[2]) < 1 {
		return Desc{}, bad(c.Kind(), "window", "of %v it has an output of %v", in[0], y.Shape)
	}
	y, err := output(c.Kind(), y.DType, y.Shape...)
	if err != nil {
		return Desc{}, err
	}
	if back, err := op.Infer([]Desc{y}); err != nil || !back.Equal(in[0]) {
		return Desc{}, bad(c.Kind(), "window", "%+v of %v is the gradient of no convolution: %v", c, in[0], err)
	}
	return y, nil
}

func (c ConvTranspose2D) inTF32() Op {
	c.TF32 = true
	return c
}
