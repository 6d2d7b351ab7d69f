package cpu

import (
	"math"

	"plimsoll/kernels"
)

// referencePad visits the frame's pixels, and those of the image that lie there.
func referencePad(op kernels.Pad, c kernels.Call, in data, out wants) {
	x := c.In[0].Shape
	referenceFrame(op, c, in, out, func(oy, ox int, visit func(y, x int, weight, loose float64)) {
		for y := range x[1] {
			for column := range x[2] {
				dy, dx := oy-op.Top-y, ox-op.Left-column
				if dy == 0 && dx == 0 || op.Circular && dy%x[1] == 0 && dx%x[2] == 0 {
					visit(y, column, 1, 0)
				}
			}
		}
	})
}

// referenceResize has for each pixel of the image the weight of a tent around the position, or of the nearest one.
func referenceResize(op kernels.Resize, c kernels.Call, in data, out wants) {
	x := c.In[0].Shape
	weight := func(i, p, extent, out int, ratio float32) (w, loose float64) {
		scale := float64(ratio)
		if ratio == 0 {
			scale = float64(extent) / float64(out)
		}
		if op.Nearest {
			low, _, _ := kernels.Axis{In: extent, Out: out, Ratio: float32(scale), Nearest: true}.At(i) // rounding decides
			return map[bool]float64{true: 1}[low == p], 0
		}
		at := (float64(i)+0.5)*scale - 0.5
		if op.AlignCorners {
			at = float64(i) * float64(extent-1) / math.Max(float64(out-1), 1)
		}
		at = math.Min(math.Max(at, 0), float64(extent-1))
		away := math.Abs(at - float64(p))
		if away > 1.001 {
			return 0, 0
		}
		return math.Max(1-away, 0), 1 + at // the position has as many roundings
	}
	referenceFrame(op, c, in, out, func(oy, ox int, visit func(y, x int, weight, loose float64)) {
		for y := range x[1] {
			down, looseDown := weight(oy, y, x[1], op.OutH, op.RatioH)
			for column := range x[2] {
				along, looseAlong := weight(ox, column, x[2], op.OutW, op.RatioW)
				visit(y, column, down*along, looseDown+looseAlong)
			}
		}
	})
}

// referenceFrame sums up the pixels that each one of the output is made of, or their gradients.
func referenceFrame(op kernels.Op, c kernels.Call, in data, out wants, sources func(oy, ox int, visit func(y, x int, weight, loose float64))) {
	desc, _ := op.Infer(c.In)
	x, y := c.In[0].Shape, desc.Shape
	w, dx := newWant(int(desc.Elements())), newWant(int(c.In[0].Elements()))
	for oy := range y[1] {
		for ox := range y[2] {
			sources(oy, ox, func(row, column int, weight, loose float64) {
				if weight == 0 && loose == 0 {
					return
				}
				for n := range y[0] {
					for k := range y[3] {
						i, at := ((n*y[1]+oy)*y[2]+ox)*y[3]+k, ((n*x[1]+row)*x[2]+column)*x[3]+k
						if c.Pass == kernels.Forward {
							w.term(i, weight*float64(in[opX][at]))
							w.slack[i] += loose * math.Abs(float64(in[opX][at]))
						} else {
							dx.term(at, weight*float64(in[opDY][i]))
							dx.slack[at] += loose * math.Abs(float64(in[opDY][i]))
						}
					}
				}
			})
		}
	}
	if c.Pass == kernels.Forward {
		out[opY] = w.close(8)
	} else {
		out[opDX] = dx.close(8 + y[1]*y[2])
	}
}
