package ref

import (
	"fmt"

	"plimsoll/kernels"
)

// rearrange is elements in another order; the gradient is 0 where none was taken.
func rearrange(op kernels.Rearrange, t *tensors) error {
	if t.call.Pass != kernels.Forward {
		if t.call.Skips(0) {
			return nil
		}
		reset(t.dx[0], t.call.Adds(0))
	}
	loops := op.Used()
	for i := range int(t.out.Elements()) {
		at, rest := op.From, i
		for k := len(loops) - 1; k >= 0; k-- {
			at, rest = at+rest%loops[k].N*loops[k].Stride, rest/loops[k].N
		}
		if t.call.Pass == kernels.Forward {
			t.y[i] = t.x[0][at]
		} else {
			put(&t.dx[0][at], float64(t.dy[i]), t.call.Adds(0))
		}
	}
	return nil
}

// bias is x + w, w of the last axes.
func bias(t *tensors) error {
	return trailing(t, func(x, w float64) float64 { return x + w }, nil)
}

// scale is x * w, w of the last axes.
func scale(t *tensors) error {
	return trailing(t, func(x, w float64) float64 { return x * w }, t.x[0])
}

// trailing applies a function of an element and its weight. The gradient of an element is dy times its weight, or times one where x is
// nil, as that of a weight is the sum of dy times x.
func trailing(t *tensors, f func(x, w float64) float64, x []float32) error {
	w := t.params[0]
	if t.call.Pass == kernels.Forward {
		for i, v := range t.x[0] {
			t.y[i] = float32(f(float64(v), float64(w[i%len(w)])))
		}
		return nil
	}
	sums := make([]float64, len(t.dparams[0]))
	for i, dy := range t.dy {
		g, by := float64(dy), 1.0
		if x != nil {
			by = float64(x[i])
		}
		sums[i%len(sums)] += g * by
		if t.call.Skips(0) {
			continue
		}
		if x != nil {
			g *= float64(w[i%len(w)])
		}
		put(&t.dx[0][i], g, t.call.Adds(0))
	}
	store(t.dparams[0], sums, t.call.AddParams)
	return nil
}

// addRows adds a row of the weight to each position.
func addRows(op kernels.AddRows, t *tensors) error {
	length, width := t.in[0].Shape[1], t.in[0].Shape[2]
	sums := make([]float64, op.Rows*width)
	for i := range int(t.out.Elements()) {
		at := (op.First+op.Step*(i/width%length))*width + i%width
		if t.call.Pass == kernels.Forward {
			t.y[i] = t.x[0][i] + t.params[0][at]
			continue
		}
		sums[at] += float64(t.dy[i])
		if !t.call.Skips(0) {
			put(&t.dx[0][i], float64(t.dy[i]), t.call.Adds(0))
		}
	}
	if t.call.Pass != kernels.Forward {
		store(t.dparams[0], sums, t.call.AddParams)
	}
	return nil
}

// prepend is the weight, and then the sample.
func prepend(t *tensors) error {
	first, sample := int(t.call.Op.Params(t.in)[0].Desc.Elements()), int(t.in[0].Elements())/t.in[0].Shape[0]
	sums := make([]float64, first)
	for i := range int(t.out.Elements()) {
		n, at := i/(first+sample), i%(first+sample)
		from := n*sample + at - first
		switch {
		case t.call.Pass == kernels.Forward && at < first:
			t.y[i] = t.params[0][at]
		case t.call.Pass == kernels.Forward:
			t.y[i] = t.x[0][from]
		case at < first:
			sums[at] += float64(t.dy[i])
		case !t.call.Skips(0):
			put(&t.dx[0][from], float64(t.dy[i]), t.call.Adds(0))
		}
	}
	if t.call.Pass != kernels.Forward {
		store(t.dparams[0], sums, t.call.AddParams)
	}
	return nil
}

// gate is x times the factor of its sample and channel.
func gate(t *tensors) error {
	channels := t.in[0].Shape[len(t.in[0].Shape)-1]
	sample := int(t.in[0].Elements()) / t.in[0].Shape[0]
	factor := func(i int) int { return i/sample*channels + i%channels }
	if t.call.Pass == kernels.Forward {
		for i, v := range t.x[0] {
			t.y[i] = v * t.x[1][factor(i)]
		}
		return nil
	}
	sums := make([]float64, len(t.x[1]))
	for i, dy := range t.dy {
		sums[factor(i)] += float64(dy) * float64(t.x[0][i])
		if !t.call.Skips(0) {
			put(&t.dx[0][i], float64(dy)*float64(t.x[1][factor(i)]), t.call.Adds(0))
		}
	}
	if !t.call.Skips(1) {
		store(t.dx[1], sums, t.call.Adds(1))
	}
	return nil
}

// arrangement returns the function that computes an op of this file.
func arrangement(op kernels.Op, t *tensors) (func() error, error) {
	switch op := op.(type) {
	case kernels.Rearrange:
		return func() error { return rearrange(op, t) }, nil
	case kernels.Bias:
		return func() error { return bias(t) }, nil
	case kernels.Scale:
		return func() error { return scale(t) }, nil
	case kernels.AddRows:
		return func() error { return addRows(op, t) }, nil
	case kernels.Prepend:
		return func() error { return prepend(t) }, nil
	case kernels.Gate:
		return func() error { return gate(t) }, nil
	case kernels.Affine:
		return func() error { return affine(float64(op.Factor), float64(op.Plus), t) }, nil
	case kernels.Pointwise:
		return func() error { return pointwise(op, t) }, nil
	case kernels.GroupNorm:
		return func() error { return groupNorm(op.Defaults(), t) }, nil
	case kernels.ConvTranspose2D:
		return func() error { return convTranspose(t) }, nil
	}
	return nil, fmt.Errorf("%s: %w", op.Kind(), kernels.NoKernel("kernels/ref"))
}

// affine is factor*x + plus; its slope is the factor.
func affine(factor, plus float64, t *tensors) error {
	if t.call.Pass == kernels.Forward {
		for i, v := range t.x[0] {
			t.y[i] = float32(factor*float64(v) + plus)
		}
		return nil
	}
	for i := range t.dx[0] {
		put(&t.dx[0][i], factor*float64(t.dy[i]), t.call.Adds(0))
	}
	return nil
}
