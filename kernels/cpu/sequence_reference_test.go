package cpu

import (
	"math"

	"plimsoll/kernels"
)

// float64s widens.
func float64s(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

// referenceActivation: f and its derivative by definition; a slack of 16 roundings of x or f'.
func referenceActivation(f, slope func(float64) float64, c kernels.Call, in data, out wants) {
	w := newWant(len(in[opX]))
	for i, x := range float64s(in[opX]) {
		if c.Pass == kernels.Forward {
			w.value[i], w.slack[i] = f(x), 16*eps*math.Abs(x)
		} else {
			dy := float64(in[opDY][i])
			w.value[i], w.slack[i] = dy*slope(x), 16*eps*math.Abs(dy)*(1+math.Abs(x))
		}
	}
	if c.Pass == kernels.Forward {
		out[opY] = w
	} else {
		out[opDX] = w
	}
}

func referenceSiLU(c kernels.Call, in data, out wants) {
	s := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	referenceActivation(func(x float64) float64 { return x * s(x) }, func(x float64) float64 { return s(x) + x*s(x)*s(-x) }, c, in, out)
}

func referenceGELU(op kernels.GELU, c kernels.Call, in data, out wants) {
	f := func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }
	slope := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2)/2 + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi) }
	if op.Tanh {
		u := func(x float64) float64 { return math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x) }
		f = func(x float64) float64 { return x / 2 * (1 + math.Tanh(u(x))) }
		slope = func(x float64) float64 {
			t := math.Tanh(u(x))
			return (1+t)/2 + x/2*(1-t*t)*math.Sqrt(2/math.Pi)*(1+3*0.044715*x*x)
		}
	}
	referenceActivation(f, slope, c, in, out)
}

func referenceMultiply(c kernels.Call, in data, out wants) {
	factors := map[kernels.Operand][2]kernels.Operand{opDX: {opDY, opX1}, operand(kernels.DX, 1): {opDY, opX}}
	if c.Pass == kernels.Forward {
		factors = map[kernels.Operand][2]kernels.Operand{opY: {opX, opX1}}
	}
	for o, f := range factors {
		w := newWant(len(in[opX]))
		for i := range w.value {
			w.term(i, float64(in[f[0]][i])*float64(in[f[1]][i]))
		}
		out[o] = w.close(1)
	}
}

func referenceEmbedding(op kernels.Embedding, c kernels.Call, in data, out wants) {
	width, length := op.Width, c.In[0].Shape[1]
	y, dw, dp := newWant(len(in[opX])*width), newWant(op.Vocabulary*width), newWant(op.Positions*width)
	for i := range y.value {
		token, position, c := int(math.Float32bits(in[opX][i/width])), i/width%length, i%width
		if p := op.Uncounted - 1; p >= 0 && token == p {
			position = p
		} else if p >= 0 {
			first := i / width / length * length
			for position = p; first <= i/width; first++ {
				if int(math.Float32bits(in[opX][first])) != p {
					position++
				}
			}
		}
		y.term(i, float64(in[opW][token*width+c]))
		if token+1 != op.Fixed {
			dw.term(token*width+c, float64(in[opDY][i]))
		}
		if op.Positions > 0 {
			y.term(i, float64(in[opB][position*width+c]))
			if position+1 != op.Uncounted {
				dp.term(position*width+c, float64(in[opDY][i]))
			}
		}
	}
	if c.Pass == kernels.Forward {
		out[opY] = y.close(2)
		return
	}
	out[opDW] = dw.close(len(in[opX]))
	if op.Positions > 0 {
		out[opDB] = dp.close(len(in[opX]))
	}
}

// referenceRowNorm: the gradient is that of the definition, written out by the quotient rule.
func referenceRowNorm(epsilon, offset float32, centered bool, c kernels.Call, in data, out wants) {
	n := len(in[opW])
	x, w, dy := float64s(in[opX]), float64s(in[opW]), float64s(in[opDY])
	rows := len(x) / n
	for i := range w {
		w[i] += float64(offset)
	}
	y, dx, mean, inverse, dw, db := newWant(len(x)), newWant(len(x)), newWant(rows), newWant(rows), newWant(n), newWant(n)
	loose := float64(32+n/4) * eps
	for r := range rows {
		row, m, v, size := x[r*n:(r+1)*n], 0.0, 0.0, 0.0
		for _, a := range row {
			if centered {
				m += a / float64(n)
			}
			size = max(size, math.Abs(a))
		}
		for _, a := range row {
			v += (a - m) * (a - m) / float64(n)
		}
		s := math.Sqrt(v + float64(epsilon))
		mean.value[r], mean.slack[r] = m, loose*size
		inverse.value[r], inverse.slack[r] = 1/s, loose*(1+size/s)/s
		var ds, dm, bound float64 // of 1/s and of the mean
		for i, a := range row {
			g := dy[r*n+i] * w[i]
			ds += g * (a - m)
			dm -= g / s
			bound += math.Abs(g)
		}
		for i, a := range row {
			k := r*n + i
			y.value[k], y.slack[k] = (a-m)/s*w[i], loose*(1+size/s)*math.Abs(w[i])*(1+size/s)
			if centered {
				y.value[k] += float64(in[opB][i])
				y.slack[k] += 2 * eps
			}
			dx.value[k] = dy[k]*w[i]/s - ds*(a-m)/(s*s*s*float64(n))
			if centered {
				dx.value[k] += dm / float64(n)
			}
			dx.slack[k] = loose * (bound/float64(n)*(1+size/s) + math.Abs(dy[k]*w[i])) / s * (1 + size/s)
			dw.term(i, dy[k]*(a-m)/s)
			dw.slack[i] += math.Abs(dy[k]) * size / s
			db.term(i, dy[k])
		}
	}
	if c.Pass != kernels.Forward {
		out[opDX], out[opDW] = dx, dw.close(64+n/4)
		if centered {
			out[opDB] = db.close(4)
		}
		return
	}
	out[opY] = y
	switch {
	case !c.Train:
	case centered:
		out[opSave], out[operand(kernels.Save, 1)] = mean, inverse
	default:
		out[opSave] = inverse
	}
}

