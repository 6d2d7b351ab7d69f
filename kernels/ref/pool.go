package ref

import (
	"fmt"

	"plimsoll/kernels"
)

// window calls f with the flat index of every element of x, padding excluded, that output y reads.
func window(op kernels.AvgPool, t *tensors, y int, f func(x int)) {
	in, out := t.in[0].Shape, t.out.Shape
	c, ox, oy, n := y%in[3], y/in[3]%out[2], y/in[3]/out[2]%out[1], y/in[3]/out[2]/out[1]
	for ky := range op.KernelH {
		for kx := range op.KernelW {
			iy, ix := oy*op.StrideH-op.PadH+ky, ox*op.StrideW-op.PadW+kx
			if iy >= 0 && iy < in[1] && ix >= 0 && ix < in[2] {
				f(((n*in[1]+iy)*in[2]+ix)*in[3] + c)
			}
		}
	}
}

// maxPool takes the first maximum of each window; a NaN counts as larger than anything. Saved is its flat index.
func maxPool(op kernels.MaxPool, t *tensors) error {
	if t.call.Pass != kernels.Forward {
		return maxPoolBackward(t)
	}
	x, index := t.x[0], integers(t.saved[0])
	for y := range t.y {
		best := -1
		window(kernels.AvgPool(op), t, y, func(i int) {
			if best < 0 || x[i] > x[best] || x[i] != x[i] {
				best = i
			}
		})
		t.y[y] = x[best]
		if index != nil {
			index[y] = int32(best)
		}
	}
	return nil
}

func maxPoolBackward(t *tensors) error {
	if t.call.Skips(0) {
		return nil
	}
	reset(t.dx[0], t.call.Adds(0))
	for y, i := range integers(t.saved[0]) {
		if i < 0 || int(i) >= len(t.dx[0]) {
			return fmt.Errorf("maxpool: saved index %d is not within %v", i, t.in[0])
		}
		t.dx[0][i] += t.dy[y]
	}
	return nil
}

// avgPool takes the mean of each window, padding counted as zeros unless op says otherwise.
func avgPool(op kernels.AvgPool, t *tensors) error {
	area := func(y int) float64 {
		column, row := y/t.out.Shape[3]%t.out.Shape[2], y/t.out.Shape[3]/t.out.Shape[2]%t.out.Shape[1]
		return float64(op.Area(t.in[0], row, column))
	}
	if t.call.Pass == kernels.Forward {
		for y := range t.y {
			var sum float64
			window(op, t, y, func(x int) { sum += float64(t.x[0][x]) })
			t.y[y] = float32(sum / area(y))
		}
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	reset(t.dx[0], t.call.Adds(0))
	for y, g := range t.dy {
		window(op, t, y, func(x int) { t.dx[0][x] += float32(float64(g) / area(y)) })
	}
	return nil
}

// globalAvgPool takes the mean over H and W.
func globalAvgPool(t *tensors) error {
	s := t.in[0].Shape
	c, area := s[3], s[1]*s[2]
	if t.call.Pass == kernels.Forward {
		sums := make([]float64, len(t.y))
		for i, v := range t.x[0] {
			sums[i/(area*c)*c+i%c] += float64(v) / float64(area)
		}
		store(t.y, sums, false)
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	for i := range t.dx[0] {
		put(&t.dx[0][i], float64(t.dy[i/(area*c)*c+i%c])/float64(area), t.call.Adds(0))
	}
	return nil
}

// adaptiveAvgPool takes the mean of each of the windows into which it cuts an image.
func adaptiveAvgPool(op kernels.AdaptiveAvgPool, t *tensors) error {
	forward := t.call.Pass == kernels.Forward
	if !forward && t.call.Skips(0) {
		return nil
	}
	if !forward {
		reset(t.dx[0], t.call.Adds(0))
	}
	in := t.in[0].Shape
	for y := range t.out.Elements() {
		ox, oy := int(y)%op.OutW, int(y)/op.OutW%op.OutH
		c, n := int(y)/(op.OutH*op.OutW)%in[3], int(y)/(op.OutH*op.OutW*in[3])
		top, bottom := cut(oy, in[1], op.OutH)
		left, right := cut(ox, in[2], op.OutW)
		area, sum := float64((bottom-top)*(right-left)), 0.0
		for iy := top; iy < bottom; iy++ {
			for ix := left; ix < right; ix++ {
				x := ((n*in[1]+iy)*in[2]+ix)*in[3] + c
				if forward {
					sum += float64(t.x[0][x])
				} else {
					put(&t.dx[0][x], float64(t.dy[y])/area, true)
				}
			}
		}
		if forward {
			t.y[y] = float32(sum / area)
		}
	}
	return nil
}

// cut returns where window i begins and ends when an axis is cut into so many.
func cut(i, extent, windows int) (from, to int) {
	return i * extent / windows, ((i+1)*extent + windows - 1) / windows
}
