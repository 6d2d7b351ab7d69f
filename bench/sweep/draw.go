package sweep

import (
	"plimsoll/bench/report"
	"plimsoll/internal/folder"
)

// ownMarks is the first color of those that have other marks than the strategies.
const ownMarks = 8

// chart draws the figure: full marks for what was measured, hollow ones and dashed lines for what was simulated.
func (f *Figure) chart() *report.Chart {
	c := &report.Chart{
		Title: f.Title + " (" + string(f.Source) + ")", Subtitle: f.Note, Wide: true,
		X: report.Axis{Label: f.X, Tight: true}, Y: report.Axis{Label: f.Y, Tight: true},
	}
	given := 0
	for _, curve := range f.Curves {
		color, known := colors[curve.Strategy]
		if !known { // plans that are given have marks of their own
			color, given = ownMarks+given, given+1
		}
		s := report.Series{Name: curve.Strategy, Shape: report.Dots, Color: color, Dashed: curve.Hollow}
		if curve.Hollow && f.Source == Measured {
			s.Name = "" // the measured one beside it has the name
		}
		for i := range curve.X {
			s.Points = append(s.Points, report.Point{X: curve.X[i], Y: curve.Y[i]})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// write writes the picture to a folder.
func (f *Figure) write(at *folder.Dir) error {
	return at.Write(f.Name+".svg", f.chart().WriteSVG)
}
