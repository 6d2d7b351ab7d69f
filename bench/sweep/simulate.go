package sweep

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Simulation is a grid over a chain, with limits low + alpha·(high - low) (thesis, section 4.4.1). The low end
// is the least memory in which a persistent sequence exists, the high end the peak of store-all.
type Simulation struct {
	Chain      *chain.Chain
	Alphas     []float64
	Links      []schedule.Link
	Strategies []pipeline.Strategy // those that can do nothing with a link run once
	Given      []Given             // beside the strategies
	Options    strategy.Options
}

// Given is a plan that somebody else made, under the name of its file.
type Given struct {
	Name string
	Plan *pipeline.Plan
}

// links are the links that the plan runs with: any of all, or else its own, when it moves something.
func (g *Given) links(all []schedule.Link) []schedule.Link {
	switch {
	case !slices.ContainsFunc(g.Plan.Sequence(), func(op schedule.Op) bool { return op.Kind.Transfer() }):
		return []schedule.Link{{}}
	case len(all) == 0 && g.Plan.Limits().Link.Bandwidth > 0:
		return []schedule.Link{g.Plan.Limits().Link}
	}
	return all
}

// contender is who plans at every limit, with some links.
type contender struct {
	pipeline.Strategy
	links []schedule.Link
	input string // as in Key
}

// contenders are the strategies and the plans that are given. The points of a plan depend on the plan, too.
func (s *Simulation) contenders(input string) (all []contender, err error) {
	for _, one := range s.Strategies {
		all = append(all, contender{one, s.links(one.Name), input})
	}
	for _, g := range s.Given {
		its, err := Digest(input, g.Plan.Sequence())
		if err != nil {
			return nil, err
		}
		all = append(all, contender{pipeline.Given(g.Name, g.Plan), g.links(s.Links), its})
	}
	return all, nil
}

// Run adds the points that the store does not know. progress, which may be nil, is called after each.
func (s *Simulation) Run(ctx context.Context, store *Store, progress func(done, total int)) error {
	base, err := s.base(ctx)
	if err != nil {
		return err
	}
	contenders, err := s.contenders(base.Input)
	if err != nil {
		return err
	}
	done, total := 0, s.Count()
	for _, alpha := range s.Alphas {
		for _, one := range contenders {
			for _, link := range one.links {
				p := base
				p.Input = one.input
				p.Strategy, p.Bandwidth, p.Duplex, p.Alpha = one.Name, link.Bandwidth, link.Duplex, alpha
				p.MemoryBytes = p.LowBytes + int64(alpha*float64(p.StoreAllBytes-p.LowBytes))
				if !store.Has(p.Key) {
					if err := s.point(ctx, &p, one.Strategy); err != nil {
						return fmt.Errorf("%s, %s with %s: %w", s.Chain.Name, one.Name, units.Precise(p.MemoryBytes), err)
					}
					if err := store.Add(p); err != nil {
						return err
					}
				}
				if done++; progress != nil {
					progress(done, total)
				}
			}
		}
	}
	return nil
}

// Count is the number of points.
func (s *Simulation) Count() (n int) {
	for _, one := range s.Strategies {
		n += len(s.Alphas) * len(s.links(one.Name))
	}
	for _, g := range s.Given {
		n += len(s.Alphas) * len(g.links(s.Links))
	}
	return n
}

// links are the links that a strategy is run with: none of them matters to one that moves nothing.
func (s *Simulation) links(name string) []schedule.Link {
	if len(s.Links) > 0 && (planner.NeedsLink(name) || name == auto.Name) {
		return s.Links
	}
	if planner.NeedsLink(name) {
		return nil
	}
	return []schedule.Link{{}}
}

// base fills in what all points of a chain have.
func (s *Simulation) base(ctx context.Context) (Point, error) {
	c := s.Chain
	all, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return Point{}, err
	}
	exact, err := remat.Exact(ctx, c)
	if err != nil {
		return Point{}, err
	}
	digest, err := Digest(c, s.Options)
	p := Point{
		Key: Key{Source: Simulated, Chain: c.Name, Input: digest}, Device: c.Device, Batch: c.Batch,
		StoreAllS: all.Makespan, StoreAllBytes: all.Peak, LowBytes: exact.Breakpoints()[0].Memory, SavedBytes: c.InputBytes,
	}
	for l := 1; l <= c.Len(); l++ {
		p.SavedBytes += c.Saved(l)
	}
	return p, err
}

// Digest names the inputs of a sweep.
func Digest(inputs ...any) (string, error) {
	b, err := json.Marshal(inputs)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6]), err
}

