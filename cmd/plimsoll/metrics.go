package main

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"plimsoll/executor/checkpoint"
	"plimsoll/executor/train"
	"plimsoll/models/data"
)

// metrics are the figures of a run for Prometheus.
type metrics struct {
	registry *prometheus.Registry
	job      *train.Job

	step, loss, accuracy, rate, norm, stepSeconds, peak prometheus.Gauge
	testLoss, testAccuracy                              prometheus.Gauge
	testMeanIoU                                         prometheus.Gauge // nil where images have no masks
	samples, dataWait, skipped, checkpoints, failed     prometheus.Counter
	images, tokens                                      prometheus.Counter // nil of models of other samples
}

// newMetrics makes the metrics of a run that has not begun.
func newMetrics(r *train.Run) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), job: r.Job}
	m.step = m.gauge("step", "Steps done.")
	m.gauge("steps", "Steps of the whole run.").Set(float64(r.Steps))
	m.loss = m.gauge("loss", "Loss of the latest step.")
	m.accuracy = m.gauge("accuracy", "Accuracy in the batch of the latest step, 0 to 1.")
	m.testLoss = m.gauge("test_loss", "Loss on the held-out samples at the latest evaluation.")
	m.testAccuracy = m.gauge("test_accuracy", "Accuracy on the held-out samples at the latest evaluation, 0 to 1.")
	if data.Masked(r.Job.Set) {
		m.testMeanIoU = m.gauge("test_mean_iou", "Mean IoU on the held-out masks at the latest evaluation, 0 to 1.")
	}
	m.rate = m.gauge("lr", "Learning rate of the latest step.")
	m.norm = m.gauge("gradient_norm", "Norm of all gradients together, before clipping.")
	m.stepSeconds = m.gauge("step_seconds", "Wall time of the latest step.")
	m.gauge("predicted_step_seconds", "Predicted time of a step.").Set(r.Plan.PredictedSeconds())
	m.peak = m.gauge("peak_bytes", "Peak memory of the latest step, weights included.")
	m.gauge("limit_bytes", "Memory limit of the arena.").Set(float64(r.Plan.Limit))
	m.samples = m.counter("samples_total", "Training samples since this process started.")
	if r.Job.Tokens() > 0 {
		m.tokens = m.counter("tokens_total", "Training tokens since this process started.")
	} else if r.Job.SampleSize().OfImages() {
		m.images = m.counter("images_total", "Training images since this process started.")
	}
	m.dataWait = m.counter("data_wait_seconds_total", "Time that steps waited for data.")
	m.skipped = m.counter("skipped_total", "Steps that were skipped because their gradients were not finite.")
	m.checkpoints = m.counter("checkpoints_total", "Checkpoints saved.")
	m.failed = m.counter("checkpoints_failed_total", "Checkpoints that could not be saved.")
	if r.Plan.IsPipeline() {
		if shares := m.gauge("shared_processors", "1: devices share processors; 0: each has its own."); r.SharedProcessors() != nil {
			shares.Set(1)
		}
		m.devices(r.Plan)
	}
	if r.From != nil {
		m.step.Set(float64(r.From.Step))
	}
	return m
}

const namespace = "plimsoll"

// devices sets the memory of each device of a pipeline.
func (m *metrics) devices(p *train.JobPlan) {
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, []string{"device"})
		m.registry.MustRegister(g)
		return g
	}
	peak := gauge("device_peak_bytes", "Predicted peak memory of each device, weights included.")
	extent := gauge("device_extent_bytes", "Memory of each device that is laid out, with what lies between blocks.")
	for d, need := range p.Needs {
		peak.WithLabelValues(strconv.Itoa(d)).Set(float64(need.Peak))
		extent.WithLabelValues(strconv.Itoa(d)).Set(float64(need.Extent))
	}
}

func (m *metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(g)
	return g
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *metrics) record(r train.Record) {
	m.step.Set(float64(r.Step + 1))
	m.loss.Set(float64(r.Loss))
	m.accuracy.Set(float64(r.Accuracy))
	m.rate.Set(r.Rate)
	m.norm.Set(float64(r.Norm))
	m.stepSeconds.Set(r.Seconds)
	m.peak.Set(float64(r.PeakBytes))
	samples := m.job.Images()
	m.samples.Add(float64(samples))
	if m.tokens != nil {
		m.tokens.Add(float64(samples * m.job.Tokens()))
	} else if m.images != nil {
		m.images.Add(float64(samples))
	}
	m.dataWait.Add(r.DataWaitS)
	if r.Skipped {
		m.skipped.Inc()
	}
}

func (m *metrics) eval(e train.Evaluation) {
	m.testLoss.Set(float64(e.Loss))
	m.testAccuracy.Set(float64(e.Accuracy))
	if e.MeanIoU != nil {
		m.testMeanIoU.Set(*e.MeanIoU)
	}
}

func (m *metrics) saved(_ int, err error) {
	if err == nil || errors.Is(err, checkpoint.ErrNotRemoved) {
		m.checkpoints.Inc()
	} else {
		m.failed.Inc()
	}
}
