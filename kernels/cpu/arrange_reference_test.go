package cpu

import (
	"math"

	"plimsoll/kernels"
)

// referenceRearrange walks through the loops, outermost first.
func referenceRearrange(op kernels.Rearrange, c kernels.Call, in data, out wants) {
	y, _ := op.Infer(c.In)
	w, places := newWant(int(y.Elements())), []int{op.From}
	for _, l := range op.Used() {
		var next []int
		for _, at := range places {
			for k := range l.N {
				next = append(next, at+k*l.Stride)
			}
		}
		places = next
	}
	if c.Pass == kernels.Forward {
		for i, at := range places {
			w.value[i] = float64(in[opX][at])
		}
		out[opY] = w
		return
	}
	w = newWant(int(c.In[0].Elements()))
	for i, at := range places {
		w.value[at] = float64(in[opDY][i])
	}
	out[opDX] = w
}

// referenceTrailing is a sum or a product with a parameter of the last axes.
func referenceTrailing(c kernels.Call, in data, out wants) {
	_, product := c.Op.(kernels.Scale)
	n := int(c.Op.Params(c.In)[0].Desc.Elements())
	y, dx, dw := newWant(int(c.In[0].Elements())), newWant(int(c.In[0].Elements())), newWant(n)
	for i := range y.value {
		if c.Pass == kernels.Forward {
			x, weight := float64(in[opX][i]), float64(in[operand(kernels.ParamRole, 0)][i%n])
			if product {
				y.term(i, x*weight)
			} else {
				y.term(i, x)
				y.term(i, weight)
			}
			continue
		}
		dy := float64(in[opDY][i])
		if !product {
			dx.value[i] = dy
			dw.term(i%n, dy)
			continue
		}
		dx.term(i, dy*float64(in[operand(kernels.ParamRole, 0)][i%n]))
		dw.term(i%n, dy*float64(in[opX][i]))
	}
	if c.Pass == kernels.Forward {
		out[opY] = y.close(2)
		return
	}
	out[opDX], out[operand(kernels.DParam, 0)] = dx.close(1), dw.close(len(y.value)/n)
}

// referenceAddRows goes through samples, positions and channels.
func referenceAddRows(op kernels.AddRows, c kernels.Call, in data, out wants) {
	samples, length, width := c.In[0].Shape[0], c.In[0].Shape[1], c.In[0].Shape[2]
	y, dx, dw := newWant(samples*length*width), newWant(samples*length*width), newWant(op.Rows*width)
	for n := range samples {
		row := op.First
		for t := range length {
			for k := range width {
				i := (n*length+t)*width + k
				if c.Pass == kernels.Forward {
					y.term(i, float64(in[opX][i]))
					y.term(i, float64(in[operand(kernels.ParamRole, 0)][row*width+k]))
					continue
				}
				dx.value[i] = float64(in[opDY][i])
				dw.term(row*width+k, dx.value[i])
			}
			row += op.Step
		}
	}
	if c.Pass == kernels.Forward {
		out[opY] = y.close(2)
		return
	}
	out[opDX], out[operand(kernels.DParam, 0)] = dx, dw.close(samples*length)
}

// referencePrepend has samples of rows, the first of which are the parameter's.
func referencePrepend(op kernels.Prepend, c kernels.Call, in data, out wants) {
	samples, rows, width := c.In[0].Shape[0], c.In[0].Shape[1], c.In[0].Shape[2]
	y, dx, dw := newWant(samples*(op.Rows+rows)*width), newWant(samples*rows*width), newWant(op.Rows*width)
	for n := range samples {
		for r := range op.Rows + rows {
			for k := range width {
				at := (n*(op.Rows+rows)+r)*width + k
				from := (n*rows+r-op.Rows)*width + k
				switch {
				case c.Pass == kernels.Forward && r < op.Rows:
					y.value[at] = float64(in[operand(kernels.ParamRole, 0)][r*width+k])
				case c.Pass == kernels.Forward:
					y.value[at] = float64(in[opX][from])
				case r < op.Rows:
					dw.term(r*width+k, float64(in[opDY][at]))
				default:
					dx.value[from] = float64(in[opDY][at])
				}
			}
		}
	}
	if c.Pass == kernels.Forward {
		out[opY] = y
		return
	}
	out[opDX], out[operand(kernels.DParam, 0)] = dx, dw.close(samples)
}

