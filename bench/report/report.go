// Package report shows what a comparison of plans measured: a self-contained page with tables and charts, and the
// same table as text. It draws what it is given and computes nothing but differences; it knows no plan and no
// device.
package report

import (
	_ "embed" // for the page's template and style
	"encoding/base64"
	"html/template"
	"io"
	"math"
	"slices"

	"plimsoll/internal/atomicfile"
)

// Page is everything on a page. Every part but the title may be empty.
type Page struct {
	Title       string
	Summary     string // a sentence or two under the title
	Environment []Fact
	Batch       int // images a step; throughput is in steps when 0
	Rows        []Row
	Charts      []Chart // drawn above the rows: loss, accuracy
	Images      []Image // below the charts
	Sections    []Section
	Notes       []string
}

// Section is a further table with its heading, below the curves.
type Section struct {
	Title, Note string
	Table       *Table
}

// Image is a picture that was drawn elsewhere; Mark says briefly what kind it is.
type Image struct {
	Title, Note, Mark string
	SVG               []byte
}

// URL returns the picture itself as an address, so that the page needs no other file.
func (i Image) URL() template.URL {
	return template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(i.SVG)) //nolint:gosec // base64 has no markup
}

// Fact is a line of the environment: "CPU", "model", "commit".
type Fact struct{ Name, Value string }

// Row is one strategy under one limit. Its JSON form is a row of demo.json.
type Row struct {
	Strategy         string  `json:"strategy"`
	Limit            int64   `json:"limit_bytes"`
	PredictedPeak    int64   `json:"predicted_peak_bytes"`
	MeasuredPeak     int64   `json:"measured_peak_bytes"`
	PredictedSeconds float64 `json:"predicted_s"` // of one step
	MeasuredSeconds  float64 `json:"measured_s"`
	// Identical says whether gradients and weights equal the reference's bit for bit; nil: not compared.
	Identical *bool `json:"identical"`
	// Refused says why the strategy has no plan under the limit; then the figures above are 0.
	Refused string `json:"refused,omitempty"`

	Name      string  `json:"-"` // for people, where it says more than Strategy
	Share     float64 `json:"-"` // the limit as a fraction of store-all's peak; 0: not shown
	Plan      string  `json:"-"` // the sequence as text
	Predicted []Point `json:"-"` // the memory curves: seconds from the start of the step, bytes
	Measured  []Point `json:"-"`
}

// TimeError is the error of a predicted time: the gap, measured less predicted, as a share of the measured time. Like the gap
// it is above 0 when the step is slower than predicted; NaN when nothing was measured.
func TimeError(predicted, measured float64) float64 {
	if !(measured > 0) {
		return math.NaN()
	}
	return (measured - predicted) / measured
}

// TimeError is that of the row.
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
	slices.Sort(errors)
	half := len(errors) / 2
	if len(errors)%2 == 1 {
		return errors[half]
	}
	return (errors[half-1] + errors[half]) / 2
}

// WriteFile writes the page to a file that is complete or not there.
func (p *Page) WriteFile(path string) error {
	return atomicfile.WriteFile(path, p.Write)
}

// Write writes the page as HTML.
func (p *Page) Write(w io.Writer) error {
	return pageTemplate.Execute(w, p.view())
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))
