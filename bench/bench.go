// Package bench measures the promises of plans. It trains the same job along many plans, beside store-all, and
// puts the predicted and the measured time and memory of each next to each other.
//
// Nothing is simulated or assumed. A peak is measured by a step that checks every byte of the arena, and a time is the median of whole
// steps. "Identical" means two comparisons with store-all: the loss after every step, and the SHA-256 of the bytes of every weight, buffer,
// gradient and optimizer state after the last step.
package bench

import (
	"math"
	"slices"

	"plimsoll/bench/receipt"
	"plimsoll/bench/report"
	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/internal/stats"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/strategy"
)

// Limit is a memory limit with the name that it was given.
type Limit struct {
	Name  string // "50%", "4GiB"
	Bytes int64  // of the arena
}

// Grid measures every strategy at every limit.
type Grid struct {
	Job        *train.Job
	Chain      *chain.Chain // measured
	Limits     []Limit
	HostLimit  int64 // bytes of page-locked host memory of a row; 0: no limit
	Strategies []pipeline.Strategy
	Options    strategy.Options
	Steps      int // training steps of each row, from the same start
	Rate       train.Rate
	// Audit also compares every layer's output and gradient, at every op.
	Audit    bool
	Progress func(done, total int) // may be nil

	// Latest is Chain measured again by Run, in turns with the rows.
	Latest *chain.Chain

	reference string // whose bits the rows were compared with
}

// Row is one plan: predicted beside measured. Times are of one training step with its update, in seconds.
type Row struct {
	Strategy           string `json:"strategy"`
	Winner             string `json:"winner,omitempty"` // as in pipeline.Plan
	Limit              string `json:"limit"`
	LimitBytes         int64  `json:"limit_bytes"`
	DeviceBytes        int64  `json:"device_bytes,omitempty"` // of the device, where that is another one than the report's
	PredictedPeakBytes int64  `json:"predicted_peak_bytes"`
	MeasuredPeakBytes  int64  `json:"measured_peak_bytes"`
	ExtentBytes        int64  `json:"extent_bytes"` // the end of the highest byte written
	RowTimes
	StoreAllS  float64 `json:"store_all_s"` // measured in turns with this row, or before it; 0 where it has no room
	Identical  bool    `json:"identical"`
	Difference string  `json:"difference,omitempty"` // the first, when not identical
	Ops        int     `json:"ops"`
	Forwards   int     `json:"forwards"` // forward ops in a step; those beyond the layers are recomputations

	// Receipt attributes the gap between PredictedS and MeasuredS to causes.
	Receipt *receipt.Receipt `json:"receipt"`

	Plan     *pipeline.Plan    `json:"-"`
	Measured executor.Measured `json:"-"` // of the step in the middle

	times []float64 // of its steps
}

// RowTimes are the times of a row's step, and the error of the predicted one.
type RowTimes struct {
	PredictedS float64 `json:"predicted_s"` // by the costs of ops measured in turns with this row
	PlannedS   float64 `json:"planned_s"`   // by the costs that the plan was made with
	AsAloneS   float64 `json:"as_alone_s"`  // as PredictedS, if ops and copies took nothing from each other
	MeasuredS  float64 `json:"measured_s"`  // of the step in the middle
	Error      float64 `json:"error"`       // report.TimeError of the two
	// Interval is the 95 % interval of Error, from how much the steps vary.
	Interval [2]float64 `json:"error_interval"`
}

// Skip is a strategy that does not fit in a limit.
type Skip struct {
	Strategy      string `json:"strategy"`
	Limit         string `json:"limit"`
	LimitBytes    int64  `json:"limit_bytes"`
	DeviceBytes   int64  `json:"device_bytes,omitempty"` // as of a row
	SmallestBytes int64  `json:"smallest_bytes"`         // the smallest limit that works; 0 where it is host memory that is too small
	NeededBy      string `json:"needed_by"`              // the op that needs it
	Reason        string `json:"reason"`
}

// Report is a measured grid.
type Report struct {
	Model string `json:"model"`
	Batch int    `json:"batch"`
	models.SampleSize
	Data          string `json:"data"`
	Device        string `json:"device"`
	Steps         int    `json:"steps"`
	Seed          uint64 `json:"seed"`
	StoreAllBytes int64  `json:"store_all_bytes"` // what the limits are shares of
	StaticBytes   int64  `json:"static_bytes"`
	DeviceBytes   int64  `json:"device_bytes"` // of its memory
	// Reference is whose bits the rows were compared with: store-all, on a larger device where the job's has no room for it, or
	// the first row where no device has.
	Reference string `json:"reference"`
	TimeErrors
	Rows    []Row   `json:"rows"`
	Skipped []Skip  `json:"skipped"`
	Text    *Report `json:"text,omitempty"`  // of the demo, its language model
	Moved   *Moved  `json:"moved,omitempty"` // of the demo, a model whose weights do not fit its device
}

// TimeErrors are the errors of the predicted times of all rows together, as shares.
type TimeErrors struct {
	MedianError        float64 `json:"median_error"`
	MedianPlannedError float64 `json:"median_planned_error"`
	MedianAsAloneError float64 `json:"median_as_alone_error"`
	// MedianInterval is the 95 % interval of MedianError, from how much the steps vary.
	MedianInterval [2]float64 `json:"median_error_interval"`
	// Drift is the time of all ops and the update by the costs measured in turns with the rows over that by the costs before planning.
	Drift      float64 `json:"drift"`
	WorstError float64 `json:"worst_error"`
}

// sumUp finds the errors of all rows together.
func (r *Report) sumUp() {
	var errs, planned, alone []float64
	var times [][]float64
	for i := range r.Rows {
		row := &r.Rows[i]
		times = append(times, row.times)
		errs = append(errs, math.Abs(row.Error))
		alone = append(alone, math.Abs(report.TimeError(row.AsAloneS, row.MeasuredS)))
		planned = append(planned, math.Abs(report.TimeError(row.PlannedS, row.MeasuredS)))
	}
	r.MedianError, r.MedianPlannedError, r.WorstError = stats.Median(errs), stats.Median(planned), slices.Max(errs)
	r.MedianAsAloneError = stats.Median(alone)
	r.MedianInterval[0], r.MedianInterval[1] = stats.Interval(times, func(medians []float64) float64 {
		for i, m := range medians {
			errs[i] = math.Abs(report.TimeError(r.Rows[i].PredictedS, m))
		}
		return stats.Median(errs)
	})
}
