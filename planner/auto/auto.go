// Package auto plans with every strategy that makes sense for a problem and returns the best plan, and why.
//
// The members of the portfolio are the strategies of remat and, where there is a link, those of offload and pofo; where branches meet they
// are those of multichain. Each
// result is judged by simulation under the true rules, and the best few are improved by local moves (package improve). So
// auto is never slower than any member that it runs, or by no more than Problem.Tolerance where that saves transfers. It has
// no clock: the same problem gives the same report, unless the context ends first.
package auto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"plimsoll/internal/await"
	"plimsoll/internal/units"
	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/multichain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pofo"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Name is the name of the strategy.
const Name = "auto"

// DefaultTolerance is the strategy.Options.Tolerance of commands: repeated runs of one plan differ by more.
const DefaultTolerance = 0.01

// Strategy returns the registry entry.
func Strategy() strategy.Sequencer {
	return strategy.Sequencer{
		Name:    Name,
		Summary: "the best of all the others by simulation, improved by local moves",
		Paper:   `this program, after A. Shilova, "Memory saving strategies for deep neural network training", Université de Bordeaux, 2021`,
		Section: "chapters 2 to 4; docs/strategies.md",
		Joins:   true,
		Solve: func(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
			r, err := Plan(ctx, p, Options{})
			if err != nil {
				return nil, err
			}
			return r.Sequence, nil
		},
	}
}

// Members returns the strategies of chains that auto can run with a link, in the order in which ties are decided.
func Members(link schedule.Link) []strategy.Sequencer {
	if link.Bandwidth == 0 {
		return remat.Strategies()
	}
	return slices.Concat(remat.Strategies(), offload.Strategies(), pofo.Strategies())
}

// Options say how much auto does beyond its members.
type Options struct {
	// Steps is the number of simulations in which each of the best results is improved; the whole search ends after twice as
	// many. The default, 0, means about a second of simulations, and an earlier end when nothing helps. A negative number means
	// no improvement. With a positive number, a limit that all members refuse is searched too, in the same number of simulations.
	Steps int
}

// reach is how long a chain may be for a member, with the loss. It has the longest chain that the member plans as it is, and the most
// groups of layers of a longer chain. Such a chain takes about ten seconds of one core if it is a hard one.
type reach struct{ whole, groups int }

var reaches = map[string]reach{
	"periodic": {5000, 5000}, "revolve": {120, 90}, "rotor": {1600, 1200}, "rotor-exact": {502, 502}, "rotor-floating": {40, 40},
	remat.BranchAndBound: {502, 502},
	"dtr":                {2000, 2000}, remat.Checkmate: {24, 16}, "offload-dynprog": {800, 500}, "vdnn": {5000, 5000}, "tflms": {200, 120},
	"autoswap": {2000, 2000}, "opportunist": {120, 80}, "capper": {1000, 600}, "autocapper": {180, 108}, "pofo": {180, 108},
	"least-memory": {1024, 1000},
}

// autoStates is the default of Options.States: in auto, branch-and-bound is one of many.
const autoStates = 1 << 16

// long is the length of chains from which members plan fewer groups: half as many each time that the length doubles. All members together
// then take about as long as for a chain of so many layers.
const long = 1600

// group returns how many of n layers a member plans as one.
func group(name string, n int) int {
	r, limited := reaches[name]
	if !limited || n <= r.whole {
		return 1
	}
	groups := r.groups
	for length := long; length < n; length *= 2 {
		groups = max(groups/2, fewest)
	}
	return (n + groups - 3) / (groups - 1) // the loss is a group of its own
}

// fewest is how many groups of layers a member plans at least.
const fewest = 16

// stages are run one after another, the members of one together. When a member of a stage reaches the lower bound,
// the later ones are not run: nothing can be better. A member of none of the others is in the second.
var stages = [][]string{
	{"store-all"},
	nil,
	{"revolve", "rotor-exact", "opportunist", "capper", "autocapper"},
	{"rotor-floating", remat.BranchAndBound, remat.Checkmate, "offload-dynprog", "pofo"},
}

// Plan runs the portfolio, improves the best results and reports. When the context's deadline ends first, the report has
// the best of what was found until then; a context that was canceled is an error.
//
// Errors: *pipeline.InfeasibleError, with the smallest limit of any member, when none has a sequence; those of
// chain.Validate; remat.ErrTooLarge; offload.ErrLink; the context's.
func Plan(ctx context.Context, p strategy.Problem, opt Options) (*Report, error) {
	return await.Do(ctx, func() (*Report, error) { return plan(ctx, p, opt) })
}

