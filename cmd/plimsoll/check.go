package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/schedule"
)

// checkFlags are the flags of plimsoll check.
type checkFlags struct {
	chain     string
	plan      planInput
	memory    units.Size
	bandwidth units.Bandwidth
	duplex    bool
	platform  string
	noise     noiseFlags
}

func (a *app) check() *cobra.Command {
	f := &checkFlags{}
	cmd := command("check", "Verify and simulate a plan, ours or not", `Verify a plan against the rules of a chain, and simulate its time and memory.

The plan is a plan file, or the text form of a sequence (Fck1 F2 Fall3 B3 ...) in a file or given with --text; -p -
reads standard input. A plan with stages is a pipeline, judged on its own platform or that of --platform. So is a table of
PyTorch's pipeline schedules, a CSV with a row for each rank; without a chain a forward takes 1 s, a backward 2 s and
communication no time. The printed actions of checkpoint_schedules are a sequence too. A plan that breaks a rule ends with
exit code 2 and names the op; one that does not fit in the limit (--memory, or else the plan's own) ends with 3.

--noise asks how robust a pipeline is: its tasks run in the planned order, each as soon as it can, many times over, with every
duration multiplied by a factor of its own, drawn evenly from 1 minus to 1 plus the noise. All of that is simulated.`, nil)
	cmd.Example = `  plimsoll check -c c.json -p p.json --memory 4GiB
  plimsoll check -c c.json --text "Fall1 Fall2 B2 B1"
  plimsoll check -c c.json -p pipeline.json --platform platform.json
  plimsoll check -c c.json -p pipeline.json --noise 10% --runs 1000
  plimsoll check -p schedule.csv`
	s := cmd.Flags()
	s.StringVarP(&f.chain, "chain", "c", "", "chain file, or what plimsoll import reads")
	f.plan.register(cmd)
	s.Var(&f.memory, "memory", "memory limit (default: the plan's)")
	s.Var(&f.bandwidth, "bandwidth", "bandwidth of the link to host memory, of a pipeline that between devices (default: the plan's)")
	s.StringVar(&f.platform, "platform", "", "platform file, for pipelines (default: the plan's)")
	s.BoolVar(&f.duplex, "duplex", false, "the link has a queue for each direction (default: as the plan says)")
	f.noise.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runCheck(cmd.Context(), f) }
	return cmd
}

func (a *app) runCheck(ctx context.Context, f *checkFlags) error {
	if err := f.noise.check(); err != nil {
		return err
	}
	text, err := f.plan.read(a.in)
	switch {
	case err == nil && f.plan.isTable(text):
		return a.checkSchedule(ctx, f, text)
	case f.chain == "" && !interop.IsTable(f.plan.path):
		return required("--chain", f.chain, "-c c.json")
	case err != nil:
		return err
	case isPipeline(text):
		return a.checkPipeline(ctx, f, text)
	case f.noise.wanted():
		return usage(fmt.Errorf("%s: --noise is for pipelines: the plan is for one device", &f.plan))
	}
	return a.checkSequence(f, text)
}

// checkSequence judges a plan for one device.
func (a *app) checkSequence(f *checkFlags, text string) error {
	c, err := readChain(f.chain)
	if err != nil {
		return err
	}
	p, err := f.plan.sequence(text, c)
	if err != nil {
		return err
	}
	all, err := storeAll(c)
	if err != nil {
		return err
	}
	limits := f.limits(p, all.Peak)
	r, err := schedule.Simulate(c, p.Sequence(), limits)
	if err != nil {
		return fmt.Errorf("%s: %w", &f.plan, enough(c, p.Sequence(), limits, err))
	}
	a.comparePredicted(p, r)
	p.Predict(r)
	figures, err := figuresOf(c, p, limits, all)
	if err != nil {
		return err
	}
	a.noteUnfetched(p.Sequence())
	return a.print(figures, func(w io.Writer) {
		figures.write(w)
		if r.PeakOp >= 0 {
			op := p.Sequence()[r.PeakOp]
			fmt.Fprintf(w, "the peak is at op %d, %v (%s)\n", r.PeakOp, op, c.Layer(op.Layer).Name)
		}
		fmt.Fprintln(w, "the plan keeps every rule")
	})
}

