package cpu

import (
	"math"

	"plimsoll/kernels"
)

// want is a result in float64 with the error that float32 arithmetic may add to each element.
type want struct{ value, slack []float64 }

type wants map[kernels.Operand]want

const eps = 1.0 / (1 << 24) // half a unit in the last place of 1

func newWant(n int) want { return want{make([]float64, n), make([]float64, n)} }

// term adds a product to element i. A float32 sum of n terms in any order errs by at most n*eps of the sum of their absolute values, and a
// product by eps. The field slack gathers the absolute values, and close applies the factor.
func (w want) term(i int, v float64) {
	w.value[i] += v
	w.slack[i] += math.Abs(v)
}

// close turns gathered absolute values into an error bound for sums of n terms.
func (w want) close(n int) want {
	for i := range w.slack {
		w.slack[i] = w.slack[i]*float64(n+4)*eps + 1e-30
	}
	return w
}

// tap is one product of a convolution: y[y] += x[x] * weight[w].
type tap struct{ y, x, w int }

// convTaps visits every product, by the definition.
func convTaps(c kernels.Conv2D, x, y kernels.Shape, visit func(tap)) {
	in, out := x[3]/c.Groups, c.Out/c.Groups
	for n := range y[0] {
		for oh := range y[1] {
			for ow := range y[2] {
				for o := range y[3] {
					for kh := range c.KernelH {
						for kw := range c.KernelW {
							h, w := oh*c.StrideH-c.PadH+kh*c.DilationH, ow*c.StrideW-c.PadW+kw*c.DilationW
							if h < 0 || h >= x[1] || w < 0 || w >= x[2] {
								continue
							}
							for i := range in {
								visit(tap{
									y: ((n*y[1]+oh)*y[2]+ow)*y[3] + o,
									x: ((n*x[1]+h)*x[2]+w)*x[3] + o/out*in + i,
									w: ((o*c.KernelH+kh)*c.KernelW+kw)*in + i,
								})
							}
						}
					}
				}
			}
		}
	}
}

// reference computes a call in float64, straight from the definitions.
func reference(c kernels.Call, in data) wants {
	out := wants{}
	switch op := c.Op.(type) {
	case kernels.Conv2D:
		referenceConv(op.Defaults(), c, in, out)
	case kernels.Linear:
		n := int(op.Features(c.In[0]))
		c.In = []kernels.Desc{kernels.F32(int(c.In[0].Elements())/n, 1, 1, n)}
		referenceConv(kernels.Conv2D{Out: op.Out, KernelH: 1, KernelW: 1, Bias: op.Bias, TF32: op.TF32}.Defaults(), c, in, out)
	case kernels.BatchNorm:
		referenceNorm(op.Defaults(), c, in, out)
	case kernels.ReLU:
		referenceReLU(op, c, in, out)
	case kernels.Add:
		referenceAdd(c, in, out)
	case kernels.Concat:
		y, _ := op.Infer(c.In)
		rows := 1
		for _, n := range y.Shape[:max(op.Axis, 0)] {
			rows *= n
		}
		if op.Axis == 0 {
			rows = int(y.Elements()) / y.Shape[len(y.Shape)-1]
		}
		referenceConcat(c, rows, in, out)
	case kernels.Pack:
		referenceConcat(c, c.In[0].Shape[0], in, out)
	case kernels.Slice:
		referenceSlice(op, c, in, out)
	case kernels.Upsample:
		referenceUpsample(op, c, in, out)
	case kernels.Pad:
		referencePad(op, c, in, out)
	case kernels.Resize:
		referenceResize(op, c, in, out)
	case kernels.MaxPool:
		referenceMaxPool(op.Defaults(), c, in, out)
	case kernels.AvgPool:
		referenceAvgPool(op.Defaults(), c, in, out)
	case kernels.GlobalAvgPool:
		x := c.In[0].Shape
		referenceAvgPool(kernels.AvgPool{KernelH: x[1], KernelW: x[2]}.Defaults(), c, in, out)
	case kernels.AdaptiveAvgPool:
		referenceAdaptivePool(op, c, in, out)
	case kernels.Dropout:
		referenceDropout(op, c, in, out)
	case kernels.SoftmaxCrossEntropy:
		referenceLoss(c, in, out)
	case kernels.ElementLoss:
		referenceElementLoss(op.Of, c, in, out)
	case kernels.Embedding:
		referenceEmbedding(op, c, in, out)
	case kernels.LayerNorm:
		referenceRowNorm(op.Defaults().Epsilon, op.Offset(), true, c, in, out)
	case kernels.RMSNorm:
		referenceRowNorm(op.Defaults().Epsilon, op.Offset(), false, c, in, out)
	case kernels.GELU:
		referenceGELU(op, c, in, out)
	case kernels.SiLU:
		referenceSiLU(c, in, out)
	case kernels.Multiply:
		referenceMultiply(c, in, out)
	case kernels.Rotary:
		referenceRotary(op.Defaults(), c, in, out)
	case kernels.Attention:
		referenceAttention(op.Defaults(), c, in, out)
	case kernels.Rearrange:
		referenceRearrange(op, c, in, out)
	case kernels.Bias, kernels.Scale:
		referenceTrailing(c, in, out)
	case kernels.AddRows:
		referenceAddRows(op, c, in, out)
	case kernels.Prepend:
		referencePrepend(op, c, in, out)
	case kernels.Gate:
		referenceGate(c, in, out)
	case kernels.Affine:
		f, plus := float64(op.Factor), float64(op.Plus)
		referenceActivation(func(x float64) float64 { return f*x + plus }, func(float64) float64 { return f }, c, in, out)
		for i := range out[opY].slack { // values near 0 are sums of others
			out[opY].slack[i] += 4 * eps * math.Abs(plus)
		}
	case kernels.Pointwise:
		f, by := referenceFunctions[op.Of], float64(op.By)
		referenceActivation(func(x float64) float64 { return f.value(x, by) }, func(x float64) float64 { return f.slope(x, by) }, c, in, out)
		for _, w := range out { // values near 0 are not of arguments near 0, and large ones not of large arguments
			for i, v := range w.value {
				w.slack[i] += 8*eps + 16*eps*math.Abs(v)
			}
		}
	case kernels.GroupNorm:
		referenceGroupNorm(op.Defaults(), c, in, out)
	case kernels.ConvTranspose2D:
		referenceConvTranspose(op, c, in, out)
	}
	accumulate(c, in, out)
	return out
}

