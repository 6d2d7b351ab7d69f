package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"plimsoll/internal/units"
	"plimsoll/internal/visible"
	"plimsoll/planner"
)

// Figure is one picture: it corresponds to a figure of A. Shilova's thesis, drawn from points of one chain.
type Figure struct {
	Name   string // of its files: "fig4.2-resnet50-12GBps-simulated"
	Title  string
	Note   string // what is drawn, and from what
	X, Y   string // axes, with units
	Source Source
	Curves []Curve
}

// Curve is one strategy.
type Curve struct {
	Strategy string
	Hollow   bool // simulated
	X, Y     []float64
}

// The strategies of the thesis's figures, as far as the points have them.
var (
	rematerializing = []string{"store-all", "periodic", "revolve", "rotor", "rotor-exact", "dtr", "checkmate"}
	offloading      = []string{"offload-greedy", "offload-dynprog", "vdnn", "tflms", "autoswap"}
	combining       = []string{"rotor", "offload-dynprog", "opportunist", "autocapper", "pofo", "auto"}
	moving          = []string{"offload-dynprog", "opportunist", "autocapper", "pofo"}
)

// panel is a kind of figure: which points it shows, and where.
type panel struct {
	number, title, x, y string
	strategies          []string
	byLink              bool // a figure for each bandwidth
	across              bool // the bandwidth is the x axis, at the alpha nearest to fixedAlpha
	at                  func(p *Point, seconds float64) (x, y float64)
}

// fixedAlpha is the memory ratio of figures 4.3 and 4.5.
const fixedAlpha = 0.2

var panels = []panel{
	{"2.5-2.15", "throughput over memory, rematerialization", "peak memory, MiB", "samples or steps per second", rematerializing, false, false,
		func(p *Point, s float64) (float64, float64) {
			return float64(p.PeakBytes) / (1 << 20), float64(max(1, p.Batch)) / s
		}},
	{"3.5", "makespan over the lower bound, offloading", "memory limit, MiB", "makespan / lower bound", offloading, true, false,
		func(p *Point, s float64) (float64, float64) {
			return float64(p.MemoryBytes) / (1 << 20), s / p.OffloadBoundS
		}},
	{"4.2", "makespan over memory", "memory ratio α", "makespan / store-all's", combining, true, false,
		func(p *Point, s float64) (float64, float64) { return p.Alpha, s / p.StoreAllS }},
	{"4.3", "makespan over bandwidth", "bandwidth, GB/s", "makespan / store-all's", combining, false, true,
		func(p *Point, s float64) (float64, float64) { return p.Bandwidth / 1e9, s / p.StoreAllS }},
	{"4.4", "share of the activations that is offloaded", "memory ratio α", "offloaded / all activations", moving, true, false,
		func(p *Point, _ float64) (float64, float64) {
			return p.Alpha, float64(p.MovedBytes) / float64(p.SavedBytes)
		}},
	{"4.5", "share of the activations that is offloaded, over bandwidth", "bandwidth, GB/s", "offloaded / all activations", moving, false, true,
		func(p *Point, _ float64) (float64, float64) {
			return p.Bandwidth / 1e9, float64(p.MovedBytes) / float64(p.SavedBytes)
		}},
}

// Figures returns every figure for which there are points. Measured figures show the prediction of the same plans too.
func Figures(points []Point) (all []Figure) {
	for _, source := range []Source{Measured, Simulated} {
		for _, name := range chains(points, source) {
			mine := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Source != source || p.Chain != name || !p.Ran() })
			for _, pan := range panels {
				all = append(all, pan.figures(name, source, mine)...)
			}
		}
	}
	return all
}

func chains(points []Point, source Source) (names []string) {
	for _, p := range points {
		if p.Source == source && !slices.Contains(names, p.Chain) {
			names = append(names, p.Chain)
		}
	}
	return names
}

// figures draws a panel of one chain, once or for each bandwidth.
func (pan *panel) figures(name string, source Source, points []Point) (all []Figure) {
	if !pan.byLink {
		if pan.across {
			points = nearest(points)
		}
		return pan.figure(name, "", source, points)
	}
	for _, b := range bandwidths(points) {
		at := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Bandwidth != b && needsLink(&p) })
		all = append(all, pan.figure(name, units.Rate(b, "B"), source, at)...)
	}
	return all
}

// needsLink tells points whose bandwidth matters from those that serve for every bandwidth. Measured ones are of the device
// with that bandwidth.
func needsLink(p *Point) bool { return p.Source == Measured || p.Bandwidth > 0 }

