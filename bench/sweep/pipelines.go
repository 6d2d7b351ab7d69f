package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/profiles"
)

// Pipelines is a sweep of chains over platforms of several devices. All of it is simulated: the plans are checked, and their times
// follow from the costs of the chains.
type Pipelines struct {
	Chains     []*profiles.Source
	Devices    []int
	Memories   []int64   // bytes of each device
	Bandwidths []float64 // bytes/s between two devices; with nodes between two of different ones
	Node       int       // devices of a node, whose number divides those of Devices that are more; 0: all devices are alike
	Within     float64   // bytes/s between two devices of a node
	Strategies []pipeline.Strategy
	Given      map[string]*pipeline.Plan // of strategies that are plans, by their names: each is for the chain that it was made for
	Host       float64                   // bytes/s between each device and its host, for strategies of Offloading; 0: not known
	Options    pipeline.Options
	Progress   func(done, total int) // may be nil
}

// PipelinePoint is one strategy on one platform.
type PipelinePoint struct {
	Chain       string  `json:"chain"`
	Devices     int     `json:"devices"`
	MemoryBytes int64   `json:"memory_bytes"`
	Bandwidth   float64 `json:"bandwidth_bytes_per_s"`
	Strategy    string  `json:"strategy"`
	Node        int     `json:"devices_of_a_node,omitempty"` // 0: the bandwidth is that between any two devices
	Within      float64 `json:"node_bandwidth_bytes_per_s,omitempty"`

	Fits          bool    `json:"fits"`
	PerMinibatchS float64 `json:"seconds_per_minibatch,omitempty"`
	// Speedup is the time of a minibatch on one device without a limit, over that of this plan.
	Speedup   float64 `json:"speedup,omitempty"`
	Bubble    float64 `json:"bubble_fraction,omitempty"`
	PeakBytes int64   `json:"peak_bytes,omitempty"`     // of the fullest device
	Smallest  int64   `json:"smallest_bytes,omitempty"` // where it does not fit: the memory that works, if known
	Reason    string  `json:"reason,omitempty"`

	small bool // it does not fit
}

// withHost ends the names of strategies that are told of the link to the host.
const withHost = "+host"

// Offloading returns a strategy under another name, under which a sweep tells it of the link between each device and its host.
func Offloading(s pipeline.Strategy) pipeline.Strategy {
	s.Name += withHost
	return s
}

// Run solves every point. A strategy that cannot plan says why in its point. Errors: the context's and those of plans that break
// a rule, with the points so far.
func (g *Pipelines) Run(ctx context.Context) ([]PipelinePoint, error) {
	var points []PipelinePoint
	platforms := g.platforms()
	total := len(g.Chains) * len(platforms) * len(g.Strategies)
	for _, source := range g.Chains {
		for _, platform := range platforms {
			for _, s := range g.Strategies {
				p := PipelinePoint{
					Chain: source.Chain.Name, Devices: platform.Devices, MemoryBytes: platform.Memory[0], Bandwidth: platform.Bandwidth, Strategy: s.Name,
					Node: g.Node, Within: g.Within,
				}
				if err := g.solve(ctx, &p, source, platform, s); err != nil {
					return points, fmt.Errorf("%s, %d devices of %s, %s: %w", p.Chain, p.Devices, units.Precise(p.MemoryBytes), s.Name, err)
				}
				points = append(points, p)
				if g.Progress != nil {
					g.Progress(len(points), total)
				}
			}
		}
	}
	return points, nil
}

// platforms are the platforms of the sweep, for strategies that are not told of the host.
func (g *Pipelines) platforms() (all []pipeline.Platform) {
	for _, devices := range g.Devices {
		for _, bandwidth := range g.Bandwidths {
			for _, memory := range g.Memories {
				p := pipeline.NewPlatform(devices, memory, bandwidth)
				p.Levels = g.levels(devices, bandwidth)
				all = append(all, *p)
			}
		}
	}
	return all
}

