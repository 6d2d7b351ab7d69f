package sweep

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"plimsoll/internal/atomicfile"
)

// Size of a picture.
const (
	width  = 6.4 * vg.Inch
	height = 4 * vg.Inch
)

// look is how a strategy is drawn, the same in every figure.
type look struct {
	color        color.RGBA
	full, hollow draw.GlyphDrawer
}

var (
	circle  = [2]draw.GlyphDrawer{draw.CircleGlyph{}, draw.RingGlyph{}}
	square  = [2]draw.GlyphDrawer{draw.BoxGlyph{}, draw.SquareGlyph{}}
	pyramid = [2]draw.GlyphDrawer{draw.PyramidGlyph{}, draw.TriangleGlyph{}}
)

func rgb(hex uint32) color.RGBA {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

// looks are color-blind safe hues (P. Tol, "Colour schemes"), with marks that differ where hues repeat.
var looks = map[string]look{
	"store-all":       {rgb(0x222222), square[0], square[1]},
	"periodic":        {rgb(0xAA3377), square[0], square[1]},
	"revolve":         {rgb(0x228833), circle[0], circle[1]},
	"rotor":           {rgb(0x4477AA), pyramid[0], pyramid[1]},
	"rotor-exact":     {rgb(0x66CCEE), pyramid[0], pyramid[1]},
	"dtr":             {rgb(0xCCBB44), circle[0], circle[1]},
	"checkmate":       {rgb(0xEE7733), square[0], square[1]},
	"offload-greedy":  {rgb(0xCCBB44), square[0], square[1]},
	"offload-dynprog": {rgb(0xEE6677), circle[0], circle[1]},
	"vdnn":            {rgb(0x228833), pyramid[0], pyramid[1]},
	"tflms":           {rgb(0x66CCEE), square[0], square[1]},
	"autoswap":        {rgb(0xAA3377), pyramid[0], pyramid[1]},
	"opportunist":     {rgb(0xCCBB44), pyramid[0], pyramid[1]},
	"autocapper":      {rgb(0x228833), square[0], square[1]},
	"pofo":            {rgb(0xAA3377), circle[0], circle[1]},
	"auto":            {rgb(0x222222), pyramid[0], pyramid[1]},
}

// lookOf returns the look of any strategy.
func lookOf(strategy string) look {
	if l, ok := looks[strategy]; ok {
		return l
	}
	return look{rgb(0x777777), circle[0], circle[1]}
}

// plot lays the figure out.
func (f *Figure) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = fmt.Sprintf("%s (%s)", f.Title, f.Source), f.X, f.Y
	p.Title.TextStyle.Font.Size = 11
	p.Title.Padding = vg.Points(6)
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	p.Legend.TextStyle.Font.Size = 8
	p.Add(plotter.NewGrid())
	for i := range f.Curves {
		if err := f.Curves[i].addTo(p, f.Source); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	p.X.Max += (p.X.Max - p.X.Min) * 0.35 // room for the legend beside the curves
	return p, nil
}

// addTo draws a curve: full where it was measured, hollow and dashed where it was simulated.
func (c *Curve) addTo(p *plot.Plot, source Source) error {
	xys := make(plotter.XYs, len(c.X))
	for i := range c.X {
		xys[i] = plotter.XY{X: c.X[i], Y: c.Y[i]}
	}
	line, marks, err := plotter.NewLinePoints(xys)
	if err != nil {
		return err
	}
	l := lookOf(c.Strategy)
	line.Color, marks.Color, marks.Radius, marks.Shape = l.color, l.color, vg.Points(3), l.full
	if c.Hollow {
		marks.Shape = l.hollow
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(line, marks)
	name := c.Strategy
	if c.Hollow && source == Measured {
		name += ", simulated"
	}
	p.Legend.Add(name, line, marks)
	return nil
}

// Encode returns the picture as "svg" or "png".
func (f *Figure) Encode(format string) ([]byte, error) {
	p, err := f.plot()
	if err != nil {
		return nil, err
	}
	w, err := p.WriterTo(width, height, format)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	return b.Bytes(), err
}

// Write writes the picture to a folder as SVG and as PNG.
func (f *Figure) Write(folder string) error {
	for _, format := range []string{"svg", "png"} {
		data, err := f.Encode(format)
		if err != nil {
			return err
		}
		err = atomicfile.WriteFile(filepath.Join(folder, f.Name+"."+format), func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