// accumulate adds gradients to what was there where the call says so, and drops those that are skipped.
func accumulate(c kernels.Call, in data, out wants) {
	for o, w := range out {
		if o.Role == kernels.DX && c.Skips(o.Index) {
			delete(out, o)
		} else if o.Role == kernels.DX && c.Adds(o.Index) || o.Role == kernels.DParam && c.AddParams {
			for i := range w.value {
				w.value[i] += float64(in[o][i])
				w.slack[i] += 2 * eps * (math.Abs(w.value[i]) + math.Abs(float64(in[o][i])))
			}
		}
	}
}

func referenceConv(op kernels.Conv2D, c kernels.Call, in data, out wants) {
	x := c.In[0].Shape
	desc, _ := op.Infer(c.In)
	y := desc.Shape
	factors := in
	if op.TF32 {
		factors = in.rounded()
	}
	xs, ws, dy := factors[opX], factors[opW], factors[opDY]
	depth := x[3] / op.Groups * op.KernelH * op.KernelW
	switch c.Pass {
	case kernels.Forward:
		w := newWant(int(desc.Elements()))
		for i := range w.value {
			if op.Bias {
				w.term(i, float64(in[opB][i%op.Out]))
			}
		}
		convTaps(op, x, y, func(t tap) { w.term(t.y, float64(xs[t.x])*float64(ws[t.w])) })
		out[opY] = w.close(depth + 1)
	case kernels.BackwardInput:
		w := newWant(int(c.In[0].Elements()))
		convTaps(op, x, y, func(t tap) { w.term(t.x, float64(dy[t.y])*float64(ws[t.w])) })
		out[opDX] = w.close(depth * op.Out)
	case kernels.BackwardParams:
		w := newWant(op.Out * depth)
		convTaps(op, x, y, func(t tap) { w.term(t.w, float64(dy[t.y])*float64(xs[t.x])) })
		out[opDW] = w.close(y[0] * y[1] * y[2])
		if op.Bias {
			b := newWant(op.Out)
			for i, v := range in[opDY] {
				b.term(i%op.Out, float64(v))
			}
			out[opDB] = b.close(1)
		}
	}
}

