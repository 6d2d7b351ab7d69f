package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"plimsoll/bench/report"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
)

// Moved is a model that was trained along plans that move weights, gradients and optimizer state. The first row is the reference.
type Moved struct {
	Job         *train.Job `json:"-"`
	Model       string     `json:"model"`
	WeightBytes int64      `json:"weight_bytes"`
	StaticBytes int64      `json:"static_bytes"` // weights, gradients and optimizer state
	Rows        []MovedRow `json:"rows"`
}

// MovedRow is a run.
type MovedRow struct {
	Strategy           string  `json:"strategy"`
	LimitBytes         int64   `json:"limit_bytes"`
	PredictedPeakBytes int64   `json:"predicted_peak_bytes"`
	MeasuredPeakBytes  int64   `json:"measured_peak_bytes"`
	HostBytes          int64   `json:"host_bytes"` // page-locked
	PredictedS         float64 `json:"predicted_s"`
	MeasuredS          float64 `json:"measured_s"`
	WeightsSHA256      string  `json:"weights_sha256"`
}

// Add adds a run.
func (m *Moved) Add(s *train.Summary) {
	m.Model = m.Job.Model
	m.Rows = append(m.Rows, MovedRow{
		Strategy: s.Strategy, LimitBytes: s.LimitBytes, PredictedPeakBytes: s.PredictedPeakBytes, MeasuredPeakBytes: s.MeasuredPeakBytes,
		HostBytes: s.HostBytes, PredictedS: s.PredictedS, MeasuredS: s.MeasuredS, WeightsSHA256: s.WeightsSHA256,
	})
}

// failures names the rows that broke a promise about bits or bytes.
func (m *Moved) failures() (all []string) {
	for _, r := range m.Rows {
		switch {
		case r.WeightsSHA256 != m.Rows[0].WeightsSHA256:
			all = append(all, fmt.Sprintf("%s of %s: weights differ from %s's", r.Strategy, m.Model, m.Rows[0].Strategy))
		case r.MeasuredPeakBytes != r.PredictedPeakBytes || r.MeasuredPeakBytes > r.LimitBytes:
			all = append(all, fmt.Sprintf("%s of %s: measured peak %s, predicted %s, limit %s", r.Strategy, m.Model,
				units.Precise(r.MeasuredPeakBytes), units.Precise(r.PredictedPeakBytes), units.Precise(r.LimitBytes)))
		}
	}
	return all
}

// print prints the table for people.
func (m *Moved) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s on %s, %s: %s of weights, %s with gradients and optimizer state:\n\n", m.Model, m.Job.Data, m.Job.Samples(m.Job.Config.Batch),
		units.Bytes(m.WeightBytes), units.Bytes(m.StaticBytes))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "strategy\tdevice\tpeak\tpage-locked\tpredicted\tmeasured\terror\tweights\n")
	for i, r := range m.Rows {
		bits := "same bits"
		switch {
		case i == 0:
			bits = "the reference"
		case r.WeightsSHA256 != m.Rows[0].WeightsSHA256:
			bits = "DIFFER"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%+.1f %%\t%s\n", r.Strategy, units.Bytes(r.LimitBytes), units.Bytes(r.MeasuredPeakBytes), units.Bytes(r.HostBytes),
			units.Seconds(r.PredictedS), units.Seconds(r.MeasuredS), 100*report.TimeError(r.PredictedS, r.MeasuredS), bits)
	}
	return w.Flush()
}