// point plans and simulates one point.
func (s *Simulation) point(ctx context.Context, p *Point, one pipeline.Strategy) error {
	link := schedule.Link{Bandwidth: p.Bandwidth, Duplex: p.Duplex}
	problem := strategy.Problem{Chain: s.Chain, Memory: p.MemoryBytes, Link: link, Options: s.Options}
	plan, err := one.Solve(ctx, problem.Request())
	if small := (*pipeline.InfeasibleError)(nil); errors.As(err, &small) || errors.Is(err, remat.ErrTooLarge) {
		p.Refused, p.NotRun = err.Error(), small == nil
		return p.bounds(s.Chain, link)
	}
	if err != nil {
		return err
	}
	p.Seconds, p.PredictedS, p.PeakBytes = plan.Predicted.Makespan, plan.Predicted.Makespan, plan.Peak()
	if p.MovedBytes, err = Moved(s.Chain, plan.Sequence()); err != nil {
		return err
	}
	return p.bounds(s.Chain, link)
}

// bounds adds the lower bounds of the limit, which for measured points is that of the activations.
func (p *Point) bounds(c *chain.Chain, link schedule.Link) (err error) {
	if p.BoundS, err = bound.Seconds(c, schedule.Limits{Memory: p.MemoryBytes, Link: link}); err != nil || link.Bandwidth == 0 {
		return err
	}
	p.OffloadBoundS, err = offload.LowerBound(strategy.Problem{Chain: c, Memory: p.MemoryBytes, Link: link})
	if small := (*pipeline.InfeasibleError)(nil); errors.As(err, &small) {
		err = nil
	}
	return err
}

// Moved returns the bytes that a sequence moves to host memory in one step. Errors: those of schedule.Simulate.
func Moved(c *chain.Chain, seq schedule.Sequence) (bytes int64, err error) {
	if !slices.ContainsFunc(seq, func(op schedule.Op) bool { return op.Kind == schedule.Offload }) {
		return 0, nil
	}
	// At 1 byte/s a transfer takes as many seconds as it moves bytes.
	r, err := schedule.Simulate(c, seq, schedule.Limits{Memory: schedule.NoLimit, Link: schedule.Link{Bandwidth: 1}})
	if err != nil {
		return 0, err
	}
	for p, op := range seq {
		if op.Kind == schedule.Offload {
			bytes += int64(r.End[p] - r.Start[p] + 0.5)
		}
	}
	return bytes, nil
}

// Periodic is the fastest plan with segments of equal length, and rotor's in the same memory (thesis, section 2.4.5).
type Periodic struct {
	Chain           string
	Segments        int
	PeakBytes       int64
	PeriodicS       float64
	RotorS          float64
	Limits          int     // with how many other numbers of segments the two were compared
	MeanGain        float64 // over all of them: by which part rotor's throughput is higher
	Least, Greatest float64
}

// Gain is by which part rotor's throughput is higher than that of the fastest periodic plan: 0.13 is 13 per cent.
func (p *Periodic) Gain() float64 { return p.PeriodicS/p.RotorS - 1 }

// ComparePeriodic compares plans of 2 to 2√n segments with rotor at their peaks. It returns nil for a chain too short for two.
func ComparePeriodic(ctx context.Context, c *chain.Chain) (*Periodic, error) {
	out := &Periodic{Chain: c.Name}
	exact, err := remat.Exact(ctx, c)
	if err != nil {
		return nil, err
	}
	for k := 2; k < c.Len() && k*k <= 4*c.Len(); k++ { // the loss is in no segment
		periodic, peak, err := periodicIn(ctx, c, k)
		if err != nil {
			return nil, err
		}
		seq, err := exact.Sequence(peak)
		if err != nil {
			return nil, err
		}
		best, err := schedule.Simulate(c, seq, schedule.Limits{Memory: peak})
		if err != nil {
			return nil, err
		}
		out.add(k, peak, periodic, best.Makespan)
	}
	if out.Limits == 0 {
		return nil, nil
	}
	out.MeanGain /= float64(out.Limits)
	return out, nil
}

func periodicIn(ctx context.Context, c *chain.Chain, segments int) (seconds float64, peak int64, err error) {
	s, err := planner.Lookup("periodic")
	if err != nil {
		return 0, 0, err
	}
	plan, err := s.Solve(ctx, strategy.Problem{Chain: c, Memory: schedule.NoLimit, Options: strategy.Options{Segments: segments}}.Request())
	if err != nil {
		return 0, 0, err
	}
	return plan.Predicted.Makespan, plan.Peak(), nil
}

func (p *Periodic) add(segments int, peak int64, periodic, rotor float64) {
	gain := periodic/rotor - 1
	if p.Limits == 0 || periodic < p.PeriodicS {
		p.Segments, p.PeakBytes, p.PeriodicS, p.RotorS = segments, peak, periodic, rotor
	}
	if p.Limits == 0 {
		p.Least, p.Greatest = gain, gain
	}
	p.Least, p.Greatest = min(p.Least, gain), max(p.Greatest, gain)
	p.MeanGain += gain
	p.Limits++
}