func plan(ctx context.Context, p strategy.Problem, opt Options) (*Report, error) {
	if b := p.Link.Bandwidth; !(b >= 0) || math.IsInf(b, 1) {
		return nil, fmt.Errorf("%w: the bandwidth is %v bytes/s: give that of the link, above 0, or 0 for no link", offload.ErrLink, b)
	}
	if n := p.Chain.Len(); n > remat.MaxLayers {
		return nil, fmt.Errorf("%s: %w: %d layers with the loss, the limit is %d: group layers", Name, remat.ErrTooLarge, n, remat.MaxLayers)
	}
	least, err := lowest(p)
	if err != nil {
		return nil, err
	}
	members := Members(p.Link)
	if joins(p) {
		members, opt.Steps = multichain.Strategies(), -1
	}
	p.States = cmp.Or(p.States, autoStates)
	a := &portfolio{Problem: p, bound: least}
	for _, s := range members {
		a.entries = append(a.entries, &entry{member: s, Candidate: Candidate{Strategy: s.Name}})
	}
	for k := range stages {
		a.stage(ctx, k)
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, err // members that were left alone may still write to their entries
	}
	for _, e := range a.entries {
		a.bound = max(a.bound, e.proved)
	}
	if len(a.ranking()) == 0 && p.Link.Bandwidth == 0 && !joins(p) {
		a.least(ctx)
	}
	if len(a.ranking()) == 0 {
		if err := a.refusal(ctx); opt.Steps <= 0 || !errors.As(err, new(*pipeline.InfeasibleError)) {
			return nil, err
		}
		tried, lowest, err := a.search(ctx, opt.Steps)
		if err != nil {
			return nil, err
		}
		if len(a.ranking()) == 0 {
			return nil, a.searched(tried, lowest)
		}
	}
	r, err := a.report(ctx, opt)
	if err != nil {
		return nil, err
	}
	if p.Chosen != nil {
		p.Chosen(r.Made())
	}
	if p.Proved != nil {
		p.Proved(r.Bound)
	}
	return r, nil
}

// joins reports whether branches meet in the chain, which other members plan, and no local moves.
func joins(p strategy.Problem) bool { return len(p.Chain.Branches) > 0 }

// lowest returns a makespan that no sequence is below: where branches meet, that of every op once.
func lowest(p strategy.Problem) (seconds float64, err error) {
	if !joins(p) {
		return bound.Seconds(p.Chain, p.Limits())
	}
	for i := range p.Chain.Layers {
		seconds += p.Chain.Layers[i].ForwardS + p.Chain.Layers[i].BackwardS
	}
	return seconds, p.Chain.Validate()
}

// least adds least-memory, which is a member only of problems with a link: it knows the smallest limit of chains that rotor-exact plans
// in groups.
func (a *portfolio) least(ctx context.Context) {
	s := pofo.Alone()
	e := &entry{member: s, Candidate: Candidate{Strategy: s.Name}}
	e.run(ctx, a.Problem)
	a.entries = append(a.entries, e)
}

// stage runs the members of a stage, as many at a time as there are processors.
func (a *portfolio) stage(ctx context.Context, k int) {
	best := a.ranking()
	done := len(best) > 0 && bound.Gap(best[0].Makespan, a.bound) == 0 && a.Contention*best[0].Transfer == 0
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for _, e := range a.entries {
		switch {
		case stageOf(e.Strategy) != k:
		case done:
			e.Reason = fmt.Sprintf("not run: %s has reached the lower bound", best[0].Strategy)
		default:
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				e.run(ctx, a.Problem)
			})
		}
	}
	wg.Wait()
}

func stageOf(name string) int {
	for k, names := range stages {
		if slices.Contains(names, name) {
			return k
		}
	}
	return 1
}

// run lets the member plan and judges what it returns.
func (e *entry) run(ctx context.Context, p strategy.Problem) {
	e.Group = group(e.Strategy, p.Chain.Len())
	seq, err := e.plan(ctx, p)
	if err == nil {
		err = e.judge(p, seq)
	}
	e.err = err
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason = "not done in the time given"
	case err != nil:
		e.Reason = reason(err)
	}
}

// plan asks the member, about groups of layers if the chain is long.
func (e *entry) plan(ctx context.Context, p strategy.Problem) (schedule.Sequence, error) {
	if e.Group == 1 {
		p.Proved = func(bound float64) { e.proved = bound }
		return e.member.Within(ctx, p)
	}
	whole := p.Chain
	p.Proved = nil // of groups
	var err error
	if p.Chain, err = chain.GroupEvery(whole, e.Group); err != nil {
		return nil, err
	}
	seq, err := e.member.Within(ctx, p)
	return schedule.Ungroup(seq, whole.LastsOfEvery(e.Group)), err
}

// reason says why a member has no sequence.
func reason(err error) string {
	if small, ok := errors.AsType[*pipeline.InfeasibleError](err); ok {
		return fmt.Sprintf("does not fit: it needs %s", units.Bytes(small.Smallest))
	}
	return err.Error()
}

// refusal is the error when no member has a sequence: the smallest limit that works with any of them, or why not
// even that is known.
func (a *portfolio) refusal(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: no strategy was done in the time given: %w", Name, err)
	}
	var least *pipeline.InfeasibleError
	var other error
	for _, e := range a.entries {
		if small, ok := errors.AsType[*pipeline.InfeasibleError](e.err); !ok {
			other = firstOf(other, e.err)
		} else if least == nil || small.Smallest < least.Smallest {
			least = small
		}
	}
	if least == nil {
		return other
	}
	refusal := *least
	refusal.Strategy = Name
	// Of all sequences there are, members return a few.
	refusal.Found = joins(a.Problem) || refusal.Smallest > bound.Memory(a.Chain, a.Link.Bandwidth > 0)
	return &refusal
}

// searched is the refusal after a search.
func (a *portfolio) searched(tried int, lowest *walk) error {
	refusal, _ := errors.AsType[*pipeline.InfeasibleError](a.refusal(context.Background()))
	refusal.Tried = tried
	if lowest != nil && lowest.peak < refusal.Smallest {
		refusal.Smallest, refusal.Op, refusal.LayerName = lowest.peak, lowest.bind, a.Chain.Layer(lowest.bind.Layer).Name
	}
	return refusal
}

func firstOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