// moments returns mean and biased variance of each channel.
func moments(x []float32, channels int) (mean, variance []float64) {
	mean, variance = make([]float64, channels), make([]float64, channels)
	rows := float64(len(x) / channels)
	for i, v := range x {
		mean[i%channels] += float64(v) / rows
	}
	for i, v := range x {
		d := float64(v) - mean[i%channels]
		variance[i%channels] += d * d / rows
	}
	return mean, variance
}

func referenceNorm(op kernels.BatchNorm, c kernels.Call, in data, out wants) {
	xs, dy, weight := in[opX], in[opDY], in[opW]
	channels := c.In[0].Shape[len(c.In[0].Shape)-1]
	mean, variance := moments(in[opX], channels)
	rows := float64(len(in[opX]) / channels)
	c.Train = c.Train && !op.Frozen
	if c.Pass == kernels.Forward && c.Train {
		referenceStatistics(op, c, in, out, mean, variance)
	}
	if !c.Train {
		for i := range channels {
			mean[i], variance[i] = float64(in[opMean][i]), float64(in[opVar][i])
		}
	}
	invstd := make([]float64, channels)
	for i := range invstd {
		invstd[i] = 1 / math.Sqrt(variance[i]+float64(op.Epsilon))
	}
	if c.Pass == kernels.Forward {
		w := newWant(len(in[opX]))
		for i := range w.value {
			k := i % channels
			xhat := (float64(xs[i]) - mean[k]) * invstd[k]
			v := xhat*float64(weight[k]) + float64(in[opB][k])
			// float32: mean, 1/std, scale and four operations, each to eps of the largest intermediate
			w.slack[i] = 16 * eps * ((math.Abs(float64(xs[i]))+math.Abs(mean[k]))*invstd[k]*math.Abs(float64(weight[k])) + math.Abs(v) + 1)
			if op.Residual {
				v += float64(in[opX1][i])
			}
			if op.ReLU {
				v = max(v, 0)
			}
			w.value[i] = v
		}
		out[opY] = w
		return
	}
	g := make([]float64, len(in[opX]))
	dw, db := newWant(channels), newWant(channels)
	for i := range g {
		g[i] = float64(dy[i])
		if op.ReLU && in[opY][i] <= 0 {
			g[i] = 0
		}
		k := i % channels
		dw.term(k, g[i]*(float64(xs[i])-mean[k])*invstd[k])
		db.term(k, g[i])
	}
	dx, dres := newWant(len(g)), newWant(len(g))
	for i := range g {
		k := i % channels
		xhat := (float64(xs[i]) - mean[k]) * invstd[k]
		v := g[i]
		bound := math.Abs(v)
		if c.Train {
			v -= db.value[k]/rows + xhat*dw.value[k]/rows
			bound += db.slack[k]/rows + math.Abs(xhat)*dw.slack[k]/rows
		}
		scale := float64(weight[k]) * invstd[k]
		dx.value[i], dres.value[i] = v*scale, g[i]
		dx.slack[i] = (rows + 32) * eps * (bound + 1e-20) * math.Abs(scale) * (1 + math.Abs(mean[k])*invstd[k])
	}
	for k := range channels { // xhat itself has the error of a float32 mean
		dw.slack[k] *= 1 + math.Abs(mean[k])*invstd[k]
	}
	out[opDX], out[opDW], out[opDB] = dx, dw.close(int(rows)+16), db.close(int(rows))
	if op.Residual {
		out[operand(kernels.DX, 1)] = dres
	}
}

func referenceStatistics(op kernels.BatchNorm, c kernels.Call, in data, out wants, mean, variance []float64) {
	channels := len(mean)
	rows := float64(len(in[opX]) / channels)
	m, s, rm, rv := newWant(channels), newWant(channels), newWant(channels), newWant(channels)
	for k := range channels {
		m.value[k], m.slack[k] = mean[k], 8*eps*(math.Abs(mean[k])+math.Sqrt(variance[k]))
		s.value[k] = 1 / math.Sqrt(variance[k]+float64(op.Epsilon))
		// rounding the block means moves the variance by eps*|mean|*std at most
		s.slack[k] = 64 * eps * s.value[k] * (1 + math.Abs(mean[k])*s.value[k])
		p := float64(op.Momentum)
		if c.UpdateStats {
			rm.value[k] = (1-p)*float64(in[opMean][k]) + p*mean[k]
			rm.slack[k] = 8 * eps * (math.Abs(float64(in[opMean][k])) + math.Abs(mean[k]) + math.Sqrt(variance[k]))
			rv.value[k] = (1-p)*float64(in[opVar][k]) + p*variance[k]*rows/(rows-1)
			rv.slack[k] = 64 * eps * (float64(in[opVar][k]) + variance[k] + math.Abs(mean[k])*math.Sqrt(variance[k]))
		}
	}
	out[opSave], out[operand(kernels.Save, 1)] = m, s
	if c.UpdateStats {
		out[opMean], out[opVar] = rm, rv
	}
}

