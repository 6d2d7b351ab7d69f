package ref

import "plimsoll/kernels"

// convTranspose is the gradient of a convolution: y[n, iy*s-p+ky*d, ix*s-p+kx*d, o] += x[n,iy,ix,c] w[c,ky,kx,o].
func convTranspose(t *tensors) error {
	call, roles := t.call.AdjointCall()
	a := &tensors{call: call, in: call.In, out: t.in[0], params: t.params, dparams: t.dparams, x: make([][]float32, 1), dx: make([][]float32, 1)}
	of := map[kernels.Role][]float32{kernels.X: t.x[0], kernels.Y: t.y, kernels.DX: t.dx[0], kernels.DY: t.dy}
	a.x[0], a.y, a.dx[0], a.dy = of[roles[kernels.X]], of[roles[kernels.Y]], of[roles[kernels.DX]], of[roles[kernels.DY]]
	if t.call.Pass != kernels.BackwardInput {
		return conv(call.Op.(kernels.Conv2D), a)
	}
	if t.call.Skips(0) {
		return nil
	}
	sums := make([]float64, len(a.y))
	convRuns(call.Op.(kernels.Conv2D), a, func(o, i, j, n int) {
		for k := range n {
			sums[o] += float64(a.x[0][i+k]) * float64(a.params[0][j+k])
		}
	})
	store(a.y, sums, t.call.Adds(0))
	return nil
}
