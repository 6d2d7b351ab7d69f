package ref

import "plimsoll/kernels"

// conv is Conv2D by its definition: y[n,oy,ox,o] = b[o] + Σ x[n, oy*s-p+ky*d, ox*s-p+kx*d, c] w[o,ky,kx,c].
func conv(op kernels.Conv2D, t *tensors) error {
	switch t.call.Pass {
	case kernels.Forward:
		convForward(op, t)
	case kernels.BackwardInput:
		convInput(op, t)
	default:
		convParams(op, t)
	}
	return nil
}

// convRuns calls f with every run of n products of a convolution, by flat indices: y[o] += Σ x[i+k] w[j+k], k < n.
func convRuns(op kernels.Conv2D, t *tensors, f func(o, i, j, n int)) {
	in, out := t.in[0].Shape, t.out.Shape
	depth, group := in[3]/op.Groups, op.Out/op.Groups
	for y := range int(t.out.Elements()) {
		o, ox, oy, n := y%op.Out, y/op.Out%out[2], y/op.Out/out[2]%out[1], y/op.Out/out[2]/out[1]
		for ky := range op.KernelH {
			for kx := range op.KernelW {
				iy, ix := oy*op.StrideH-op.PadH+ky*op.DilationH, ox*op.StrideW-op.PadW+kx*op.DilationW
				if iy >= 0 && iy < in[1] && ix >= 0 && ix < in[2] {
					x := ((n*in[1]+iy)*in[2]+ix)*in[3] + o/group*depth
					f(y, x, ((o*op.KernelH+ky)*op.KernelW+kx)*depth, depth)
				}
			}
		}
	}
}

func convForward(op kernels.Conv2D, t *tensors) {
	sums := make([]float64, len(t.y))
	if op.Bias {
		for i := range sums {
			sums[i] = float64(t.params[1][i%op.Out])
		}
	}
	convRuns(op, t, func(o, i, j, n int) {
		w := t.params[0][j : j+n]
		for k, x := range t.x[0][i : i+n] {
			sums[o] += float64(x) * float64(w[k])
		}
	})
	store(t.y, sums, false)
}

func convInput(op kernels.Conv2D, t *tensors) {
	if t.call.Skips(0) {
		return
	}
	sums := make([]float64, len(t.dx[0]))
	convRuns(op, t, func(o, i, j, n int) { accumulate(sums[i:i+n], t.dy[o], t.params[0][j:j+n]) })
	store(t.dx[0], sums, t.call.Adds(0))
}

func convParams(op kernels.Conv2D, t *tensors) {
	sums := make([]float64, len(t.dparams[0]))
	convRuns(op, t, func(o, i, j, n int) { accumulate(sums[j:j+n], t.dy[o], t.x[0][i:i+n]) })
	store(t.dparams[0], sums, t.call.AddParams)
	if op.Bias {
		store(t.dparams[1], columns(t.terms(), op.Out), t.call.AddParams)
	}
}

// accumulate adds a multiple of v to the sums.
func accumulate(sums []float64, factor float32, v []float32) {
	for k, x := range v {
		sums[k] += float64(factor) * float64(x)
	}
}

// linear is y = x W^T + b.
func linear(t *tensors) error {
	out := t.out.Shape[len(t.out.Shape)-1]
	rows := int(t.out.Elements()) / out
	in := int(t.in[0].Elements()) / rows
	switch t.call.Pass {
	case kernels.Forward:
		sums := make([]float64, rows*out)
		for i := range sums {
			if len(t.params) > 1 {
				sums[i] = float64(t.params[1][i%out])
			}
			for k := range in {
				sums[i] += float64(t.x[0][i/out*in+k]) * float64(t.params[0][i%out*in+k])
			}
		}
		store(t.y, sums, false)
	case kernels.BackwardInput:
		linearInput(t, rows, in, out)
	default:
		linearParams(t, rows, in, out)
	}
	return nil
}

func linearInput(t *tensors, rows, in, out int) {
	if t.call.Skips(0) {
		return
	}
	sums := make([]float64, rows*in)
	for i := range sums {
		for o := range out {
			sums[i] += float64(t.dy[i/in*out+o]) * float64(t.params[0][o*in+i%in])
		}
	}
	store(t.dx[0], sums, t.call.Adds(0))
}

func linearParams(t *tensors, rows, in, out int) {
	sums := make([]float64, out*in)
	for i := range sums {
		for n := range rows {
			sums[i] += float64(t.dy[n*out+i/in]) * float64(t.x[0][n*in+i%in])
		}
	}
	store(t.dparams[0], sums, t.call.AddParams)
	if len(t.dparams) > 1 {
		store(t.dparams[1], columns(t.terms(), out), t.call.AddParams)
	}
}

// terms are the terms of the bias's gradient.
func (t *tensors) terms() []float32 {
	if t.exact != nil {
		return t.exact
	}
	return t.dy
}

// columns sums a matrix of n columns over its rows.
func columns(m []float32, n int) []float64 {
	sums := make([]float64, n)
	for i, v := range m {
		sums[i%n] += float64(v)
	}
	return sums
}

func store(dst []float32, sums []float64, add bool) {
	for i, v := range sums {
		put(&dst[i], v, add)
	}
}
