package ref

import (
	"math"

	"plimsoll/kernels"
)

// grouped is the input of a GroupNorm and what its groups are normalized by.
type grouped struct {
	*tensors
	op               kernels.GroupNorm
	channels, sample int
	n                float64   // elements of a group
	mean, inverse    []float64 // of each group of each sample
}

// groupNorm is y = w (x-mean)/std + b, mean and std being those of a sample's group of channels.
func groupNorm(op kernels.GroupNorm, t *tensors) error {
	shape := t.in[0].Shape
	g := grouped{tensors: t, op: op, channels: shape[len(shape)-1], sample: int(t.in[0].Elements()) / shape[0]}
	g.n, g.mean, g.inverse = float64(g.sample/op.Groups), make([]float64, shape[0]*op.Groups), make([]float64, shape[0]*op.Groups)
	for i, v := range t.x[0] {
		g.mean[g.group(i)] += float64(v) / g.n
	}
	for i, v := range t.x[0] {
		d := float64(v) - g.mean[g.group(i)]
		g.inverse[g.group(i)] += d * d / g.n
	}
	for k, variance := range g.inverse {
		g.inverse[k] = 1 / math.Sqrt(variance+float64(op.Epsilon))
	}
	if t.call.Pass == kernels.Forward {
		g.forward()
	} else {
		g.backward()
	}
	return nil
}

// group returns the group that element i is in, of those of all samples.
func (g *grouped) group(i int) int {
	return i/g.sample*g.op.Groups + i%g.channels/(g.channels/g.op.Groups)
}

// normal returns element i of the input, normalized.
func (g *grouped) normal(i int) float64 {
	return (float64(g.x[0][i]) - g.mean[g.group(i)]) * g.inverse[g.group(i)]
}

func (g *grouped) weight(i int) float64 {
	if g.op.Plain {
		return 1
	}
	return float64(g.params[0][i%g.channels])
}

func (g *grouped) forward() {
	for i := range g.y {
		v := g.normal(i) * g.weight(i)
		if !g.op.Plain {
			v += float64(g.params[1][i%g.channels])
		}
		g.y[i] = float32(v)
	}
	for k := range g.saved[0] {
		of := g.group(k/g.channels*g.sample + k%g.channels)
		g.saved[0][k], g.saved[1][k] = float32(g.mean[of]), float32(g.inverse[of])
	}
}

// backward computes, with h = (x-mean)/std and u = w dy:
//
//	dw = Σ dy h, db = Σ dy, dx = (u - Σ u/n - h Σ u h/n)/std
//
// The two sums of dx are over a group.
func (g *grouped) backward() {
	dw, db := make([]float64, g.channels), make([]float64, g.channels)
	us, hs := make([]float64, len(g.mean)), make([]float64, len(g.mean))
	for i, v := range g.dy {
		dy, of := float64(v), g.group(i)
		dw[i%g.channels] += dy * g.normal(i)
		db[i%g.channels] += dy
		us[of] += dy * g.weight(i) / g.n
		hs[of] += dy * g.weight(i) * g.normal(i) / g.n
	}
	for i, v := range g.dy {
		if of := g.group(i); !g.call.Skips(0) {
			put(&g.dx[0][i], g.inverse[of]*(float64(v)*g.weight(i)-us[of]-g.normal(i)*hs[of]), g.call.Adds(0))
		}
	}
	if !g.op.Plain {
		store(g.dparams[0], dw, g.call.AddParams)
		store(g.dparams[1], db, g.call.AddParams)
	}
}
