// Package validate measures the promises of pipeline plans. It runs the plans of many strategies on several devices, and
// puts the period, the peak and the idle time of each beside what was planned.
//
// A fleet runs in one of two ways. With real kernels bytes and bits are exact. These are the memory that a run touches, and the
// weights of a step with a flush beside those of the same schedule on one device. In simulated time (Fleet.Simulated) every task
// takes just the time that the chain says, while streams, events, links and drivers are real. That shows how closely the drivers
// keep to the plan, also where the devices share the cores of one processor and real kernels would slow each other down.
package validate

import (
	"plimsoll/bench/timeline"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Case is a job on some devices, and the strategies that plan it there.
type Case struct {
	Job      *train.Job // for all of the devices: Spec.Microbatches is not 0
	Chain    *chain.Chain
	Draw     uint64             // the seed of the chain's times (Drawn); 0: they were measured
	Platform *pipeline.Platform // its memory is not looked at
	// Strategies with a flush make steps of the job's microbatches, the others minibatches of its batch.
	Strategies []pipeline.Strategy
}

// Fleet measures every strategy of every case, a job on some devices, at every limit.
type Fleet struct {
	Cases       []Case
	Limits      []units.Size // of each device's arena; shares are of what a plan without a limit needs
	Versions    pipeline.Versions
	Zero        pipeline.Zero // of plans with a flush
	Simulated   bool          // tasks take the chain's times; the devices are the processor's
	Portals     bool          // as in train.PipeRequest
	Audit       bool          // a step of each plan with a flush, unless time is simulated
	Steps       int           // of each plan with a flush
	Minibatches int           // of each other plan, in the steady state
	Rate        train.Rate
	Progress    func(done, total int) // may be nil
}

// Row is one plan: predicted beside measured. Times are seconds.
type Row struct {
	Strategy    string            `json:"strategy"`
	Devices     string            `json:"devices"`
	Limit       string            `json:"limit"`
	LimitBytes  int64             `json:"limit_bytes"`
	Draw        uint64            `json:"draw,omitempty"`
	Kind        string            `json:"kind"` // periodic or flush
	Versions    pipeline.Versions `json:"weight_versions"`
	Stages      int               `json:"stages"`
	Minibatches int               `json:"minibatches"` // of a period; microbatches of a step
	RowTimes
	PerDevice []Device `json:"per_device"`
	// Shared says that the devices compete for processors, which no prediction has; nil where each has its own, and in simulated time.
	Shared *train.SharedProcessors `json:"shared_processors,omitempty"`
	// Identical says whether the weights, buffers and optimizer states are those of the same schedule on one device, byte for
	// byte; nil where that does not apply.
	Identical  *bool  `json:"identical"`
	Difference string `json:"difference,omitempty"` // the first, when not identical

	pipe *train.JobPlan
	line *timeline.Pipeline
	from *Case
}

// RowTimes are the times of a row, and the shares in which its devices did nothing.
type RowTimes struct {
	PredictedS     float64 `json:"predicted_s"` // a period, or the makespan of a step
	MeasuredS      float64 `json:"measured_s"`
	Ratio          float64 `json:"measured_to_predicted"`
	Samples        int     `json:"samples"` // periods of which MeasuredS is the median; steps of which it is the one in the middle
	PlannedBubble  float64 `json:"predicted_bubble"`
	MeasuredBubble float64 `json:"measured_bubble"`
}

// Device is one device of a row. Idle shares are those of the steady state, or of a step.
type Device struct {
	Name               string  `json:"name"`
	PredictedIdle      float64 `json:"predicted_idle"`
	MeasuredIdle       float64 `json:"measured_idle"`
	PredictedPeakBytes int64   `json:"predicted_peak_bytes"`
	// MeasuredPeakBytes is the peak of an audited step; 0: no step was audited.
	MeasuredPeakBytes int64 `json:"measured_peak_bytes,omitempty"`
	ExtentBytes       int64 `json:"predicted_extent_bytes"` // with fragmentation: where the last tensor ends
	// TouchedBytes is the end of the highest byte that the run changed; 0 where memory cannot be looked at, and in simulated
	// time, when nothing is computed.
	TouchedBytes int64 `json:"measured_extent_bytes,omitempty"`
}

// Skip is a plan that there is not.
type Skip struct {
	Strategy string `json:"strategy"`
	Devices  string `json:"devices"`
	Limit    string `json:"limit"`
	Draw     uint64 `json:"draw,omitempty"`
	Reason   string `json:"reason"`
	err      error
}

// Duel compares two strategies wherever both ran: how often one is planned to be faster, by more than 1 %, and whether it was.
type Duel struct {
	A              string `json:"strategy"`
	B              string `json:"beside"`
	Points         int    `json:"points"`
	PlannedFaster  int    `json:"predicted_faster"`
	MeasuredFaster int    `json:"of_which_measured_faster"`
	PlannedSlower  int    `json:"predicted_slower"`
	MeasuredSlower int    `json:"of_which_measured_slower"`
}

// Report is a measured fleet.
type Report struct {
	Title     string `json:"title"`
	Simulated bool   `json:"simulated_time"`
	Model     string `json:"model"`
	Samples   int    `json:"samples"`          // of a step
	Images    int    `json:"images,omitempty"` // the same, of models of images
	models.SampleSize
	Data        string  `json:"data"`
	Device      string  `json:"device"`
	Seed        uint64  `json:"seed"`
	Note        string  `json:"note"`
	MedianError float64 `json:"median_error"` // of the predicted times, a share
	WorstError  float64 `json:"worst_error"`
	Rows        []Row   `json:"rows"`
	Skipped     []Skip  `json:"skipped"`
	Duels       []Duel  `json:"duels"` // in simulated time
}

// Notes on what measured times mean.
const (
	simulatedNote = "Simulated time: every task takes the time of the chain, on real streams with real events, messages and drivers; nothing is computed."
	updateNote    = "Measured times have the updates of the weights. Predicted ones have them where the plan has a flush."
)
