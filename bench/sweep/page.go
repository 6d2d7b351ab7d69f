package sweep

import (
	"fmt"

	"plimsoll/bench/report"
	"plimsoll/internal/folder"
	"plimsoll/internal/units"
)

// WriteFolder writes points.csv, every figure as SVG, and index.html, which holds all of it. Figures of an
// earlier state of the points are overwritten.
func WriteFolder(at *folder.Dir, points []Point, found []Claim, facts ...report.Fact) ([]Figure, error) {
	if err := WriteCSV(at, points); err != nil {
		return nil, err
	}
	figures := Figures(points)
	if err := at.Sub("figures").Make(); err != nil {
		return nil, err
	}
	page := &report.Page{
		Title: "Throughput against memory", Environment: facts,
		Summary: fmt.Sprintf("%d points of %d strategies. Measured times are of whole training steps on a device; simulated ones follow from the "+
			"costs of a chain and ran nowhere. In every picture measured marks are full and simulated ones hollow.", len(points), strategies(points)),
		Sections: []report.Section{
			{Title: "Claims", Note: "What the points say to the claims of A. Shilova's thesis.", Table: ClaimTable(found)},
			{Title: "Points", Table: pointTable(points)},
		},
	}
	for i := range figures {
		if err := figures[i].write(at.Sub("figures")); err != nil {
			return nil, err
		}
		page.Charts = append(page.Charts, *figures[i].chart())
	}
	return figures, page.WriteIn(at, "index.html")
}

func strategies(points []Point) int {
	seen := map[string]bool{}
	for _, p := range points {
		seen[p.Strategy] = true
	}
	return len(seen)
}

// pointTable lists all points.
func pointTable(points []Point) *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Name: "chain"}, {Name: "source"}, {Name: "strategy"}, {Name: "limit", Right: true}, {Name: "α", Right: true}, {Name: "link", Right: true},
		{Name: "peak", Right: true}, {Name: "step", Right: true}, {Name: "of store-all's", Right: true}, {Name: "offloaded", Right: true},
	}}
	for i := range points {
		p := &points[i]
		link := "none"
		if p.Bandwidth > 0 {
			link = units.Rate(p.Bandwidth, "B")
		}
		row := []string{p.Chain, string(p.Source), p.Strategy, units.Bytes(p.MemoryBytes), fmt.Sprintf("%.2f", p.Alpha), link}
		if p.Ran() {
			row = append(row, units.Bytes(p.PeakBytes), units.Seconds(p.Seconds), fmt.Sprintf("%.3f", p.Seconds/p.StoreAllS), units.Bytes(p.MovedBytes))
		} else {
			row = append(row, p.none())
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
