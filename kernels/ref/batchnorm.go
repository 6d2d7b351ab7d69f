package ref

import (
	"math"

	"plimsoll/kernels"
)

// batchNorm is y = relu(w (x-mean)/std + b + residual) by channel.
func batchNorm(op kernels.BatchNorm, t *tensors) error {
	if t.call.Pass == kernels.Forward {
		batchNormForward(op, t)
	} else {
		batchNormBackward(op, t)
	}
	return nil
}

func batchNormForward(op kernels.BatchNorm, t *tensors) {
	c := len(t.params[0])
	mean, inverse := statistics(op, t)
	for i := range t.y {
		k := i % c
		v := (float64(t.x[0][i])-float64(mean[k]))*float64(inverse[k])*float64(t.params[0][k]) + float64(t.params[1][k])
		if op.Residual {
			v += float64(t.x[1][i])
		}
		if op.ReLU && v < 0 {
			v = 0
		}
		t.y[i] = float32(v)
	}
}

// statistics returns mean and 1/std: in training of the batch, and it saves them, in evaluation the running ones.
func statistics(op kernels.BatchNorm, t *tensors) (mean, inverse []float32) {
	c := len(t.params[0])
	inverse = make([]float32, c)
	if t.call.Train && !op.Frozen {
		mean = make([]float32, c)
		batchStatistics(op, t, mean, inverse)
		copy(t.saved[0], mean)
		copy(t.saved[1], inverse)
		return mean, inverse
	}
	for k := range inverse {
		inverse[k] = float32(1 / math.Sqrt(float64(t.params[3][k])+epsilon(op)))
	}
	return t.params[2], inverse
}

// batchStatistics computes mean and 1/std of the batch and, when asked to, moves the running statistics.
func batchStatistics(op kernels.BatchNorm, t *tensors, mean, inverse []float32) {
	c := len(mean)
	n := float64(len(t.x[0]) / c)
	means := columns(t.x[0], c)
	variances := make([]float64, c)
	for k := range means {
		means[k] /= n
	}
	for i, v := range t.x[0] {
		d := float64(v) - means[i%c]
		variances[i%c] += d * d
	}
	momentum := float64(op.Momentum)
	if op.Momentum == 0 {
		momentum = 0.1
	}
	for k := range c {
		mean[k] = float32(means[k])
		inverse[k] = float32(1 / math.Sqrt(variances[k]/n+epsilon(op)))
		if t.call.UpdateStats && finite(means[k]) && finite(variances[k]) {
			move(&t.params[2][k], rounded(means[k]), momentum)
			move(&t.params[3][k], rounded(variances[k]/max(n-1, 1)), momentum)
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// rounded is a statistic as a row of kernels.Moments holds it.
func rounded(x float64) float64 { return float64(float32(x)) }

func move(running *float32, batch, momentum float64) {
	*running = float32((1-momentum)*float64(*running) + momentum*batch)
}

func epsilon(op kernels.BatchNorm) float64 {
	if op.Epsilon == 0 {
		return 1e-5
	}
	return float64(op.Epsilon)
}

// batchNormBackward computes, with g = dy where the output is positive, and h = (x-mean)/std:
//
//	db = Σ g, dw = Σ g h, d residual = g, dx = w/std (g - db/n - h dw/n)
//
// In evaluation mean and std do not depend on x, and dx = w/std g.
func batchNormBackward(op kernels.BatchNorm, t *tensors) {
	c := len(t.params[0])
	n := float64(len(t.dy) / c)
	var mean, inverse []float32
	if t.call.Train && !op.Frozen {
		mean, inverse = t.saved[0], t.saved[1]
	} else {
		mean, inverse = statistics(op, t)
		n = math.Inf(1)
	}
	h := func(i int) float64 { return (float64(t.x[0][i]) - float64(mean[i%c])) * float64(inverse[i%c]) }
	g := func(i int) float64 {
		if op.ReLU {
			return masked(t.dy[i], t.y[i])
		}
		return float64(t.dy[i])
	}
	db, dw := make([]float64, c), make([]float64, c)
	for i := range t.dy {
		db[i%c] += g(i)
		dw[i%c] += g(i) * h(i)
	}
	for i := range t.dy {
		k := i % c
		grad := g(i)
		dx := float64(t.params[0][k]) * float64(inverse[k]) * (grad - db[k]/n - h(i)*dw[k]/n)
		if op.Residual && !t.call.Skips(1) {
			put(&t.dx[1][i], grad, t.call.Adds(1))
		}
		if !t.call.Skips(0) {
			put(&t.dx[0][i], dx, t.call.Adds(0))
		}
	}
	store(t.dparams[0], dw, t.call.AddParams)
	store(t.dparams[1], db, t.call.AddParams)
}
