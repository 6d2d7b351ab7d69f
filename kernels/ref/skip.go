package ref

import "plimsoll/kernels"

// slice takes columns out of the rows of its input; the gradient of the others is zero.
func slice(op kernels.Slice, t *tensors) error {
	rows := t.in[0].Shape[0] * op.Rows
	length, width := int(t.in[0].Elements())/rows, int(t.out.Elements())/rows
	if t.call.Pass == kernels.Forward {
		for i := range t.y {
			t.y[i] = t.x[0][i/width*length+op.From+i%width]
		}
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	reset(t.dx[0], t.call.Adds(0))
	for i, g := range t.dy {
		put(&t.dx[0][i/width*length+op.From+i%width], float64(g), true)
	}
	return nil
}

// upsample repeats pixels; a pixel's gradient is the sum over its copies.
func upsample(op kernels.Upsample, t *tensors) error {
	forward := t.call.Pass == kernels.Forward
	if !forward && t.call.Skips(0) {
		return nil
	}
	in, out := t.in[0].Shape, t.out.Shape
	sums := make([]float64, t.in[0].Elements())
	for y := range int(t.out.Elements()) {
		c, ox, oy, n := y%out[3], y/out[3]%out[2], y/out[3]/out[2]%out[1], y/out[3]/out[2]/out[1]
		x := ((n*in[1]+oy/op.Factor)*in[2]+ox/op.Factor)*in[3] + c
		if forward {
			t.y[y] = t.x[0][x]
		} else {
			sums[x] += float64(t.dy[y])
		}
	}
	if !forward {
		store(t.dx[0], sums, t.call.Adds(0))
	}
	return nil
}
