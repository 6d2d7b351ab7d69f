//go:build cgo

package cpu

import (
	"math"

	"plimsoll/kernels"
)

// referenceGroupNorm is a BatchNorm of each group of each sample, whose elements are rows of one channel; weights come before and after.
func referenceGroupNorm(op kernels.GroupNorm, c kernels.Call, in data, out wants) {
	shape := c.In[0].Shape
	channels := shape[len(shape)-1]
	sample, width := len(in[opX])/shape[0], channels/op.Groups
	y, dx, dw, db := newWant(len(in[opX])), newWant(len(in[opX])), newWant(channels), newWant(channels)
	saved := [2]want{newWant(shape[0] * channels), newWant(shape[0] * channels)}
	weight, bias := func(int) float64 { return 1 }, func(int) float64 { return 0 }
	if !op.Plain {
		weight, bias = func(i int) float64 { return float64(in[opW][i%channels]) }, func(i int) float64 { return float64(in[opB][i%channels]) }
	}
	for n := range shape[0] {
		for g := range op.Groups {
			var at []int // the group's elements
			for i := n * sample; i < (n+1)*sample; i++ {
				if i%channels/width == g {
					at = append(at, i)
				}
			}
			mean, variance := moments(gathered(in[opX], at), 1)
			invstd := 1 / math.Sqrt(variance[0]+float64(op.Epsilon))
			xhat := func(i int) float64 { return (float64(in[opX][i]) - mean[0]) * invstd }
			for k := n*channels + g*width; k < n*channels+(g+1)*width; k++ {
				saved[0].value[k], saved[0].slack[k] = mean[0], 16*eps*(math.Abs(mean[0])+1)
				saved[1].value[k], saved[1].slack[k] = invstd, 64*eps*invstd*(1+math.Abs(mean[0])*invstd)
			}
			sums, products, bound := 0.0, 0.0, 0.0
			for _, i := range at {
				y.value[i] = xhat(i)*weight(i) + bias(i)
				y.slack[i] = 32 * eps * ((math.Abs(float64(in[opX][i]))+math.Abs(mean[0]))*invstd*math.Abs(weight(i)) + math.Abs(y.value[i]) + 1)
				if c.Pass != kernels.Forward {
					u := float64(in[opDY][i]) * weight(i) / float64(len(at))
					sums, products, bound = sums+u, products+u*xhat(i), bound+math.Abs(u)*(1+math.Abs(xhat(i)))
					dw.term(i%channels, float64(in[opDY][i])*xhat(i))
					db.term(i%channels, float64(in[opDY][i]))
				}
			}
			for _, i := range at {
				if c.Pass != kernels.Forward {
					u := float64(in[opDY][i]) * weight(i)
					dx.value[i] = invstd * (u - sums - xhat(i)*products)
					dx.slack[i] = float64(len(at)+64) * eps * invstd * (math.Abs(u) + bound*(1+math.Abs(xhat(i)))) * (1 + math.Abs(mean[0])*invstd)
				}
			}
		}
	}
	if c.Pass == kernels.Forward {
		out[opY] = y
		if c.Train {
			out[opSave], out[operand(kernels.Save, 1)] = saved[0], saved[1]
		}
		return
	}
	out[opDX] = dx
	if !op.Plain {
		out[opDW], out[opDB] = dw.close(64*(len(in[opX])/channels)), db.close(len(in[opX])/channels)
	}
}

// gathered returns some elements.
func gathered(x []float32, at []int) (all []float32) {
	for _, i := range at {
		all = append(all, x[i])
	}
	return all
}

// referenceConvTranspose scatters what each product of the convolution gathers.
func referenceConvTranspose(op kernels.ConvTranspose2D, c kernels.Call, in data, out wants) {
	conv, image := op.Adjoint(c.In[0])
	factors := in
	if op.TF32 {
		factors = in.rounded()
	}
	xs, ws, dy := factors[opX], factors[opW], factors[opDY]
	y, dx, dw := newWant(int(image.Elements())), newWant(len(in[opX])), newWant(len(in[opW]))
	convTaps(conv, image.Shape, c.In[0].Shape, func(t tap) {
		switch c.Pass {
		case kernels.Forward:
			y.term(t.x, float64(xs[t.y])*float64(ws[t.w]))
		case kernels.BackwardInput:
			dx.term(t.y, float64(dy[t.x])*float64(ws[t.w]))
		default:
			dw.term(t.w, float64(xs[t.y])*float64(dy[t.x]))
		}
	})
	terms := conv.KernelH * conv.KernelW * max(op.Out, c.In[0].Shape[3])
	switch c.Pass {
	case kernels.Forward:
		out[opY] = y.close(terms)
	case kernels.BackwardInput:
		out[opDX] = dx.close(terms)
	default:
		out[opDW] = dw.close(int(c.In[0].Elements()) / c.In[0].Shape[3])
	}
}

// randomConvTranspose returns attributes and an image that fit.
func randomConvTranspose(pick func(most int) int) (kernels.Op, []kernels.Desc) {
	for {
		groups := pick(3)
		x := kernels.F32(pick(2), pick(6), pick(6), groups*pick(9))
		op := kernels.ConvTranspose2D{
			Out: groups * pick(9), KernelH: pick(4), KernelW: pick(4), StrideH: pick(3), StrideW: pick(3), PadH: pick(3) - 1, PadW: pick(3) - 1,
			DilationH: pick(2), DilationW: pick(2), ExtraH: pick(3) - 1, ExtraW: pick(3) - 1, Groups: groups,
		}
		if _, err := op.Infer([]kernels.Desc{x}); err == nil {
			return op, []kernels.Desc{x}
		}
	}
}
