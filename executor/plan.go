package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Extra fields of the plan of a training step: the arena's limit, its static part, and the extent of the layout.
const (
	ArenaField  = "arena_bytes"
	StaticField = "static_bytes"
	ExtentField = "extent_bytes"
	// CopiesField is the host memory for what the plan offloads.
	CopiesField = "host_copies_bytes"
	// OrderField is "sizes" where the step is issued in the order of times in proportion to bytes (Workload.Unmeasured), whose layout fits;
	// absent where it is that of the measured times.
	OrderField = "issue_order"
)

// TooSmallError says that no plan of a strategy fits in the arena of each device.
type TooSmallError struct {
	Strategy string
	Limit    int64 // bytes of each arena asked for
	Smallest int64 // the smallest arena known to work with this strategy
	Found    bool  // as in pipeline.InfeasibleError
	Static   int64 // of which weights, gradients and optimizer state; 0 of plans that move them
	// Op is the op with the highest memory in the sequence for Smallest, of layer LayerName. Plans with stages name the device of Devices that
	// needs most instead; sequences have 0 Devices.
	Op              schedule.Op
	LayerName       string
	Device, Devices int
}

func (e *TooSmallError) Error() string {
	each, by := "", ""
	switch {
	case e.Devices > 1:
		each, by = " on each device", fmt.Sprintf(", needed by device %d", e.Device)
	case e.Devices == 0:
		by = fmt.Sprintf(", needed by %v (%s)", e.Op, e.LayerName)
	}
	that := (&pipeline.InfeasibleError{Found: e.Found}).That()
	static := ""
	if e.Static > 0 {
		static = fmt.Sprintf(", of which %s are static", units.Bytes(e.Static))
	}
	return fmt.Sprintf("%s: a limit of %s%s is too small: the smallest %s is %s%s%s",
		e.Strategy, units.Precise(e.Limit), each, that, units.Precise(e.Smallest), static, by)
}

// Plan plans a training step of a measured chain for an arena of limit bytes, static memory included, such that the layout fits too. If
// fragmentation makes a sequence's layout too large, Plan asks the strategy again for less memory, by the excess. Transfers use the chain's
// link (LinkOf); with a tolerance auto counts the time that transfers take from computation (ContentionOf). The plan's Memory is the part
// of the arena that is left to the chain. With transfers, whose timing depends on it, Memory is the limit that the strategy was last given.
// Errors: *TooSmallError, *schedule.HostMemoryError, strategy.ErrBranches, those of the strategy.
func Plan(ctx context.Context, w *Workload, c *chain.Chain, s pipeline.Strategy, limit int64, opt strategy.Options) (*pipeline.Plan, error) {
	p := &drafter{w: w, c: c, s: s, limit: limit, opt: opt, link: LinkOf(c)}
	if opt.Tolerance > 0 { // else the fastest plan by simulation is wanted
		p.opt.Contention = ContentionOf(c)
	}
	return p.draft(ctx)
}

// draft makes the plan.
func (p *drafter) draft(ctx context.Context) (*pipeline.Plan, error) {
	w, limit, opt := p.w, p.limit, p.opt
	memory := limit - w.StaticBytes()
	for round := 0; ; round++ {
		seq, err := p.solve(ctx, max(memory, 0))
		if inf := (*pipeline.InfeasibleError)(nil); errors.As(err, &inf) {
			return p.smallest(ctx, inf)
		}
		if err != nil {
			return nil, err
		}
		plan, at, err := p.plan(seq, memory)
		switch over := at.Copies - opt.HostMemory; {
		case err != nil:
			return nil, err
		case plan == nil:
			memory -= p.less(memory, seq, at, round)
		case opt.HostMemory > 0 && over > 0:
			if p.opt.HostMemory -= over; p.opt.HostMemory <= 0 {
				return nil, &schedule.HostMemoryError{Needed: at.Copies, Limit: opt.HostMemory}
			}
		default:
			return plan, nil
		}
	}
}

// patience is how many rounds of a draft ask for exactly as much less as stuck out. Nearly every plan needs one, few more than three.
const patience = 8

// less returns how many bytes less to ask for next, when a sequence's layout is too large. It is a multiple of the excess, such that the
// sequence, which is the answer wherever it fits, no longer fits. Layouts of sequences with transfers may stick out by a few bytes time and
// again. After the patient rounds each round asks for twice as much less as the one before, so that their number grows with the logarithm
// of the memory.
func (p *drafter) less(memory int64, seq schedule.Sequence, at Layout, round int) int64 {
	over, times := at.Extent-p.limit, int64(1)
	if spare := memory - (at.Peak - p.w.StaticBytes()); !transfers(seq) && spare > 0 {
		times += spare / over
	}
	hurry := int64(1) << min(max(round-patience, 0), 20)
	return over * max(times, hurry)
}

// drafter plans one training step.
type drafter struct {
	w     *Workload
	c     *chain.Chain
	s     pipeline.Strategy
	limit int64
	opt   strategy.Options
	link  schedule.Link

	winner string // of the latest solution, as in pipeline.Plan
	sized  bool   // the chain's times are those of bySizes
}

// solve asks the strategy for a plan in so much memory.
func (p *drafter) solve(ctx context.Context, memory int64) (schedule.Sequence, error) {
	limits := schedule.Limits{Memory: memory, Link: p.link, Host: p.opt.HostMemory}
	plan, err := p.s.Solve(ctx, pipeline.Request{Chain: p.c, Platform: pipeline.OneDevice(limits), Sequences: p.opt})
	if err != nil {
		return nil, err
	}
	p.winner = plan.Winner
	return plan.Sequence(), nil
}