func referenceReLU(op kernels.ReLU, c kernels.Call, in data, out wants) {
	most := math.Inf(1)
	if op.Max > 0 {
		most = float64(op.Max)
	}
	w := newWant(int(c.In[0].Elements()))
	for i := range w.value {
		if c.Pass == kernels.Forward {
			w.value[i] = min(max(float64(in[opX][i]), 0), most)
		} else if y := float64(in[opY][i]); y > 0 && y < most {
			w.value[i] = float64(in[opDY][i])
		}
	}
	if c.Pass == kernels.Forward {
		out[opY] = w
	} else {
		out[opDX] = w
	}
}

func referenceAdd(c kernels.Call, in data, out wants) {
	if c.Pass == kernels.Forward {
		w := newWant(int(c.In[0].Elements()))
		for i := range w.value {
			w.term(i, float64(in[opX][i]))
			w.term(i, float64(in[opX1][i]))
		}
		out[opY] = w.close(2)
		return
	}
	for j := range c.In {
		w := newWant(int(c.In[0].Elements()))
		for i := range w.value {
			w.value[i] = float64(in[opDY][i])
		}
		out[operand(kernels.DX, j)] = w
	}
}

// referenceConcat joins so many rows of each input.
func referenceConcat(c kernels.Call, rows int, in data, out wants) {
	y, _ := c.Op.Infer(c.In)
	stride := int(y.Elements()) / rows
	all := newWant(int(y.Elements()))
	column := 0
	for j, d := range c.In {
		width := int(d.Elements()) / rows
		dx := newWant(int(d.Elements()))
		for i := range dx.value {
			at := i/width*stride + column + i%width
			if c.Pass == kernels.Forward {
				all.value[at] = float64(in[operand(kernels.X, j)][i])
			} else {
				dx.value[i] = float64(in[opDY][at])
			}
		}
		if c.Pass != kernels.Forward {
			out[operand(kernels.DX, j)] = dx
		}
		column += width
	}
	if c.Pass == kernels.Forward {
		out[opY] = all
	}
}

// referenceSlice visits every element of the input and asks whether it is in the slice.
func referenceSlice(op kernels.Slice, c kernels.Call, in data, out wants) {
	x := c.In[0]
	rows := x.Shape[0] * max(op.Rows, 1)
	length, width := int(x.Elements())/rows, x.Shape[0]*op.H*op.W*op.C/rows
	y, dx := newWant(rows*width), newWant(int(x.Elements()))
	taken := 0
	for i := range dx.value {
		if column := i % length; column < op.From || column >= op.From+width {
			continue
		}
		if c.Pass == kernels.Forward {
			y.value[taken] = float64(in[opX][i])
		} else {
			dx.value[i] = float64(in[opDY][taken])
		}
		taken++
	}
	if c.Pass == kernels.Forward {
		out[opY] = y
	} else {
		out[opDX] = dx
	}
}

// referenceUpsample is the transpose of a sum over windows that lie side by side.
func referenceUpsample(op kernels.Upsample, c kernels.Call, in data, out wants) {
	y, _ := op.Infer(c.In)
	w, dx := newWant(int(y.Elements())), newWant(int(c.In[0].Elements()))
	sum := kernels.AvgPool{KernelH: op.Factor, KernelW: op.Factor}.Defaults()
	poolTaps(sum, y.Shape, c.In[0].Shape, func(xi, yi, _ int) {
		if c.Pass == kernels.Forward {
			w.value[yi] = float64(in[opX][xi])
		} else {
			dx.term(xi, float64(in[opDY][yi]))
		}
	})
	if c.Pass == kernels.Forward {
		out[opY] = w
	} else {
		out[opDX] = dx.close(op.Factor * op.Factor)
	}
}

