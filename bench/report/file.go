package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"plimsoll/internal/bounded"
	"plimsoll/internal/fields"
	"plimsoll/internal/folder"
)

// Format is the value of the "format" field of a report file.
const Format = "plimsoll.report/v1"

// FileName is the name of a page's data in the folder of the page.
const FileName = "report.json"

// ErrFormat is wrapped by the errors of files that are no reports.
var ErrFormat = errors.New("not a report")

// file is a page as it is in its file.
type file struct {
	Format string `json:"format"`
	*Page
}

// WriteFolder writes the page into a folder, which it makes, and its data beside it, from which the page can be drawn again and
// compared with others.
func (p *Page) WriteFolder(path, page string) error { return p.WriteIn(folder.At(path), page) }

// WriteIn is WriteFolder of a folder that is open.
func (p *Page) WriteIn(at *folder.Dir, page string) error {
	if err := at.Make(); err != nil {
		return err
	}
	if err := at.Write(FileName, p.Encode); err != nil {
		return err
	}
	return at.Write(page, p.Write)
}

// Encode writes the page's data. Curves of very many points are thinned to what can be seen.
func (p *Page) Encode(w io.Writer) error {
	kept := *p
	kept.Charts = thinned(p.Charts)
	text, err := fields.Marshal(file{Format, &kept})
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// Read reads a page's data: a file, or the one in a folder. Errors: ErrFormat, naming the file.
func Read(path string) (*Page, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, FileName)
	}
	data, err := bounded.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := file{Page: &Page{}}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	if f.Format != Format {
		return nil, fmt.Errorf("%s: %w: field \"format\" is %q, not %q", path, ErrFormat, f.Format, Format)
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	return f.Page, nil
}

// check refuses what could not be drawn.
func (p *Page) check() error {
	for _, s := range p.Sections {
		if s.Table == nil {
			return fmt.Errorf("section %q has no table", s.Title)
		}
		for i, row := range s.Table.Rows {
			if len(row) > len(s.Table.Columns) {
				return fmt.Errorf("section %q: row %d has %d cells, there are %d columns", s.Title, i, len(row), len(s.Table.Columns))
			}
		}
	}
	return nil
}

// manyPoints is from where on curves are thinned: four for each pixel of the widest picture.
const manyPoints = 4 * pageWidth

// thinned returns charts whose curves have no more points than can be seen.
func thinned(charts []Chart) []Chart {
	charts = slices.Clone(charts)
	for i := range charts {
		c := &charts[i]
		c.Series = slices.Clone(c.Series)
		lo, hi, _ := c.bounds()
		for k := range c.Series {
			s := &c.Series[k]
			if len(s.Points) > manyPoints && hi.X > lo.X {
				s.Points = scaledThin(s.Points, lo.X, pageWidth/(hi.X-lo.X))
			}
		}
	}
	return charts
}

// scaledThin is thin for points that are drawn so many pixels apart for each unit of X. Points that are not numbers are left out.
func scaledThin(points []Point, from, pixels float64) []Point {
	var scaled []Point
	at := map[Point]Point{}
	for _, p := range points {
		if p.valid() {
			q := Point{(p.X - from) * pixels, p.Y}
			scaled, at[q] = append(scaled, q), p
		}
	}
	kept := thin(scaled)
	for i, q := range kept {
		kept[i] = at[q]
	}
	return kept
}

// MarshalJSON writes [x, y], null for what is not a number.
func (p Point) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]*float64{number(p.X), number(p.Y)})
}

func number(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// UnmarshalJSON reads [x, y].
func (p *Point) UnmarshalJSON(data []byte) error {
	xy := [2]*float64{}
	if err := json.Unmarshal(data, &xy); err != nil {
		return err
	}
	*p = Point{math.NaN(), math.NaN()}
	if xy[0] != nil {
		p.X = *xy[0]
	}
	if xy[1] != nil {
		p.Y = *xy[1]
	}
	return nil
}
