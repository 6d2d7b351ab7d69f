package train

import (
	"context"
	"errors"
	"io"
	"math"

	"plimsoll/models/data"
)

// Score is how a model does on held-out samples.
type Score struct {
	Correct int
	Samples int     // of text its tokens
	Loss    float64 // cross entropy, the sum over the samples
}

// Accuracy returns the share of correct predictions.
func (s Score) Accuracy() float64 { return float64(s.Correct) / float64(max(s.Samples, 1)) }

// MeanLoss returns the cross entropy of a sample.
func (s Score) MeanLoss() float64 { return s.Loss / float64(max(s.Samples, 1)) }

// Evaluate predicts every test sample once; the last batch is filled up, and what fills it does not count.
func (r *Runner) Evaluate(ctx context.Context) (Score, error) {
	var s Score
	batches, err := r.loader(ctx, data.Test, 0)
	if err != nil {
		return s, err
	}
	defer batches.Close()
	r.Swap() // the other batch may be that of the next step
	defer r.Swap()
	classes := r.job.Config.Classes
	logits := make([]float32, r.job.labels()*classes)
	for {
		fresh, labels, err := batches.next()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		if err := r.Predict(logits); err != nil {
			return s, err
		}
		s.addAll(logits, labels[:fresh*data.Labels(r.job.Set)], classes)
	}
}

// addAll counts the predictions that there are labels for.
func (s *Score) addAll(logits []float32, labels []int32, classes int) {
	for i, label := range labels {
		s.add(logits[i*classes:(i+1)*classes], int(label))
	}
}

// add counts one prediction.
func (s *Score) add(logits []float32, label int) {
	best := argmax(logits)
	if best == label {
		s.Correct++
	}
	s.Samples++
	s.Loss += crossEntropy(logits, logits[best], label)
}

// crossEntropy returns log(sum(exp(x))) - x[label]; the largest of x is taken out of the sum first, so that it is finite.
func crossEntropy(x []float32, largest float32, label int) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - float64(largest))
	}
	return math.Log(sum) - (float64(x[label]) - float64(largest))
}

// argmax returns the first of the largest values.
func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}