// referenceRotary: each pair is a complex number, times e^(i angle).
func referenceRotary(op kernels.Rotary, c kernels.Call, in data, out wants) {
	from, to, way := opX, opY, 1.0
	if c.Pass != kernels.Forward {
		from, to, way = opDY, opDX, -1
	}
	length, channels := c.In[0].Shape[1], c.In[0].Shape[2]
	v, w := float64s(in[from]), newWant(len(in[from]))
	for i := range v {
		position, head, k := i/channels%length, i%channels/op.Dim, i%channels%op.Dim
		if head >= op.Heads || k >= op.Turned {
			w.value[i] = v[i]
			continue
		}
		wave := 2 * math.Pi * math.Pow(op.Base, 2*float64(k%(op.Turned/2))/float64(op.Turned)) // positions of a turn
		angle := way * float64(position) * 2 * math.Pi / wave
		if s := op.Scaling; s.Factor > 0 { // as transformers has it, in three cases
			switch {
			case s.Positions == 0 || wave > s.Positions/s.Low:
				angle /= s.Factor
			case wave >= s.Positions/s.High:
				smooth := (s.Positions/wave - s.Low) / (s.High - s.Low)
				angle *= (1-smooth)/s.Factor + smooth
			}
		}
		w.term(i, v[i]*math.Cos(angle))
		if k < op.Turned/2 {
			w.term(i, -v[i+op.Turned/2]*math.Sin(angle))
		} else {
			w.term(i, v[i-op.Turned/2]*math.Sin(angle))
		}
	}
	out[to] = w.close(8)
}

// scoreTerm returns the term that is added to the score of head h of sample n at positions t and s. If there is a table, entry is the
// element of it that the term adds.
func scoreTerm(op kernels.Attention, length int, in data, n, head, t, s int) (sum float64, entry int) {
	next := 0
	if op.Table > 0 {
		entry, next = int(in[opB][t*length+s])*op.Heads+head, 2
		sum = float64(in[opW][entry])
	}
	if op.Masks > 0 {
		at := n % op.Masks
		if op.MaskHeads {
			at = at*op.Heads + head
		}
		sum += float64(in[operand(kernels.ParamRole, next)][(at*length+t)*length+s])
	}
	return sum, entry
}

// referenceAttention makes the whole matrix of weights.
func referenceAttention(op kernels.Attention, c kernels.Call, in data, out wants) {
	length, channels, dim := c.In[0].Shape[1], c.In[0].Shape[2], op.Dim(c.In[0])
	x := float64s(in[opX])
	y, rows, dx := newWant(c.In[0].Shape[0]*length*op.Heads*dim), newWant(c.In[0].Shape[0]*op.Heads*length), newWant(len(x))
	scale, table := op.ScoreScale(c.In[0]), newWant(op.Table*op.Heads)
	for r := range rows.value {
		n, head, t := r/length/op.Heads, r/length%op.Heads, r%length
		q, o := (n*length+t)*channels+head*dim, ((n*length+t)*op.Heads+head)*dim
		key := func(s int) int { return (n*length+s)*channels + (op.Heads+head*op.KVHeads/op.Heads)*dim }
		value := func(s int) int { return key(s) + op.KVHeads*dim }
		dot := func(a []float64, i int, b []float64, j int) (sum float64) {
			for k := range dim {
				sum += a[i+k] * b[j+k]
			}
			return sum
		}
		p, sum := make([]float64, t+1), 0.0
		if op.Bidirectional {
			p = make([]float64, length)
		}
		for s := range p {
			term, _ := scoreTerm(op, length, in, n, head, t, s)
			p[s] = math.Exp(dot(x, q, x, key(s))*scale + term)
			sum += p[s]
		}
		rows.value[r], rows.slack[r] = math.Log(sum), eps*float64(dim+len(p)+32)
		for s := range p {
			p[s] /= sum
			for k := range dim {
				y.term(o+k, p[s]*x[value(s)+k])
			}
		}
		if c.Pass == kernels.Forward {
			continue
		}
		dy, mean := float64s(in[opDY][o:o+dim]), 0.0
		for s := range p {
			mean += p[s] * dot(dy, 0, x, value(s))
		}
		for s := range p {
			ds, bound := p[s]*(dot(dy, 0, x, value(s))-mean), p[s]*(float64(dim)+math.Abs(mean)) // of what is taken off
			if op.Table > 0 {
				_, entry := scoreTerm(op, length, in, n, head, t, s)
				table.term(entry, ds)
				table.slack[entry] += bound
			}
			ds, bound = ds*scale, bound*math.Abs(scale)
			for k := range dim {
				dx.term(value(s)+k, p[s]*dy[k])
				dx.term(q+k, ds*x[key(s)+k])
				dx.term(key(s)+k, ds*x[q+k])
				dx.slack[q+k] += bound * math.Abs(x[key(s)+k])
				dx.slack[key(s)+k] += bound * math.Abs(x[q+k])
			}
		}
	}
	if c.Pass != kernels.Forward {
		out[opDX] = dx.close(dim/2 + 32)
		if op.Table > 0 {
			out[opDW] = table.close(dim/2 + 32)
		}
		return
	}
	out[opY] = y.close(dim + 32)
	if c.Train {
		out[opSave] = rows
	}
}