// sequenceError is that of a sequence over its limit, with the limit at which it works.
type sequenceError struct {
	error
	limit, peak int64 // bytes
	index       int
	op          schedule.Op
	layer       string
}

func (e *sequenceError) Error() string {
	return fmt.Sprintf("%v; without waiting it needs %s, at op %d, %v (%s)", e.error, units.Precise(e.peak), e.index, e.op, e.layer)
}

func (e *sequenceError) Unwrap() error { return e.error }

// enough adds to the error of a sequence over its limit which limit it works at, and which op needs it, and to that of a missing
// link what to give. A sequence that never waits for memory runs at its peak without a limit.
func enough(c *chain.Chain, seq schedule.Sequence, l schedule.Limits, err error) error {
	if errors.Is(err, schedule.ErrNoLink) {
		return fmt.Errorf("%w: give that of the link, as in --bandwidth 12GB/s", err)
	}
	if !is[*schedule.MemoryError](err) {
		return err
	}
	limit := l.Memory
	l.Memory = schedule.NoLimit
	r, failed := schedule.Simulate(c, seq, l)
	if failed != nil || r.PeakOp < 0 {
		return err
	}
	op := seq[r.PeakOp]
	return &sequenceError{err, limit, r.Peak, r.PeakOp, op, c.Layer(op.Layer).Name}
}

// missingPrefetch says what to add when an op lacks what an offload before it took away; "" for other errors.
func missingPrefetch(seq schedule.Sequence, err error) string {
	var broken *schedule.RuleError
	if !errors.As(err, &broken) || broken.Op.Kind.Transfer() || broken.Index == len(seq) {
		return ""
	}
	layers := []int{broken.Op.Layer} // whose inputs the op reads
	if broken.Op.Kind == schedule.Backward {
		layers = append(layers, broken.Op.Layer+1)
	}
	for _, layer := range layers {
		at, op := lastTransfer(seq[:broken.Index], layer)
		if op.Kind == schedule.Offload && at >= 0 {
			return fmt.Sprintf("; %v at op %d took it away and nothing brings it back: add %v before op %d",
				op, at, schedule.Op{Kind: schedule.Prefetch, Layer: layer}, broken.Index)
		}
	}
	return ""
}

// lastTransfer returns the last transfer of the input of a layer and its position, -1 when there is none.
func lastTransfer(seq schedule.Sequence, layer int) (int, schedule.Op) {
	for at, op := range slices.Backward(seq) {
		if op.Layer == layer && op.Kind.Transfer() {
			return at, op
		}
	}
	return -1, schedule.Op{}
}

// noteUnfetched notes the offloads of a valid plan whose data nothing needs any more.
func (a *app) noteUnfetched(seq schedule.Sequence) {
	for at, op := range seq {
		if op.Kind != schedule.Offload {
			continue
		}
		if last, _ := lastTransfer(seq, op.Layer); last == at {
			a.note("note: %v at op %d is never prefetched: nothing reads what it moves, and a forward_discard frees it without a transfer", op, at)
		}
	}
}

func (f *checkFlags) limits(p *pipeline.Plan, storeAll int64) schedule.Limits {
	l := p.Limits()
	if !f.memory.IsZero() {
		l.Memory = f.memory.Of(storeAll)
	}
	if f.bandwidth > 0 {
		l.Link.Bandwidth = float64(f.bandwidth)
	}
	l.Link.Duplex = l.Link.Duplex || f.duplex
	return l
}

// comparePredicted notes where a plan file promises something else than its simulation gives.
func (a *app) comparePredicted(p *pipeline.Plan, r *schedule.Result) {
	if p.Peak() != 0 && p.Peak() != r.Peak {
		a.note("note: the plan predicts a peak of %s, its simulation gives %s", units.Precise(p.Peak()), units.Precise(r.Peak))
	}
	if m := p.Predicted.Makespan; m != 0 && math.Abs(m-r.Makespan) > 1e-9*r.Makespan {
		a.note("note: the plan predicts a makespan of %v s, its simulation gives %v s", m, r.Makespan)
	}
}
