package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"plimsoll/internal/units"
)

// Unit is the unit of an axis's values.
type Unit uint8

const (
	// Plain is a number without a unit: a loss, a step.
	Plain Unit = iota
	// Bytes is a size.
	Bytes
	// Seconds is a time.
	Seconds
	// Share is a fraction, shown in percent.
	Share
)

// scale is a unit with a prefix: its name and its size in base units.
type scale struct {
	name   string
	factor float64
}

var scales = map[Unit][]scale{
	Plain:   {{"", 1}},
	Bytes:   {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}},
	Seconds: {{"ns", 1e-9}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}},
	Share:   {{"%", 0.01}},
}

// scaleFor returns the largest scale of which top is at least one.
func (u Unit) scaleFor(top float64) scale {
	all := scales[u]
	best := all[0]
	for _, s := range all {
		if top >= s.factor {
			best = s
		}
	}
	return best
}

// format prints one value for people.
func (u Unit) format(x float64) string {
	switch u {
	case Bytes:
		return units.Bytes(int64(math.Round(x)))
	case Seconds:
		return units.Seconds(x)
	case Share:
		return strconv.FormatFloat(x*100, 'f', 2, 64) + " %"
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// unmarshalNamed reads a value of an enumeration by its name; the names are those of its values, in order.
func unmarshalNamed[T ~uint8](into *T, text []byte, names []string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %q", text, names)
	}
	*into = T(i)
	return nil
}

var unitNames = []string{"plain", "bytes", "seconds", "share"}

// MarshalText implements encoding.TextMarshaler.
func (u Unit) MarshalText() ([]byte, error) { return []byte(unitNames[u]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *Unit) UnmarshalText(text []byte) error { return unmarshalNamed(u, text, unitNames) }

// Axis describes one direction of a chart.
type Axis struct {
	Label string `json:"label,omitempty"`
	Unit  Unit   `json:"unit"`
	// Tight begins the axis at the smallest value rather than at zero.
	Tight bool `json:"tight,omitempty"`
	// Log gives equal ratios equal lengths. All values are above zero.
	Log bool `json:"log,omitempty"`
}

func percent(share float64) string { return fmt.Sprintf("%.4g %%", share*100) }

// axis is an Axis fitted to data: lo and hi in base units are at pixels from and to.
type axis struct {
	Axis
	scale
	lo, hi   float64
	from, to float64
	ticks    []float64 // base units
}

// fit chooses the range, the scale and about n ticks. headroom is the share left free at the top, and on
// a tight axis at the bottom as well.
func (a Axis) fit(lo, hi, from, to, headroom float64, n int) axis {
	if a.Log && lo > 0 {
		return a.fitLog(lo, hi, from, to)
	}
	a.Log = false
	if !a.Tight {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	if !(hi-lo > 1e-9*max(math.Abs(lo), math.Abs(hi))) { // one value, or too close to tell ticks apart
		hi = lo + max(1, math.Abs(lo))
	}
	pad := (hi - lo) * headroom
	hi += pad
	if a.Tight {
		lo -= pad
	}
	f := axis{Axis: a, scale: a.Unit.scaleFor(max(math.Abs(lo), math.Abs(hi))), lo: lo, hi: hi, from: from, to: to}
	step := niceStep((hi-lo)/f.factor, n) * f.factor
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi+1e-9*step; i++ {
		f.ticks = append(f.ticks, i*step+0) // no negative zero
	}
	return f
}

// fitLog chooses the range of a logarithmic axis, with ticks at 1, 2 and 5 times powers of ten of its scale.
func (a Axis) fitLog(lo, hi, from, to float64) axis {
	f := axis{Axis: a, scale: a.Unit.scaleFor(hi), lo: lo / 1.1, hi: hi * 1.1, from: from, to: to}
	for power := math.Pow(10, math.Floor(math.Log10(f.lo/f.factor))); power*f.factor <= f.hi; power *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if at := m * power * f.factor; at >= f.lo && at <= f.hi {
				f.ticks = append(f.ticks, at)
			}
		}
	}
	return f
}

// niceStep returns 1, 2 or 5 times a power of ten that cuts a range into about n parts.
func niceStep(length float64, n int) float64 {
	rough := length / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5} {
		if rough <= m*power*1.0001 {
			return m * power
		}
	}
	return 10 * power
}

// at returns the pixel of a value.
func (a *axis) at(x float64) float64 {
	if a.Log {
		return a.from + math.Log(x/a.lo)/math.Log(a.hi/a.lo)*(a.to-a.from)
	}
	return a.from + (x-a.lo)/(a.hi-a.lo)*(a.to-a.from)
}

// value returns the value at a share of the axis.
func (a *axis) value(share float64) float64 {
	if a.Log {
		return a.lo * math.Pow(a.hi/a.lo, share)
	}
	return a.lo + share*(a.hi-a.lo)
}

// tick prints a tick in the scale of the axis.
func (a *axis) tick(x float64) string {
	return strconv.FormatFloat(x/a.factor, 'g', 9, 64)
}

// title is the label with the scale: "memory (MiB)".
func (a *axis) title() string {
	if a.name == "" {
		return a.Label
	}
	return a.Label + " (" + a.name + ")"
}
