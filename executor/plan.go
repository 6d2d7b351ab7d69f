package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Extra fields of the plan of a training step: the arena's limit, its static part, and the extent of the layout.
const (
	ArenaField  = "arena_bytes"
	StaticField = "static_bytes"
	ExtentField = "extent_bytes"
)

// TooSmallError says that no plan of a strategy fits in an arena.
type TooSmallError struct {
	Strategy string
	Limit    int64 // bytes of the arena asked for
	Smallest int64 // the smallest arena known to work with this strategy
	Static   int64 // of which weights, gradients and optimizer state
	// Op is the op with the highest memory in the plan for Smallest, of layer LayerName.
	Op        schedule.Op
	LayerName string
}

func (e *TooSmallError) Error() string {
	return fmt.Sprintf("%s: a limit of %d bytes is too small: the smallest that works is %d bytes (%d of them static), needed by %v (%s)",
		e.Strategy, e.Limit, e.Smallest, e.Static, e.Op, e.LayerName)
}

// Plan plans a training step of a measured chain for an arena of limit bytes, static memory included, such that the
// layout fits as well: where fragmentation makes a sequence stick out, the strategy is asked again for so much less.
// The plan's Memory is what the arena leaves to the chain. Errors: *TooSmallError, those of the strategy.
func Plan(ctx context.Context, w *Workload, c *chain.Chain, s strategy.Strategy, limit int64, opt strategy.Options) (*schedule.Plan, error) {
	static := w.StaticBytes()
	memory := limit - static
	for {
		seq, err := s.Solve(ctx, strategy.Problem{Chain: c, Memory: max(memory, 0), Options: opt})
		if inf := (*strategy.InfeasibleError)(nil); errors.As(err, &inf) {
			if seq, err = smallest(ctx, w, c, s, limit, inf, opt); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, err
		}
		extent, err := w.Extent(seq)
		if err != nil {
			return nil, err
		}
		if extent <= limit {
			return trainingPlan(c, s.Name, seq, limit, static, extent)
		}
		memory -= extent - limit
	}
}

// smallest returns the sequence for the smallest memory that the strategy works at, if its layout fits.
func smallest(ctx context.Context, w *Workload, c *chain.Chain, s strategy.Strategy, limit int64, inf *strategy.InfeasibleError, opt strategy.Options) (schedule.Sequence, error) {
	seq, err := s.Solve(ctx, strategy.Problem{Chain: c, Memory: inf.Smallest, Options: opt})
	if err != nil {
		return nil, fmt.Errorf("%s at its smallest limit: %w", s.Name, err)
	}
	extent, err := w.Extent(seq)
	if err != nil {
		return nil, err
	}
	if extent > limit {
		return nil, &TooSmallError{Strategy: s.Name, Limit: limit, Smallest: extent, Static: w.StaticBytes(), Op: inf.Op, LayerName: inf.LayerName}
	}
	return seq, nil
}

func trainingPlan(c *chain.Chain, name string, seq schedule.Sequence, limit, static, extent int64) (*schedule.Plan, error) {
	p, err := schedule.NewPlan(c, name, seq, schedule.Limits{Memory: limit - static})
	if err != nil {
		return nil, err
	}
	p.Extra = map[string]json.RawMessage{}
	for field, bytes := range map[string]int64{ArenaField: limit, StaticField: static, ExtentField: extent} {
		p.Extra[field] = fmt.Append(nil, bytes)
	}
	return p, nil
}
