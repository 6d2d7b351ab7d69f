package train

import (
	"context"
	"math"
	"slices"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/parallel"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
)

// Score is how a model does on held-out samples.
type Score struct {
	Correct int
	Samples int     // of text its tokens, of images with masks their pixels, those that count; of targets all
	Loss    float64 // the sum over the samples
	// Criterion is the loss. Samples count targets where it is one of elements.
	Criterion kernels.Criterion
	// Both, Either are, by class, the pixels that are of it and predicted so, and those of which one of the two holds; nil where images
	// have no masks.
	Both, Either []int
}

// Accuracy returns the share of correct predictions, not a number where the loss predicts nothing.
func (s Score) Accuracy() float64 { return accuracy(s.Criterion, s.Correct, s.Samples) }

func accuracy(c kernels.Criterion, correct, of int) float64 {
	if !c.Predicts() {
		return math.NaN()
	}
	return float64(correct) / float64(max(of, 1))
}

// MeanLoss returns the loss of a sample.
func (s Score) MeanLoss() float64 { return s.Loss / float64(max(s.Samples, 1)) }

// newScore counts nothing yet.
func newScore(set data.Dataset, c models.Config) (s Score) {
	s.Criterion = c.Loss
	if data.Masked(set) {
		s.Both, s.Either = make([]int, c.Classes), make([]int, c.Classes)
	}
	return s
}

// MeanIoU returns the mean intersection over union of the classes. The share of a class is the pixels that have it and are predicted
// so, over the pixels of which either holds. A class without either is left out. The result is nil if images have no masks.
func (s Score) MeanIoU() *float64 {
	if s.Either == nil {
		return nil
	}
	sum, classes := 0.0, 0
	for c, either := range s.Either {
		if either > 0 {
			sum += float64(s.Both[c]) / float64(either)
			classes++
		}
	}
	mean := sum / float64(max(classes, 1))
	return &mean
}

// score lets an executor of a workload predict every test sample once; the last batch is filled up, and what fills it does not count.
func (j *Job) score(ctx context.Context, by *pipe.Executor, w *executor.Workload) (Score, error) {
	s := newScore(j.Set, j.Config)
	batches, err := j.loader(ctx, w, data.Test, 0)
	if err != nil {
		return s, err
	}
	defer batches.Close()
	x := &examiner{from: batches, labels: j.labels()}
	err = by.Evaluate(ctx, x, int(j.test.Steps()), func(_ int, logits []float32) error {
		if len(x.sheets) == 0 { // another process has the images
			if err := x.Images(0, make([]float32, j.pixels())); err != nil {
				return err
			}
		}
		sheet := x.sheets[0]
		x.sheets = x.sheets[1:]
		labels := sheet.labels[:sheet.fresh*data.Labels(j.Set)]
		if s.Criterion == kernels.CrossEntropy {
			s.addAll(logits, labels, j.Config.Classes)
		} else {
			s.addTargets(logits, labels)
		}
		return nil
	})
	return s, err
}

// addAll counts the predictions that there are labels for. All processors look at logits; what they find is added up in the order of the
// labels.
func (s *Score) addAll(logits []float32, labels []int32, classes int) {
	found := make([]prediction, len(labels))
	parallel.Ranges(len(labels), max(1, leastLogits/classes), func(from, to int) {
		for i := from; i < to; i++ {
			if labels[i] != data.Ignored {
				found[i] = predict(logits[i*classes:(i+1)*classes], int(labels[i]))
			}
		}
	})
	for i, label := range labels {
		if label != data.Ignored {
			s.add(found[i], int(label))
		}
	}
}

// addTargets counts the outputs that there are targets for, which are bits of float32.
func (s *Score) addTargets(outputs []float32, targets []int32) {
	for i, bits := range targets {
		x, target := outputs[i], math.Float32frombits(uint32(bits))
		s.Samples++
		s.Loss += s.Criterion.Loss(float64(x), float64(target))
		if s.Criterion.Right(x, target) && x-x == 0 {
			s.Correct++
		}
	}
}

// leastLogits are so many that a goroutine for them is worth its start.
const leastLogits = 1 << 14

// prediction is the class that logits predict, and their cross entropy.
type prediction struct {
	class int // nothing where logits are not finite
	loss  float64
}

func predict(logits []float32, label int) prediction {
	best := argmax(logits)
	p := prediction{best, crossEntropy(logits, logits[best], label)}
	if !allFinite(logits) {
		p.class = nothing
	}
	return p
}

// add counts one prediction.
func (s *Score) add(p prediction, label int) {
	s.Samples++
	s.Loss += p.loss
	if p.class == label {
		s.Correct++
	}
	if s.Either != nil {
		s.count(p.class, label)
	}
}

// nothing is the prediction of logits that predict no class.
const nothing = -1

// allFinite reports whether no logit is infinite or not a number.
func allFinite(logits []float32) bool {
	return !slices.ContainsFunc(logits, func(x float32) bool { return x-x != 0 })
}

// count counts a pixel.
func (s *Score) count(predicted, label int) {
	s.Either[label]++
	switch predicted {
	case label:
		s.Both[label]++
	case nothing:
	default:
		s.Either[predicted]++
	}
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
