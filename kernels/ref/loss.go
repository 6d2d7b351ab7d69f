package ref

import (
	"math"

	"plimsoll/kernels"
)

// loss is SoftmaxCrossEntropy; its gradient is (softmax - onehot)/N for the N rows that count.
func loss(t *tensors) error {
	rows := int(t.in[1].Elements())
	c := int(t.in[0].Elements()) / rows
	if t.call.Pass == kernels.Forward {
		t.y[0], t.y[1], t.y[2] = lossForward(t, rows, c)
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	labels := integers(t.x[1])
	for i, x := range t.x[0] {
		if labels[i/c] == kernels.Ignored {
			put(&t.dx[0][i], 0, t.call.Adds(0))
			continue
		}
		row := t.saved[0][i/c*3:]
		g := math.Exp(float64(x)-float64(row[0])) / (float64(row[1]) + float64(row[2]))
		if int(labels[i/c]) == i%c {
			g--
		}
		put(&t.dx[0][i], g/float64(t.y[2]), t.call.Adds(0))
	}
	return nil
}

func lossForward(t *tensors, rows, c int) (mean, correct, counted float32) {
	var total float64
	labels := integers(t.x[1])
	for n := range rows {
		logits, label := t.x[0][n*c:(n+1)*c], int(labels[n])
		best := argmax(logits)
		var sum float64
		for _, v := range logits {
			sum += math.Exp(float64(v) - float64(logits[best]))
		}
		if t.saved[0] != nil {
			whole := float32(sum)
			copy(t.saved[0][3*n:], []float32{logits[best], whole, float32(sum - float64(whole))})
		}
		if label == kernels.Ignored {
			continue
		}
		counted++
		if label < 0 || label >= c {
			total = math.NaN()
			continue
		}
		total += math.Log(sum) + float64(logits[best]) - float64(logits[label])
		if best == label {
			correct++
		}
	}
	return float32(total / max(float64(counted), 1)), correct, counted
}

// argmax returns the index of the first maximum, or of a NaN.
func argmax(v []float32) int {
	best := 0
	for i := range v {
		if v[i] > v[best] || v[i] != v[i] {
			best = i
		}
	}
	return best
}

// elementLoss is the mean of a criterion over the elements; its gradient is the criterion's slope, divided by their number.
func elementLoss(of kernels.Criterion, t *tensors) error {
	targets := t.x[1]
	if t.call.Pass == kernels.Forward {
		var total float64
		t.y[1], t.y[2] = 0, float32(len(targets))
		for i, x := range t.x[0] {
			total += of.Loss(float64(x), float64(targets[i]))
			if of.Right(x, targets[i]) {
				t.y[1]++
			}
		}
		t.y[0] = float32(total / float64(len(targets)))
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	for i, x := range t.x[0] {
		put(&t.dx[0][i], criterionSlope(of, float64(x), float64(targets[i]))/float64(t.y[2]), t.call.Adds(0))
	}
	return nil
}

// criterionSlope returns the derivative of Criterion.Loss by x; that of |x - t| is 0 at 0.
func criterionSlope(of kernels.Criterion, x, target float64) float64 {
	switch d := x - target; {
	case of == kernels.MSE:
		return 2 * d
	case of == kernels.L1 && d != 0:
		return d / math.Abs(d)
	case of == kernels.L1:
		return d
	case x < 0:
		return math.Exp(x)/(1+math.Exp(x)) - target
	}
	return 1/(1+math.Exp(-x)) - target
}
