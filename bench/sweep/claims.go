package sweep

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/bench/report"
	"plimsoll/internal/units"
)

// Claim is a statement of the thesis with what the points say to it.
type Claim struct {
	Claim  string `json:"claim"`
	Source Source `json:"source"`
	Chain  string `json:"chain"`
	Found  string `json:"found"`
	Holds  bool   `json:"holds"`
}

// slack is the largest difference that counts as equal: rounding in simulations, noise in measurements.
var slack = map[Source]float64{Simulated: 1e-9, Measured: 0.05}

// Claims checks the thesis's claims of chapters 3 and 4 on every chain that has the points.
func Claims(points []Point) (all []Claim) {
	for _, source := range []Source{Simulated, Measured} {
		for _, name := range chains(points, source) {
			c := claims{source: source, name: name, at: map[place]map[string]*Point{}}
			c.collect(points)
			all = append(all, slices.Concat(c.dynprog(), c.pofo(), c.memory())...)
		}
	}
	return all
}

// place is a limit and a link.
type place struct {
	memory    int64
	bandwidth float64
}

// claims looks at one chain.
type claims struct {
	source Source
	name   string
	places []place                     // with a link
	at     map[place]map[string]*Point // by strategy; without a link those that none changes
}

func (c *claims) collect(points []Point) {
	for i := range points {
		p := &points[i]
		if p.Source != c.source || p.Chain != c.name {
			continue
		}
		k := place{p.MemoryBytes, p.Bandwidth}
		if c.at[k] == nil {
			c.at[k] = map[string]*Point{}
			if k.bandwidth > 0 {
				c.places = append(c.places, k)
			}
		}
		c.at[k][p.Strategy] = p
	}
}

// of returns the point of a strategy, nil where it has no plan.
func (c *claims) of(k place, strategy string) *Point {
	p := c.at[k][strategy]
	if p == nil {
		p = c.at[place{memory: k.memory}][strategy]
	}
	if p == nil || !p.Ran() {
		return nil
	}
	return p
}

func (c *claims) claim(text string, holds bool, found string, args ...any) []Claim {
	return []Claim{{text, c.source, c.name, fmt.Sprintf(found, args...), holds}}
}

// dynprog: section 3.4.2.
func (c *claims) dynprog() []Claim {
	within, n, worst := 0, 0, (*Point)(nil)
	ratio := func(p *Point) float64 { return p.Seconds / p.OffloadBoundS }
	for _, k := range c.places {
		p := c.of(k, "offload-dynprog")
		if p == nil || p.OffloadBoundS == 0 {
			continue
		}
		n++
		if ratio(p) <= 1.2 {
			within++
		}
		if worst == nil || ratio(p) > ratio(worst) {
			worst = p
		}
	}
	if n == 0 {
		return nil
	}
	return c.claim("offload-dynprog is within 1.2 of the lower bound (3.4.2)", within == n, "%d of %d points; at most %.3f, at α = %.2f and %s",
		within, n, ratio(worst), worst.Alpha, units.Rate(worst.Bandwidth, "B"))
}

// pofo: section 4.4.1.
func (c *claims) pofo() []Claim {
	kept, n, better := 0, 0, 0
	var broken []string
	for _, k := range c.places {
		best, p := c.pure(k), c.of(k, "pofo")
		if p == nil || best == nil {
			continue
		}
		n++
		switch {
		case p.Seconds > best.Seconds*(1+slack[c.source]):
			broken = append(broken, fmt.Sprintf("%+.1f %% against %s at α = %.2f, %s", 100*(p.Seconds/best.Seconds-1), best.Strategy, p.Alpha, units.Rate(k.bandwidth, "B")))
		case p.Seconds < best.Seconds*(1-0.01):
			better++
			kept++
		default:
			kept++
		}
	}
	if n == 0 {
		return nil
	}
	return c.claim("pofo is at least as fast as rotor and offload-dynprog everywhere (4.4.1)", kept == n, "%s",
		strings.Join(append([]string{fmt.Sprintf("%d of %d points, by more than 1 %% faster at %d", kept, n, better)}, broken...), "; "))
}

// pure returns the fastest plan that only recomputes or only offloads.
func (c *claims) pure(k place) (best *Point) {
	for _, s := range []string{"rotor", "rotor-exact", "offload-dynprog"} {
		if p := c.of(k, s); p != nil && (best == nil || p.Seconds < best.Seconds) {
			best = p
		}
	}
	return best
}

// memory: section 4.4.1, by bandwidth. It is about activations; the memory of measured points has the weights in it.
func (c *claims) memory() (all []Claim) {
	if c.source == Measured {
		return nil
	}
	least := map[float64]*Point{}
	for _, k := range c.places {
		p := c.of(k, "pofo")
		if p != nil && p.Seconds <= 1.2*p.StoreAllS && (least[k.bandwidth] == nil || p.PeakBytes < least[k.bandwidth].PeakBytes) {
			least[k.bandwidth] = p
		}
	}
	for _, b := range bandwidthsOf(c.places) {
		if p := least[b]; p != nil {
			factor := float64(p.StoreAllBytes) / float64(p.PeakBytes)
			all = append(all, c.claim("pofo divides the memory by 4 to 6 at less than 20 % overhead (4.4.1)", factor >= 4,
				"by %.1f with %s: %s of %s at %+.1f %%; recomputing alone could divide by %.1f at most", factor, units.Rate(b, "B"), units.Bytes(p.PeakBytes),
				units.Bytes(p.StoreAllBytes), 100*(p.Seconds/p.StoreAllS-1), float64(p.StoreAllBytes)/float64(p.LowBytes))...)
		}
	}
	return all
}

func bandwidthsOf(places []place) (all []float64) {
	for _, k := range places {
		if !slices.Contains(all, k.bandwidth) {
			all = append(all, k.bandwidth)
		}
	}
	slices.Sort(all)
	return all
}

// Claim is the claim of section 2.4.5.
func (p *Periodic) Claim() Claim {
	return Claim{
		"rotor is about 13 % faster than the best periodic plan in its memory (2.4.5)", Simulated, p.Chain,
		fmt.Sprintf("%+.1f %% against the fastest, of %d segments in %s; mean of %d numbers of segments %+.1f %% (%+.1f to %+.1f %%)", 100*p.Gain(), p.Segments,
			units.Bytes(p.PeakBytes), p.Limits, 100*p.MeanGain, 100*p.Least, 100*p.Greatest), p.Gain() > 0.08 && p.Gain() < 0.18,
	}
}

// ClaimTable returns claims as a table.
func ClaimTable(all []Claim) *report.Table {
	t := &report.Table{Columns: []report.Column{{Name: "claim of the thesis"}, {Name: "chain"}, {Name: "source"}, {Name: "holds"}, {Name: "found"}}}
	for _, c := range all {
		holds := "no"
		if c.Holds {
			holds = "yes"
		}
		t.Rows = append(t.Rows, []string{c.Claim, c.Chain, string(c.Source), holds, c.Found})
	}
	return t
}
