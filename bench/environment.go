package bench

import (
	"fmt"
	"math"
	"strings"

	"plimsoll/bench/report"
	"plimsoll/executor/train"
)

// Environment returns the facts of a job as a page states them.
func Environment(j *train.Job) []report.Fact {
	facts := []report.Fact{
		{Name: "model", Value: fmt.Sprintf("%s, %d layers with the loss, %d parameters, %s activations", j.Model, len(j.Work.Layers), j.Work.Model.ParamCount(), j.Work.Model.DType())},
		{Name: "batch", Value: batch(j)}, {Name: "data", Value: j.Data}, {Name: "optimizer", Value: strings.TrimPrefix(fmt.Sprintf("%T%+v", j.Update, j.Update), "kernels.")},
		{Name: "device", Value: fmt.Sprintf("%s, %s", j.Devices, j.Device.Model)}, {Name: "seed", Value: fmt.Sprint(j.Seed)},
	}
	if j.Kernels.Threads > 0 {
		facts = append(facts, report.Fact{Name: "threads", Value: fmt.Sprint(j.Kernels.Threads)})
	}
	return facts
}

// weights is the fact of what a run has trained, to the bit.
func weights(s *train.Summary) report.Fact {
	return report.Fact{Name: "weights", Value: "sha256 " + s.WeightsSHA256}
}

// batch says what a step takes in.
func batch(j *train.Job) string {
	text := j.Samples(j.Images())
	if j.Parts > 1 {
		text += fmt.Sprintf(" in %d parts", j.Parts)
	}
	if j.Microbatches > 1 {
		text += fmt.Sprintf(" in %d microbatches", j.Microbatches)
	}
	if shape := j.Set.Shape(); len(shape) == 3 {
		text += fmt.Sprintf(" of %dx%dx%d", shape[0], shape[1], shape[2])
	}
	return text
}

// figures returns the final figures of a run, without those that are no number.
func figures(s *train.Summary) (all []report.Figure) {
	iou := math.NaN()
	if s.MeanIoU != nil {
		iou = *s.MeanIoU
	}
	for _, f := range append([]report.Figure{
		{Name: "steps", Value: float64(s.Steps)}, {Name: "loss of the last step", Value: float64(s.Loss)},
		{Name: "loss, held out", Value: float64(s.TestLoss)}, {Name: "accuracy, held out", Value: float64(s.Accuracy), Unit: report.Share},
		{Name: "mean IoU, held out", Value: iou, Unit: report.Share},
		{Name: "step, predicted", Value: s.PredictedS, Unit: report.Seconds}, {Name: "step, measured", Value: s.MeasuredS, Unit: report.Seconds},
		{Name: "error of the prediction", Value: report.TimeError(s.PredictedS, s.MeasuredS), Unit: report.Share},
		{Name: "drift of ops since the profile", Value: drift(s.Drift).Factor}, {Name: "error without drift", Value: drift(s.Drift).Error, Unit: report.Share},
		throughput(s), {Name: "waited for data", Value: s.DataWaitShare, Unit: report.Share},
		{Name: "limit", Value: float64(s.LimitBytes), Unit: report.Bytes}, {Name: "peak, predicted", Value: float64(s.PredictedPeakBytes), Unit: report.Bytes},
		{Name: "peak, measured", Value: float64(s.MeasuredPeakBytes), Unit: report.Bytes}, {Name: "arena, laid out", Value: float64(s.ExtentBytes), Unit: report.Bytes},
		{Name: "host memory", Value: float64(s.HostBytes), Unit: report.Bytes},
	}, idle(s.Idle)...) {
		if !math.IsNaN(f.Value) && !math.IsInf(f.Value, 0) && !(f.Name == "peak, measured" && f.Value == 0) {
			all = append(all, f)
		}
	}
	return all
}

// throughput returns the samples that a run trained in a second: tokens of a language model, else images.
func throughput(s *train.Summary) report.Figure {
	if s.TokensPerS > 0 {
		return report.Figure{Name: "tokens per second", Value: s.TokensPerS}
	}
	return report.Figure{Name: "images per second", Value: s.ImagesPerS}
}

// drift returns the drift of a run, not-a-numbers where it is not known.
func drift(d *train.Drift) train.Drift {
	if d == nil {
		return train.Drift{Factor: math.NaN(), Error: math.NaN()}
	}
	return *d
}

// idle returns the share of the steps in which the device computed nothing, and why; nothing where that is not known.
func idle(i *train.Idle) []report.Figure {
	if i == nil {
		return nil
	}
	return []report.Figure{
		{Name: "device idle", Value: i.Share, Unit: report.Share},
		{Name: "idle: no data yet", Value: i.Data, Unit: report.Share},
		{Name: "idle: batch copied", Value: i.Batch, Unit: report.Share},
		{Name: "idle: offloaded bytes", Value: i.Copies, Unit: report.Share},
		{Name: "idle: host", Value: i.Host, Unit: report.Share},
	}
}