func bandwidths(points []Point) (all []float64) {
	for _, p := range points {
		if p.Bandwidth > 0 && !slices.Contains(all, p.Bandwidth) {
			all = append(all, p.Bandwidth)
		}
	}
	slices.Sort(all)
	return all
}

// nearest keeps the points of the limit whose alpha is nearest to fixedAlpha.
func nearest(points []Point) (kept []Point) {
	best := math.Inf(1)
	for _, p := range points {
		best = min(best, math.Abs(p.Alpha-fixedAlpha))
	}
	for _, p := range points {
		if math.Abs(p.Alpha-fixedAlpha) <= best+1e-9 {
			kept = append(kept, p)
		}
	}
	return kept
}

// figure makes one figure, or none without at least one curve with two points.
func (pan *panel) figure(name, link string, source Source, points []Point) []Figure {
	f := Figure{
		Name:   strings.Join(slices.DeleteFunc([]string{"fig" + pan.number, visible.FileName(name), strings.NewReplacer(" ", "", "/s", "ps").Replace(link), string(source)}, func(s string) bool { return s == "" }), "-"),
		Title:  strings.TrimSuffix(fmt.Sprintf("%s: %s, %s", name, pan.title, link), ", "),
		Note:   fmt.Sprintf("As figure %s of the thesis. Simulated from the costs of the chain: hollow marks, dashed lines.", pan.number),
		Source: source, X: pan.x, Y: pan.y,
	}
	if source == Measured {
		f.Note = fmt.Sprintf("As figure %s of the thesis. Measured: full marks and lines; hollow marks and dashed lines: the same plans simulated.", pan.number)
	}
	enough := false
	for _, strategy := range slices.Concat(pan.strategies, strangers(points)) {
		for _, c := range pan.curves(strategy, source, points) {
			enough = enough || len(c.X) > 1
			f.Curves = append(f.Curves, c)
		}
	}
	if !enough {
		return nil
	}
	return []Figure{f}
}

// colors are the colors of the strategies, the same in every figure and different within one.
var colors = map[string]int{
	"store-all": 7, "periodic": 5, "revolve": 2, "rotor": 0, "rotor-exact": 4, "dtr": 6, "checkmate": 1,
	"offload-greedy": 6, "offload-dynprog": 1, "vdnn": 2, "tflms": 4, "autoswap": 5,
	"opportunist": 2, "autocapper": 4, "pofo": 3, "auto": 7,
}

// strangers are the names of plans that are given, which every figure shows.
func strangers(points []Point) (names []string) {
	for _, p := range points {
		if _, known := colors[p.Strategy]; !known && !slices.Contains(planner.Names(), p.Strategy) && !slices.Contains(names, p.Strategy) {
			names = append(names, p.Strategy)
		}
	}
	return names
}

// curves returns the curves of a strategy: for measured points also the prediction, where the two differ.
func (pan *panel) curves(strategy string, source Source, points []Point) (all []Curve) {
	measured := Curve{Strategy: strategy, Hollow: source == Simulated}
	predicted := Curve{Strategy: strategy, Hollow: true}
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b Point) int {
		ax, _ := pan.at(&a, a.Seconds)
		bx, _ := pan.at(&b, b.Seconds)
		return cmp.Compare(ax, bx)
	})
	for i := range points {
		if p := &points[i]; p.Strategy == strategy {
			measured.add(pan.at(p, p.Seconds))
			predicted.add(pan.at(p, p.PredictedS))
		}
	}
	if pan.across && source == Simulated && !slices.ContainsFunc(points, func(p Point) bool { return p.Strategy == strategy && p.Bandwidth > 0 }) {
		measured.spread(bandwidths(points))
	}
	if len(measured.X) == 0 {
		return nil
	}
	if source == Measured && !slices.Equal(measured.Y, predicted.Y) {
		return []Curve{predicted, measured}
	}
	return []Curve{measured}
}

// add adds a point that has both coordinates.
func (c *Curve) add(x, y float64) {
	if !math.IsNaN(y) && !math.IsInf(y, 0) {
		c.X, c.Y = append(c.X, x), append(c.Y, y)
	}
}

// spread draws a strategy that no bandwidth changes over all of them.
func (c *Curve) spread(links []float64) {
	if len(c.Y) == 0 {
		return
	}
	y := c.Y[0]
	c.X, c.Y = nil, nil
	for _, b := range links {
		c.add(b/1e9, y)
	}
}
