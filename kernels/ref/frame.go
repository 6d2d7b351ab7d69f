package ref

import "plimsoll/kernels"

// pad copies an image into another frame; a pixel's gradient is the sum over its copies.
func pad(op kernels.Pad, t *tensors) error {
	in := t.in[0].Shape
	inside := func(i, extent int) (int, bool) {
		if op.Circular {
			return (i%extent + extent) % extent, true
		}
		return i, i >= 0 && i < extent
	}
	return framed(t, func(oy, ox int, add func(y, x int, weight float64)) {
		y, row := inside(oy-op.Top, in[1])
		x, column := inside(ox-op.Left, in[2])
		if row && column {
			add(y, x, 1)
		}
	})
}

// resize takes weighted means of pixels; a pixel's gradient is the weighted sum over the means that it has a part in.
func resize(op kernels.Resize, t *tensors) error {
	rows, columns := op.Axes(t.in[0])
	return framed(t, func(oy, ox int, add func(y, x int, weight float64)) {
		top, bottom, down := rows.At(oy)
		left, right, along := columns.At(ox)
		add(top, left, float64(1-down)*float64(1-along))
		add(top, right, float64(1-down)*float64(along))
		add(bottom, left, float64(down)*float64(1-along))
		add(bottom, right, float64(down)*float64(along))
	})
}

// framed computes each pixel of an image as the sum that sources tells, or the gradients.
func framed(t *tensors, sources func(oy, ox int, add func(y, x int, weight float64))) error {
	forward := t.call.Pass == kernels.Forward
	if !forward && t.call.Skips(0) {
		return nil
	}
	in, out := t.in[0].Shape, t.out.Shape
	sums := make([]float64, t.in[0].Elements())
	for i := range int(t.out.Elements()) {
		c, ox, oy, n := i%out[3], i/out[3]%out[2], i/out[3]/out[2]%out[1], i/out[3]/out[2]/out[1]
		sum := 0.0
		sources(oy, ox, func(y, x int, weight float64) {
			at := ((n*in[1]+y)*in[2]+x)*in[3] + c
			switch {
			case weight == 0:
			case forward:
				sum += weight * float64(t.x[0][at])
			default:
				sums[at] += weight * float64(t.dy[i])
			}
		})
		if forward {
			t.y[i] = float32(sum)
		}
	}
	if !forward {
		store(t.dx[0], sums, t.call.Adds(0))
	}
	return nil
}