// levels are the levels of a number of devices; nil: all are alike.
func (g *Pipelines) levels(devices int, between float64) []pipeline.Level {
	if g.Node == 0 || devices == 1 {
		return nil
	}
	inside := pipeline.Level{Devices: min(g.Node, devices), Bandwidth: g.Within}
	switch {
	case devices <= g.Node:
		return []pipeline.Level{inside}
	case g.Node == 1:
		return nil
	}
	return []pipeline.Level{inside, {Devices: devices / g.Node, Bandwidth: between}}
}

func (g *Pipelines) solve(ctx context.Context, p *PipelinePoint, source *profiles.Source, platform pipeline.Platform, s pipeline.Strategy) error {
	if strings.HasSuffix(s.Name, withHost) {
		platform.Host = g.Host
	}
	maker, on := s.Name, &platform
	if plan := g.Given[s.Name]; plan != nil {
		maker, on = plan.Strategy, plan.Platform
	}
	c, err := planner.ChainFor(source, maker, on)
	if err != nil {
		return err
	}
	plan, err := s.Solve(ctx, pipeline.Request{Chain: c, Platform: &platform, Options: g.Options})
	if late := (*pipeline.UnfinishedError)(nil); errors.As(err, &late) && late.Best != nil {
		plan, err = late.Best, nil
	}
	if err != nil {
		p.refused(err)
		return ctx.Err()
	}
	report, err := pipeline.Check(c, &platform, plan)
	if err != nil {
		return err
	}
	p.Fits, p.PerMinibatchS, p.Bubble, p.PeakBytes = true, report.PerMinibatch, report.Bubble, slices.Max(report.PerDevicePeak)
	if p.PerMinibatchS > 0 {
		p.Speedup = pipeline.NewCosts(c).U(1, c.Len()) / p.PerMinibatchS
	}
	return nil
}

// refused notes why there is no plan.
func (p *PipelinePoint) refused(err error) {
	p.Reason = err.Error()
	if small := (*pipeline.InfeasibleError)(nil); errors.As(err, &small) {
		p.Smallest, p.Reason, p.small = small.Smallest, small.Reason, true
	}
}

// Duel is how two strategies compare over the points of a sweep.
type Duel struct {
	A, B         string
	Points       int     // platforms where both were tried
	Both         int     // where both fit
	OnlyA, OnlyB int     // where one alone fits
	Faster       int     // where both fit and A is faster by more than 1 %
	Slower       int     // ... slower by more than 1 %
	Ratio        float64 // geometric mean over both of B's time over A's: above 1 A is faster
	Best         float64 // the largest such ratio
}

// Compare compares two strategies of a sweep.
func Compare(points []PipelinePoint, a, b string) Duel {
	d := Duel{A: a, B: b}
	sum := 0.0
	for _, x := range points {
		i := slices.IndexFunc(points, func(y PipelinePoint) bool { return y.Strategy == b && samePlace(x, y) })
		if x.Strategy != a || i < 0 {
			continue
		}
		y := points[i]
		d.Points++
		switch {
		case x.Fits && y.Fits:
			ratio := y.PerMinibatchS / x.PerMinibatchS
			d.Both, d.Best, sum = d.Both+1, max(d.Best, ratio), sum+math.Log(ratio)
			if ratio > 1.01 {
				d.Faster++
			} else if ratio < 1/1.01 {
				d.Slower++
			}
		case x.Fits:
			d.OnlyA++
		case y.Fits:
			d.OnlyB++
		}
	}
	if d.Both > 0 {
		d.Ratio = math.Exp(sum / float64(d.Both))
	}
	return d
}

func samePlace(x, y PipelinePoint) bool {
	return cmp.Or(cmp.Compare(x.Chain, y.Chain), cmp.Compare(x.Devices, y.Devices), cmp.Compare(x.MemoryBytes, y.MemoryBytes), cmp.Compare(x.Bandwidth, y.Bandwidth)) == 0
}

// Duels compares the last of the strategies with every other one.
func (g *Pipelines) Duels(points []PipelinePoint) (all []Duel) {
	last := len(g.Strategies) - 1
	for _, s := range g.Strategies[:last] {
		all = append(all, Compare(points, g.Strategies[last].Name, s.Name))
	}
	return all
}
