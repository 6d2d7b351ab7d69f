package pofo

// pofo: persistent rematerialization with offloading during the forward phase only.
//
// Paper: A. Shilova, thesis, chapter 4, Theorem 12, with three repairs. A run of forwards may end at the last layer
// before the loss. No gradient is stored in the forward phase. The input of the loss stays on the device. The thesis
// rounds sizes up to N = 50 cells, which loses the smallest limits of real chains. Here sizes are exact, and N bounds
// how many alternatives are kept (types segments and forward); chains of up to about 8 layers lose none.
//
// The program runs twice: as printed, and with the rule of real transfers. As printed, memory goes piece by piece while
// it is transferred. With the rule, memory is free when the whole activation has left (type queue). Both propose; the
// sequences of the cheapest solutions are simulated together with rotor-exact's, offload-dynprog's and autocapper's,
// and the best of each are improved by local moves (package improve). So pofo is never slower than these.
//
// Complexity: O(n^3·N^2) for the segments, O(n^2·S·N) for the forward phase with S states a layer. A solution is cut
// off if, with the ops that must be run again elsewhere, it cannot beat the best sequence known so far. In real chains
// nearly everything is cut off.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"plimsoll/internal/parallel"
	"plimsoll/planner/improve"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// DefaultCells is N of the thesis.
const DefaultCells = 50

const (
	maxCells    = 1000
	maxStates   = 512     // S, of a layer
	maxFollowed = 1 << 15 // states of all layers together that are followed by their bound
	spread      = 64      // the longest chain whose coarse runs keep states all over, not by their bound
	coarsest    = 16      // the first runs keep so much less, to find how much of the rest can be cut off
	maxEndings  = 300     // solutions of one run that are simulated
	finalists   = 3       // sequences of one run that are improved
	maxSteps    = 3000    // simulations to improve one
	maxWork     = 1 << 19 // ops in all of these simulations
)

func solvePofo(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	s, err := newPofo(p)
	if err != nil {
		return nil, err
	}
	least := s.newLeast(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := least.refuse("pofo", p); err != nil {
		return nil, err
	}
	if err := s.propose(ctx); err != nil {
		return nil, err
	}
	return s.winner("pofo")
}

// pofo is one run of the strategy.
type pofo struct {
	*costs
	*contest
	cells    int                 // N
	improved []schedule.Sequence // from which local moves have begun
}

func newPofo(p strategy.Problem) (*pofo, error) {
	k, err := newCosts(p)
	if err != nil {
		return nil, err
	}
	cells := p.PofoSlots
	if cells == 0 {
		cells = DefaultCells
	}
	if cells < 1 || cells > maxCells {
		return nil, fmt.Errorf("%w: %d slots: pofo takes 1 to %d", ErrOptions, p.PofoSlots, maxCells)
	}
	c, err := newContest(p, finalists)
	if err != nil {
		return nil, err
	}
	return &pofo{costs: k, contest: c, cells: cells}, nil
}

// propose enters the candidates, first those of the strategies that do one thing alone.
func (s *pofo) propose(ctx context.Context) error {
	if err := s.others(ctx); err != nil {
		return err
	}
	if err := s.improve(ctx, slices.Clone(s.best)); err != nil {
		return err
	}
	for coarse := coarsest; coarse >= 1; coarse /= 4 {
		if err := s.solve(ctx, coarse); err != nil {
			return err
		}
	}
	return nil
}

// solve enters what both runs of the program propose when they keep so many times fewer alternatives, and improves it.
func (s *pofo) solve(ctx context.Context, coarse int) error {
	if s.excess() == 0 {
		return nil
	}
	cells, states := max(s.cells/coarse, 1), maxStates/coarse
	g := &segments{costs: s.costs, limit: float64(s.Memory), excess: s.excess(), cells: cells}
	if err := g.solve(ctx); err != nil {
		return err
	}
	var tails *tails
	if coarse == 1 || s.n > spread { // short chains have the time to look elsewhere, too, before they follow the bound
		tails, states = g.tails(), min(2*maxStates, maxFollowed/s.n)/coarse
	}
	runs := []*contest{nil, nil}
	errs := make([]error, len(runs))
	longest := s.must(1, s.n) + s.excess()
	err := parallel.For(ctx, len(runs), func(_ *struct{}, i int) {
		f := &forward{costs: s.costs, segments: g, tails: tails, limit: g.limit, longest: longest, cells: cells, most: states, whole: i == 0}
		runs[i], errs[i] = s.follow(ctx, f)
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	var starts []candidate
	for _, run := range runs {
		for _, c := range run.best {
			s.enter(c.seq)
			starts = append(starts, c)
		}
	}
	return s.improve(ctx, starts)
}

// follow runs the program once and returns a contest of the sequences of its cheapest solutions.
func (s *pofo) follow(ctx context.Context, f *forward) (*contest, error) {
	ends, err := f.solve(ctx)
	if err != nil {
		return nil, err
	}
	run, err := newContest(s.Problem, finalists)
	if err != nil {
		return nil, err
	}
	for _, e := range ends[:min(len(ends), maxEndings)] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d := f.rebuild(e)
		run.place(d.compute, d.gaps, d.loss+1)
	}
	return run, nil
}

// maxCapped bounds the chains for which autocapper's frontier is worth its time.
const maxCapped = 128

// others enters what rotor-exact, offload-dynprog and, unless the chain is long, autocapper find. A limit or a chain that
// is not for them is no error.
func (s *pofo) others(ctx context.Context) error {
	for _, other := range slices.Concat(remat.Strategies(), offload.Strategies()) {
		if !slices.Contains([]string{"rotor-exact", "offload-dynprog"}, other.Name) {
			continue
		}
		seq, err := other.Solve(ctx, s.Problem)
		if err == nil {
			s.enter(seq)
			continue
		}
		if _, infeasible := errors.AsType[*pipeline.InfeasibleError](err); !infeasible && !errors.Is(err, remat.ErrTooLarge) {
			return err
		}
	}
	if s.n > maxCapped {
		return nil
	}
	return s.capAll(ctx)
}

// excess returns by how much a candidate may exceed the unavoidable time, in bytes. It is a little more than the best
// candidate's excess, so that rounding cuts nothing off.
func (s *pofo) excess() float64 {
	if len(s.best) == 0 {
		return math.Inf(1)
	}
	must := s.must(1, s.n)
	excess := s.best[0].makespan*s.bandwidth - must
	if excess <= 1e-9*must {
		return 0
	}
	return excess + 1e-9*must
}

// improve enters what local moves make of candidates, once of each.
func (s *pofo) improve(ctx context.Context, starts []candidate) error {
	for _, start := range starts {
		if s.excess() == 0 {
			return nil
		}
		if slices.ContainsFunc(s.improved, func(have schedule.Sequence) bool { return slices.Equal(have, start.seq) }) {
			continue
		}
		s.improved = append(s.improved, start.seq)
		search, err := improve.New(s.Chain, s.limits(), start.seq)
		if err != nil {
			return err
		}
		if err := search.Run(ctx, min(maxSteps, maxWork/len(start.seq))); err != nil {
			return err
		}
		seq, _ := search.Best()
		s.enter(seq)
	}
	return nil
}