// poolTaps visits the input elements of every window, padding excluded.
func poolTaps(p kernels.AvgPool, x, y kernels.Shape, visit func(yi, xi, position int)) {
	for n := range y[0] {
		for oh := range y[1] {
			for ow := range y[2] {
				for kh := range p.KernelH {
					for kw := range p.KernelW {
						h, w := oh*p.StrideH-p.PadH+kh, ow*p.StrideW-p.PadW+kw
						if h < 0 || h >= x[1] || w < 0 || w >= x[2] {
							continue
						}
						for k := range x[3] {
							visit(((n*y[1]+oh)*y[2]+ow)*x[3]+k, ((n*x[1]+h)*x[2]+w)*x[3]+k, h*x[2]+w)
						}
					}
				}
			}
		}
	}
}

func referenceMaxPool(op kernels.MaxPool, c kernels.Call, in data, out wants) {
	xs := in[opX]
	y, _ := op.Infer(c.In)
	best, at := newWant(int(y.Elements())), newWant(int(y.Elements()))
	from := make([]int, y.Elements())
	for i := range best.value {
		best.value[i] = math.Inf(-1)
	}
	poolTaps(kernels.AvgPool(op), c.In[0].Shape, y.Shape, func(yi, xi, position int) {
		if v := float64(xs[xi]); v > best.value[yi] {
			best.value[yi], at.value[yi], from[yi] = v, float64(position), xi
		}
	})
	if c.Pass == kernels.Forward {
		out[opY] = best
		if c.Train {
			for i, v := range at.value {
				at.value[i] = float64(math.Float32frombits(uint32(v)))
			}
			out[opSave] = at
		}
		return
	}
	dx := newWant(int(c.In[0].Elements()))
	for i, xi := range from {
		dx.term(xi, float64(in[opDY][i]))
	}
	out[opDX] = dx.close(op.KernelH * op.KernelW)
}

func referenceAvgPool(op kernels.AvgPool, c kernels.Call, in data, out wants) {
	xs, dy := in[opX], in[opDY]
	area := func(yi int, shape kernels.Shape) float64 { // counts positions one by one
		n, most := 0, 0
		if !op.Inside {
			most = 1
		}
		for kh := range op.KernelH {
			for kw := range op.KernelW {
				h, w := yi/(shape[3]*shape[2])%shape[1]*op.StrideH-op.PadH+kh, yi/shape[3]%shape[2]*op.StrideW-op.PadW+kw
				if h >= -most*op.PadH && h < c.In[0].Shape[1]+most*op.PadH && w >= -most*op.PadW && w < c.In[0].Shape[2]+most*op.PadW {
					n++
				}
			}
		}
		return float64(n)
	}
	y, _ := c.Op.Infer(c.In)
	shape := kernels.Shape{y.Shape[0], 1, 1, y.Shape[len(y.Shape)-1]}
	if len(y.Shape) == 4 {
		shape = y.Shape
	}
	w, dx := newWant(int(y.Elements())), newWant(int(c.In[0].Elements()))
	poolTaps(op, c.In[0].Shape, shape, func(yi, xi, _ int) {
		if c.Pass == kernels.Forward {
			w.term(yi, float64(xs[xi])/area(yi, shape))
		} else {
			dx.term(xi, float64(dy[yi])/area(yi, shape))
		}
	})
	if c.Pass == kernels.Forward {
		out[opY] = w.close(op.KernelH * op.KernelW)
	} else {
		out[opDX] = dx.close(op.KernelH*op.KernelW + 2)
	}
}

// adaptiveTaps visits the input elements of every window of an adaptive pool. A position belongs to window i of o when it overlaps the i-th
// of o equal parts of the axis.
func adaptiveTaps(op kernels.AdaptiveAvgPool, x kernels.Shape, visit func(yi, xi int)) {
	overlap := func(position, extent, i, windows int) bool {
		return position*windows < (i+1)*extent && i*extent < (position+1)*windows
	}
	for xi := range kernels.F32(x...).Elements() {
		k, w, h, n := int(xi)%x[3], int(xi)/x[3]%x[2], int(xi)/(x[3]*x[2])%x[1], int(xi)/(x[3]*x[2]*x[1])
		for i := range op.OutH {
			for j := range op.OutW {
				if overlap(h, x[1], i, op.OutH) && overlap(w, x[2], j, op.OutW) {
					visit(((n*x[3]+k)*op.OutH+i)*op.OutW+j, int(xi))
				}
			}
		}
	}
}

