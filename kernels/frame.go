package kernels

import "slices"

// Pad adds rows and columns around an image, or takes some off where a number is negative: N,H,W,C -> N,Top+H+Bottom,Left+W+Right,C. They are
// zeros or, where it is Circular, those of the other end: circular with Top s and Bottom -s moves the image by s rows, as torch.roll does.
type Pad struct {
	Top, Bottom, Left, Right int
	Circular                 bool
}

// Resize computes an image of OutH x OutW pixels from the pixels around each, as PyTorch's interpolate without antialias does:
//   - Nearest takes the pixel at floor(i*ratio).
//   - Otherwise the mean of two along each axis is taken, weighted by their distances from (i + 1/2)*ratio - 1/2.
//   - With AlignCorners the distances are those from i*(extent - 1)/(Out - 1).
//
// Positions are computed in float32, as PyTorch does.
type Resize struct {
	OutH, OutW     int
	Nearest        bool
	AlignCorners   bool
	RatioH, RatioW float32 // of extents, input to output; 0: what the extents say
}

func (Pad) Kind() string    { return "pad" }
func (Resize) Kind() string { return "resize" }

func (Pad) Params([]Desc) []Param    { return nil }
func (Resize) Params([]Desc) []Param { return nil }

func (Pad) Saved([]Desc) []Desc    { return nil }
func (Resize) Saved([]Desc) []Desc { return nil }

func (Pad) Needs() Needs    { return Needs{} }
func (Resize) Needs() Needs { return Needs{} }

func (Pad) Split() bool    { return false }
func (Resize) Split() bool { return false }

func (Pad) Alias(p Pass, out, in Operand) bool    { return never(p, out, in) }
func (Resize) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }

// Infer implements Op.
func (p Pad) Infer(in []Desc) (Desc, error) {
	if err := oneImage(p.Kind(), in); err != nil {
		return Desc{}, err
	}
	y := slices.Clone(in[0].Shape)
	for _, side := range []struct {
		name string
		pad  int
	}{{"Top", p.Top}, {"Bottom", p.Bottom}, {"Left", p.Left}, {"Right", p.Right}} {
		if side.pad < -maxAttribute || side.pad > maxAttribute {
			return Desc{}, bad(p.Kind(), side.name, "%d is not from %d to %d", side.pad, -maxAttribute, maxAttribute)
		}
	}
	if y[1], y[2] = y[1]+p.Top+p.Bottom, y[2]+p.Left+p.Right; y[1] < 1 || y[2] < 1 {
		return Desc{}, bad(p.Kind(), "Top", "an image of %v has no rows or no columns left with %+v", in[0], p)
	}
	return output(p.Kind(), in[0].DType, y...)
}

// Infer implements Op.
func (r Resize) Infer(in []Desc) (Desc, error) {
	if err := oneImage(r.Kind(), in); err != nil {
		return Desc{}, err
	}
	switch {
	case r.OutH < 1 || r.OutH > MaxExtent:
		return Desc{}, bad(r.Kind(), "OutH", "%d is not a number of rows", r.OutH)
	case r.OutW < 1 || r.OutW > MaxExtent:
		return Desc{}, bad(r.Kind(), "OutW", "%d is not a number of columns", r.OutW)
	case !(r.RatioH >= 0 && r.RatioH <= MaxExtent):
		return Desc{}, bad(r.Kind(), "RatioH", "%v is no ratio of extents", r.RatioH)
	case !(r.RatioW >= 0 && r.RatioW <= MaxExtent):
		return Desc{}, bad(r.Kind(), "RatioW", "%v is no ratio of extents", r.RatioW)
	case r.Nearest && r.AlignCorners:
		return Desc{}, bad(r.Kind(), "AlignCorners", "the nearest pixel has no corners to align")
	}
	return output(r.Kind(), in[0].DType, in[0].Shape[0], r.OutH, r.OutW, in[0].Shape[3])
}

// Axis describes one axis of a Resize: position i of the output is at Ratio*(i + Shift) - Shift of the input.
type Axis struct {
	In, Out      int
	Ratio, Shift float32
	Nearest      bool
}

// Axes returns the rows and the columns of a Resize of an image.
func (r Resize) Axes(x Desc) (rows, columns Axis) {
	axis := func(in, out int, ratio float32) Axis {
		a := Axis{In: in, Out: out, Ratio: ratio, Shift: 0.5, Nearest: r.Nearest}
		if ratio == 0 {
			a.Ratio = float32(in) / float32(out)
		}
		if r.Nearest {
			a.Shift = 0
		}
		if r.AlignCorners {
			a.Shift, a.Ratio = 0, 0
			if out > 1 {
				a.Ratio = float32(in-1) / float32(out-1)
			}
		}
		return a
	}
	return axis(x.Shape[1], r.OutH, r.RatioH), axis(x.Shape[2], r.OutW, r.RatioW)
}

// At returns the two pixels that position i is between, and the weight of the second.
func (a Axis) At(i int) (low, high int, weight float32) {
	at := a.Ratio * float32(i)
	if a.Shift != 0 {
		at = max(a.Ratio*(float32(i)+a.Shift)-a.Shift, 0)
	}
	low = min(int(at), a.In-1)
	if a.Nearest {
		return low, low, 0
	}
	return low, min(low+1, a.In-1), min(at-float32(low), 1)
}