// smallest returns the plan for the smallest memory that the strategy works at, if its layout fits.
func (p *drafter) smallest(ctx context.Context, inf *pipeline.InfeasibleError) (*pipeline.Plan, error) {
	seq, err := p.solve(ctx, inf.Smallest)
	if err != nil {
		return nil, fmt.Errorf("%s at its smallest limit: %w", p.s.Name, err)
	}
	plan, at, err := p.plan(seq, inf.Smallest)
	if err != nil || plan != nil {
		return plan, err
	}
	small := &TooSmallError{
		Strategy: p.s.Name, Limit: p.limit, Smallest: at.Extent, Found: inf.Found || at.Extent > inf.Smallest+p.w.StaticBytes(), Static: p.w.StaticBytes(), Op: inf.Op, LayerName: inf.LayerName,
	}
	if p.sized || !transfers(seq) && !p.w.Model.Wiring().Joins() {
		return nil, small
	}
	plan, err = p.bySizes(ctx)
	if less, ok := errors.AsType[*TooSmallError](err); ok && less.Smallest < small.Smallest {
		small = less
	}
	if err != nil {
		return nil, small
	}
	return plan, nil
}

// bySizes plans as if times were in proportion to bytes. The holes of a layout depend on when transfers end, and the recomputed
// layers of branches on their times. So the least memory changes with the times by a few percent. A limit that was promised before
// anything was measured belongs to this plan.
func (p *drafter) bySizes(ctx context.Context) (*pipeline.Plan, error) {
	sized := *p
	sized.c, sized.sized = p.w.Unmeasured(), true
	sized.link = schedule.Link{Bandwidth: sized.c.Bandwidth, Duplex: p.link.Duplex}
	found, err := sized.draft(ctx)
	if err != nil {
		return nil, err
	}
	limits := found.Limits()
	limits.Link = p.link
	plan, err := pipeline.PlanSequence(p.c, p.s.Name, found.Sequence(), limits)
	if err != nil {
		return nil, err
	}
	plan.PerDevicePeak = found.PerDevicePeak // that of the order in which it runs
	plan.Winner, plan.Extra = found.Winner, found.Extra
	if transfers(found.Sequence()) {
		plan.Extra[OrderField] = json.RawMessage(`"sizes"`)
	}
	return plan, nil
}

// Following returns the simulation that a plan's layout follows.
func Following(c *chain.Chain, p *pipeline.Plan) Sim {
	s := Sim{Chain: c, Limits: p.Limits()}
	if _, ok := p.Extra[OrderField]; ok {
		sized := *c
		sized.Layers = slices.Clone(c.Layers)
		s.Chain = bySizes(&sized)
		s.Limits.Link.Bandwidth = s.Chain.Bandwidth
	}
	return s
}

// Staged returns a plan of a workload as a plan of the same workload with room for the next batch (Workload.Stage). The sequence
// stays the same. If its layout has no such room, or its predicted time exceeds the time with the batch's copy ahead of the
// step, Staged returns the plan as it is.
func Staged(w *Workload, c *chain.Chain, p *pipeline.Plan, limit int64) *pipeline.Plan {
	if _, sized := p.Extra[OrderField]; sized { // of a limit that has no room
		return p
	}
	d := &drafter{
		w: w, c: c, s: pipeline.Strategy{Name: p.Strategy}, limit: limit, opt: strategy.Options{HostMemory: p.Limits().Host},
		link: p.Limits().Link, winner: p.Winner,
	}
	staged, _, err := d.plan(p.Sequence(), min(p.Limits().Memory, limit-w.StaticBytes()))
	if err != nil || staged == nil {
		return p
	}
	if extent, err := w.evaluationExtent(); err != nil || extent > limit {
		return p
	}
	hidden := 0.0
	if c.Bandwidth > 0 {
		hidden = float64(w.Model.Input.Bytes()*int64(w.Model.Wiring().Inputs())) / c.Bandwidth
	}
	if staged.Predicted.Makespan > p.Predicted.Makespan+hidden {
		return p
	}
	return staged
}

// plan makes a sequence a plan if its layout fits in the arena, and returns the layout. A sequence with transfers is simulated,
// and laid out, with memory bytes.
func (p *drafter) plan(seq schedule.Sequence, memory int64) (*pipeline.Plan, Layout, error) {
	limits := schedule.Limits{Memory: p.limit - p.w.StaticBytes(), Link: p.link, Host: p.opt.HostMemory}
	if transfers(seq) {
		limits.Memory = memory
	}
	at, err := p.w.Layout(seq, p.w.StaticBytes()+limits.Memory, Sim{Chain: p.c, Limits: limits})
	if err != nil || at.Extent > p.limit {
		return nil, at, err
	}
	plan, err := pipeline.PlanSequence(p.c, p.s.Name, seq, limits)
	if err != nil {
		return nil, at, err
	}
	plan.Winner, plan.Extra = p.winner, map[string]json.RawMessage{}
	for field, bytes := range map[string]int64{
		ArenaField: p.limit, StaticField: p.w.StaticBytes(), ExtentField: at.Extent, CopiesField: at.Copies,
	} {
		plan.Extra[field] = fmt.Append(nil, bytes)
	}
	if staged := p.w.StagedBytes(); staged > 0 {
		plan.Extra[StagedField] = fmt.Append(nil, staged)
	}
	return plan, at, nil
}
