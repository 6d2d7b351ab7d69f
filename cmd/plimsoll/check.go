package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/profiles"
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

--noise asks how robust a plan is: its tasks, or its ops, run in the planned order, each as soon as it can, many times over, with every
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
	}
	source, err := profiles.ReadSource(f.chain)
	if err != nil {
		return usage(err)
	}
	p, err := f.plan.known(text, source, f.platform)
	if err != nil {
		return err
	}
	if p.plan.IsSequence() {
		return a.checkSequence(ctx, f, p)
	}
	if p.platform, err = f.devices(p.platform); err != nil {
		return err
	}
	return a.judge(ctx, f, p, &pipelineFigures{}, func() {})
}

// checkSequence judges a plan for one device.
func (a *app) checkSequence(ctx context.Context, f *checkFlags, p *anyPlan) error {
	all, err := storeAll(p.chain)
	if err != nil {
		return err
	}
	p.platform = f.limits(p.platform, all.Peak)
	report, err := pipeline.Check(p.chain, p.platform, p.plan)
	if err != nil {
		return fmt.Errorf("%s: %w", &f.plan, enough(p, err))
	}
	a.noteWarnings(report)
	p.plan.Predict(report.Sequence)
	figures, err := figuresOf(p.chain, p.plan, p.platform.Limits(0), all)
	if err != nil {
		return err
	}
	if figures.Noise, err = f.noisy(ctx, p, report); err != nil {
		return err
	}
	a.noteUnfetched(p.plan.Sequence())
	return a.print(figures, func(w io.Writer) {
		figures.write(w)
		if at := report.Sequence.PeakOp; at >= 0 {
			op := p.plan.Sequence()[at]
			fmt.Fprintf(w, "the peak is at op %d, %v (%s)\n", at, op, p.chain.Layer(op.Layer).Name)
		}
		fmt.Fprintln(w, "the plan keeps every rule")
		if figures.Noise != nil {
			figures.Noise.write(w)
		}
	})
}

// noisy runs a valid plan with noise; nil where that is not asked for.
func (f *checkFlags) noisy(ctx context.Context, p *anyPlan, r *pipeline.Report) (*noiseFigures, error) {
	if !f.noise.wanted() {
		return nil, nil
	}
	n, err := f.noise.run(ctx, p.chain, p.platform, p.plan, r)
	if err != nil {
		return nil, fmt.Errorf("%s: --noise %v: %w", &f.plan, &f.noise.fraction, err)
	}
	return n, nil
}

// noteWarnings notes where a plan promises something else than was found.
func (a *app) noteWarnings(r *pipeline.Report) {
	for _, w := range r.Warnings {
		a.note("note: %s", w)
	}
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

// enough adds to the error of a plan for one device over its limit which limit it works at, and which op needs it, and to that of a missing
// link what to give. A sequence that never waits for memory runs at its peak without a limit.
func enough(p *anyPlan, err error) error {
	if errors.Is(err, schedule.ErrNoLink) {
		return fmt.Errorf("%w: give that of the link, as in --bandwidth 12GB/s", err)
	}
	if !is[*schedule.MemoryError](err) {
		return err
	}
	r, failed := pipeline.Check(p.chain, p.platform.WithMemory(pipeline.NoLimit), p.plan)
	if failed != nil || r.Sequence.PeakOp < 0 {
		return err
	}
	at := r.Sequence.PeakOp
	op := p.plan.Sequence()[at]
	return &sequenceError{err, p.platform.Memory[0], r.Sequence.Peak, at, op, p.chain.Layer(op.Layer).Name}
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

// limits returns the platform of a plan for one device with what the flags say about it.
func (f *checkFlags) limits(p *pipeline.Platform, storeAll int64) *pipeline.Platform {
	q := *p
	if !f.memory.IsZero() {
		q = *q.WithMemory(f.memory.Of(storeAll))
	}
	if f.bandwidth > 0 {
		q.Host = float64(f.bandwidth)
	}
	q.Duplex = q.Duplex || f.duplex
	return &q
}
