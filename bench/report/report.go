// Package report shows what a comparison of plans measured: a self-contained page with tables and charts, and the
// same table as text. It draws what it is given and computes nothing but differences; it knows no plan and no
// device.
package report

import (
	"fmt"
	"math"

	"plimsoll/internal/stats"
	"plimsoll/internal/units"
)

// Page is everything on a page. Every part but the title may be empty.
type Page struct {
	Title       string     `json:"title"`
	Summary     string     `json:"summary,omitempty"` // a sentence or two under the title
	Environment []Fact     `json:"environment,omitempty"`
	Figures     []Figure   `json:"figures,omitempty"`
	Batch       int        `json:"batch,omitempty"`  // images a step, or samples of text; throughput is in steps when 0
	Tokens      int        `json:"tokens,omitempty"` // of a sample of text; 0 of images
	Rows        []Row      `json:"rows,omitempty"`
	Charts      []Chart    `json:"charts,omitempty"` // drawn above the rows: loss, accuracy
	Timelines   []Timeline `json:"timelines,omitempty"`
	Sections    []Section  `json:"sections,omitempty"`
	Notes       []string   `json:"notes,omitempty"`
}

// Section is a further table with its heading, below the curves.
type Section struct {
	Title string `json:"title"`
	Note  string `json:"note,omitempty"`
	Table *Table `json:"table"`
	Wrap  bool   `json:"wrap,omitempty"` // cells hold text, which may take several lines
}

// Fact is a line of the environment: "CPU", "model", "version".
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Figure is a number that a run ended with: "accuracy".
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  Unit    `json:"unit"`
}

// Row is one strategy under one limit.
type Row struct {
	Strategy         string  `json:"strategy"`
	Name             string  `json:"name,omitempty"` // for people, where it says more than Strategy
	Limit            int64   `json:"limit_bytes"`
	Device           int64   `json:"device_bytes,omitempty"` // memory of the row's device, where that differs from the page's; 0: it does not
	Share            float64 `json:"share,omitempty"`        // the limit as a fraction of store-all's peak; 0: not shown
	PredictedPeak    int64   `json:"predicted_peak_bytes"`
	MeasuredPeak     int64   `json:"measured_peak_bytes"`
	PredictedSeconds float64 `json:"predicted_s"` // of one step
	MeasuredSeconds  float64 `json:"measured_s"`
	// Identical says whether gradients and weights equal the reference's bit for bit; nil: not compared.
	Identical *bool `json:"identical,omitempty"`
	// Refused says why the strategy has no plan under the limit; then the figures above are 0.
	Refused string `json:"refused,omitempty"`

	Plan      string  `json:"plan,omitempty"`             // the sequence as text
	Predicted []Point `json:"predicted_memory,omitempty"` // the memory curves: seconds from the start of the step, bytes
	Measured  []Point `json:"measured_memory,omitempty"`
	Plain     []Point `json:"store_all_memory,omitempty"` // of the step that recomputes and moves nothing, as predicted
	Peak      *Peak   `json:"peak,omitempty"`
}

// Append adds the rows of a page of the same job on a device with so many bytes, which is all that its memory limit is.
func (p *Page) Append(small *Page, device int64) {
	p.Notes = append(p.Notes, fmt.Sprintf("The rows of share \"device\" ran on a device of %s, where the model was measured and planned as well; "+
		"the bits are compared with store-all's on a larger one.", units.Bytes(device)))
	for _, r := range small.Rows {
		r.Device = device
		p.Rows = append(p.Rows, r)
	}
}

// TimeError is the error of a predicted time: the gap, measured less predicted, as a share of the measured time. Like the gap
// it is above 0 when the step is slower than predicted; NaN when nothing was measured.
func TimeError(predicted, measured float64) float64 {
	if !(measured > 0) {
		return math.NaN()
	}
	return (measured - predicted) / measured
}

// TimeError returns the error of the row's predicted time.
func (r *Row) TimeError() float64 { return TimeError(r.PredictedSeconds, r.MeasuredSeconds) }

// MedianTimeError is the median of the absolute time errors of the rows that ran, NaN when none did.
func (p *Page) MedianTimeError() float64 {
	var errors []float64
	for i := range p.Rows {
		if e := math.Abs(p.Rows[i].TimeError()); !math.IsNaN(e) {
			errors = append(errors, e)
		}
	}
	if len(errors) == 0 {
		return math.NaN()
	}
	return stats.Median(errors)
}