// referenceGate has a factor for each sample and channel.
func referenceGate(c kernels.Call, in data, out wants) {
	samples := c.In[1].Shape[0]
	channels := int(c.In[1].Elements()) / samples
	rows := int(c.In[0].Elements()) / samples / channels
	y, dgate := newWant(samples*rows*channels), newWant(samples*channels)
	from, to := opX, opY
	if c.Pass != kernels.Forward {
		from, to = opDY, opDX
	}
	for n := range samples {
		for r := range rows {
			for k := range channels {
				i := (n*rows+r)*channels + k
				y.term(i, float64(in[from][i])*float64(in[opX1][n*channels+k]))
				if c.Pass != kernels.Forward {
					dgate.term(n*channels+k, float64(in[opDY][i])*float64(in[opX][i]))
				}
			}
		}
	}
	if out[to] = y.close(1); c.Pass != kernels.Forward {
		out[operand(kernels.DX, 1)] = dgate.close(rows)
	}
}

// referenceFunctions are values and slopes, by kernels.Function.
var referenceFunctions = [kernels.Functions]struct{ value, slope func(x, by float64) float64 }{
	kernels.Sigmoid: {
		func(x, _ float64) float64 { return (1 + math.Tanh(x/2)) / 2 },
		func(x, _ float64) float64 { return 1 / (4 * math.Cosh(x/2) * math.Cosh(x/2)) },
	},
	kernels.Tanh: {
		func(x, _ float64) float64 { return math.Sinh(x) / math.Cosh(x) },
		func(x, _ float64) float64 { return 1 / (math.Cosh(x) * math.Cosh(x)) },
	},
	kernels.HardSigmoid: {
		func(x, _ float64) float64 { return math.Min(math.Max(x/6+0.5, 0), 1) },
		func(x, _ float64) float64 {
			if math.Abs(x) < 3 {
				return 1.0 / 6
			}
			return 0
		},
	},
	kernels.HardSwish: {
		func(x, _ float64) float64 { return x * math.Min(math.Max(x/6+0.5, 0), 1) },
		func(x, _ float64) float64 {
			if math.Abs(x) > 3 {
				return math.Max(math.Copysign(1, x), 0)
			}
			return x/3 + 0.5
		},
	},
	kernels.Leaky: {
		func(x, by float64) float64 { return math.Max(x, 0) + by*math.Min(x, 0) },
		func(x, by float64) float64 { return (1+by)/2 + math.Copysign((1-by)/2, x) },
	},
	kernels.ELU: {
		func(x, by float64) float64 { return math.Max(x, 0) + by*(math.Exp(math.Min(x, 0))-1) },
		func(x, by float64) float64 {
			if x <= 0 {
				return by * math.Exp(x)
			}
			return 1
		},
	},
	kernels.Softplus: {
		func(x, _ float64) float64 { return math.Log(1 + math.Exp(x)) },
		func(x, _ float64) float64 { return 1 / (1 + math.Exp(-x)) },
	},
	kernels.Mish: {
		func(x, _ float64) float64 { return x * math.Tanh(math.Log(1+math.Exp(x))) },
		func(x, _ float64) float64 {
			e := math.Exp(x)
			d := e*e + 2*e + 2
			return e * (4*(x+1) + 4*e*e + e*e*e + e*(4*x+6)) / (d * d)
		},
	},
	kernels.Abs: {
		func(x, _ float64) float64 { return math.Sqrt(x * x) },
		func(x, _ float64) float64 { return math.Copysign(1, x) },
	},
	kernels.AtLeast: {
		func(x, by float64) float64 { return (x + by + math.Abs(x-by)) / 2 },
		func(x, by float64) float64 { return math.Ceil(min(max(x-by, 0), 1)) },
	},
	kernels.AtMost: {
		func(x, by float64) float64 { return (x + by - math.Abs(x-by)) / 2 },
		func(x, by float64) float64 { return math.Ceil(min(max(by-x, 0), 1)) },
	},
	kernels.Exp: {
		func(x, _ float64) float64 { return math.Cosh(x) + math.Sinh(x) },
		func(x, _ float64) float64 { return math.Cosh(x) + math.Sinh(x) },
	},
	kernels.Log: {
		func(x, _ float64) float64 { return math.Log2(x) * math.Ln2 },
		func(x, _ float64) float64 { return math.Pow(x, -1) },
	},
	kernels.Sqrt: {
		func(x, _ float64) float64 { return math.Pow(x, 0.5) },
		func(x, _ float64) float64 { return 0.5 * math.Pow(x, -0.5) },
	},
	kernels.Reciprocal: {
		func(x, _ float64) float64 { return math.Pow(x, -1) },
		func(x, _ float64) float64 { return -math.Pow(x, -2) },
	},
	kernels.Power: {
		func(x, by float64) float64 { return math.Exp(by * math.Log(x)) },
		func(x, by float64) float64 { return by * math.Exp((by-1)*math.Log(x)) },
	},
}