func referenceAdaptivePool(op kernels.AdaptiveAvgPool, c kernels.Call, in data, out wants) {
	y, _ := op.Infer(c.In)
	x := c.In[0].Shape
	area := make([]float64, y.Elements())
	adaptiveTaps(op, x, func(yi, _ int) { area[yi]++ })
	w, dx := newWant(len(area)), newWant(int(c.In[0].Elements()))
	adaptiveTaps(op, x, func(yi, xi int) {
		if c.Pass == kernels.Forward {
			w.term(yi, float64(in[opX][xi])/area[yi])
		} else {
			dx.term(xi, float64(in[opDY][yi])/area[yi])
		}
	})
	if c.Pass == kernels.Forward {
		out[opY] = w.close(x[1] * x[2])
	} else {
		out[opDX] = dx.close(op.OutH*op.OutW + 2)
	}
}

func referenceDropout(op kernels.Dropout, c kernels.Call, in data, out wants) {
	from, to := opX, opY
	if c.Pass != kernels.Forward {
		from, to = opDY, opDX
	}
	w := newWant(int(c.In[0].Elements()))
	stream := kernels.NewDropoutStream(scalarsOf(in), c.Salt)
	for i := range w.value {
		switch {
		case !c.Train:
			w.value[i] = float64(in[from][i])
		case stream.Word(uint64(i)) >= op.Threshold():
			w.term(i, float64(in[from][i])/(1-float64(op.P)))
		}
	}
	out[to] = w.close(1)
}

func referenceLoss(c kernels.Call, in data, out wants) {
	rows := int(c.In[1].Elements())
	classes := int(c.In[0].Elements()) / rows
	total, saved, dx := newWant(3), newWant(3*rows), newWant(rows*classes)
	counted := 0
	for _, label := range in[opX1] {
		if int32(math.Float32bits(label)) != kernels.Ignored {
			counted++
		}
	}
	total.value[2] = float64(counted)
	for r := range rows {
		x := in[opX][r*classes : (r+1)*classes]
		label := int(int32(math.Float32bits(in[opX1][r])))
		sum, best := 0.0, 0
		for k, v := range x {
			sum += math.Exp(float64(v))
			if v > x[best] {
				best = k
			}
		}
		saved.value[3*r], saved.value[3*r+1] = float64(x[best]), sum/math.Exp(float64(x[best]))
		saved.slack[3*r+1], saved.slack[3*r+2] = 16*eps*saved.value[3*r+1], 2*eps*saved.value[3*r+1]
		if label == kernels.Ignored {
			continue
		}
		total.value[0] += (math.Log(sum) - float64(x[label])) / float64(counted)
		total.slack[0] = 16 * eps * (math.Log(float64(classes)) + 4)
		if best == label {
			total.value[1]++
		}
		for k, v := range x {
			p := math.Exp(float64(v)) / sum
			if k == label {
				p--
			}
			dx.value[r*classes+k], dx.slack[r*classes+k] = p/float64(counted), 16*eps/float64(counted)
		}
	}
	if c.Pass != kernels.Forward {
		out[opDX] = dx
		return
	}
	out[opY] = total
	if c.Train {
		out[opSave] = saved
	}
}

func referenceElementLoss(of kernels.Criterion, c kernels.Call, in data, out wants) {
	n := int(c.In[0].Elements())
	total, dx := newWant(3), newWant(n)
	total.value[2] = float64(n)
	for i, v := range in[opX] {
		x, t := float64(v), float64(in[opX1][i])
		var loss, slope float64
		switch of {
		case kernels.MSE:
			loss, slope = (x-t)*(x-t), 2*(x-t)
		case kernels.L1:
			loss, slope = math.Abs(x-t), math.Copysign(1, x-t)
			if x == t {
				slope = 0
			}
		case kernels.BCE:
			p := 1 / (1 + math.Exp(-x))
			loss, slope = -t*math.Log(p)-(1-t)*math.Log(1-p), p-t
			if (p > 0.5) == (t > 0.5) {
				total.value[1]++
			}
		}
		total.value[0] += loss / float64(n)
		total.slack[0] += 16 * eps * (math.Abs(loss) + 1) / float64(n)
		dx.value[i], dx.slack[i] = slope/float64(n), 16*eps/float64(n)
	}
	if c.Pass != kernels.Forward {
		out[opDX] = dx
		return
	}
	out[opY] = total
}

func scalarsOf(in data) kernels.Scalars {
	b := make([]byte, kernels.ScalarsBytes)
	for i, v := range in[operand(kernels.ScalarsRole, 0)] {
		u := math.Float32bits(v)
		b[4*i], b[4*i+1], b[4*i+2], b[4*i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
	}
	return kernels.GetScalars(b)
}
