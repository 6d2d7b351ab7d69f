package ref

import "plimsoll/kernels"

// relu is max(x, 0), no more than a maximum; the gradient passes where the output is positive and less than that.
func relu(op kernels.ReLU, t *tensors) error {
	if t.call.Pass == kernels.Forward {
		for i, v := range t.x[0] {
			switch {
			case v < 0:
				v = 0
			case op.Max > 0 && v > op.Max:
				v = op.Max
			}
			t.y[i] = v
		}
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	for i, y := range t.y {
		g := masked(t.dy[i], y)
		if op.Max > 0 && y >= op.Max {
			g = 0
		}
		put(&t.dx[0][i], g, t.call.Adds(0))
	}
	return nil
}

// add is x0 + x1.
func add(t *tensors) error {
	if t.call.Pass == kernels.Forward {
		for i := range t.y {
			t.y[i] = t.x[0][i] + t.x[1][i]
		}
		return nil
	}
	for j, dx := range t.dx {
		if !t.call.Skips(j) {
			for i, g := range t.dy {
				put(&dx[i], float64(g), t.call.Adds(j))
			}
		}
	}
	return nil
}

// concat joins the rows of its inputs to those of the output.
func concat(t *tensors) error {
	width := int(kernels.JoinedRow(t.call.Op, t.out))
	rows := int(t.out.Elements()) / width
	start := 0
	for j, d := range t.in {
		part := int(d.Elements()) / rows
		for i := range int(d.Elements()) {
			joined := i/part*width + start + i%part
			switch {
			case t.call.Pass == kernels.Forward:
				t.y[joined] = t.x[j][i]
			case !t.call.Skips(j):
				put(&t.dx[j][i], float64(t.dy[joined]), t.call.Adds(j))
			}
		}
		start += part
	}
	return nil
}

// dropout keeps an element when its word of the step's stream is at least the threshold.
func dropout(op kernels.Dropout, t *tensors) error {
	from, to, add := t.x[0], t.y, false
	if t.call.Pass != kernels.Forward {
		if t.call.Skips(0) {
			return nil
		}
		from, to, add = t.dy, t.dx[0], t.call.Adds(0)
	}
	if !t.call.Train {
		for i, v := range from {
			put(&to[i], float64(v), add)
		}
		return nil
	}
	stream := kernels.NewDropoutStream(kernels.GetScalars(t.scalars), t.call.Salt)
	for i, v := range from {
		kept := 0.0
		if stream.Word(uint64(i)) >= op.Threshold() {
			kept = float64(v) / (1 - float64(op.P))
		}
		put(&to[i], kept, add)
	}
	return nil
}

// cast copies: what is bfloat16 was widened when it was read, or is rounded when it is written.
func cast(t *tensors) error {
	if t.call.Pass == kernels.Forward {
		copy(t.y, t.x[0])
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	for i, g := range t.dy {
		put(&t.dx[0][i], float64(g), t.call.Adds(0))
	}
	return nil
}
