package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
)

// noFit is an error of a plan that would run with more memory.
type noFit struct{ error }

func (e noFit) Unwrap() error { return e.error }

// pipelineFigures is what check finds about a pipeline: with --json SI base units.
type pipelineFigures struct {
	Chain        string    `json:"chain,omitempty"`
	Strategy     string    `json:"strategy"`
	Kind         string    `json:"kind"` // periodic or flush
	Valid        bool      `json:"valid"`
	Violations   []string  `json:"violations,omitempty"`
	Devices      int       `json:"devices"`
	Stages       int       `json:"stages"`
	Microbatches int       `json:"microbatches,omitempty"`
	Batch        int       `json:"batch,omitempty"` // samples of a microbatch, or minibatch, where the plan says it
	Period       float64   `json:"period_s,omitempty"`
	Makespan     float64   `json:"makespan_s,omitempty"`
	PerMinibatch float64   `json:"seconds_per_minibatch"`
	LowerBound   float64   `json:"lower_bound_s,omitempty"` // of a minibatch, where the strategy has proved one
	Bubble       float64   `json:"bubble_fraction"`
	Busy         []float64 `json:"per_device_busy_s"`
	NCA          []int     `json:"nca_per_stage,omitempty"`
	Missed       [][2]int  `json:"missed_updates_per_stage,omitempty"` // fewest and most
	// Of stages with replicas and weights: when their gradients are added up.
	Replicated []replicatedStage `json:"synchronization,omitempty"`
	Peak       []int64           `json:"per_device_peak_bytes,omitempty"`
	Weights    []int64           `json:"per_device_weight_bytes,omitempty"`
	Buffers    []int64           `json:"per_device_buffer_bytes,omitempty"`
	// Of a schedule without plan: PyTorch's table.
	Deadlock bool  `json:"deadlock"`
	PeakLive []int `json:"peak_live_activations,omitempty"`
	// Of plan: where the stages are.
	Placed []placedStage `json:"placed,omitempty"`
	// Of check --noise: how robust the plan is.
	Noise *noiseFigures `json:"noise,omitempty"`

	stale []string // for people: of stages with replicas
}

// replicatedStage is when the gradients of a stage's replicas are added up.
type replicatedStage struct {
	Stage    int           `json:"stage"`
	Replicas int           `json:"replicas"`
	Zero     pipeline.Zero `json:"zero,omitempty"`
	Buckets  int           `json:"buckets"`
	Behind   float64       `json:"behind_s"`
}

// String says it in a line.
func (s replicatedStage) String() string {
	line := fmt.Sprintf("stage %d, %d replicas: ", s.Stage, s.Replicas)
	buckets, until := fmt.Sprintf("%d buckets", s.Buckets), units.Seconds(s.Behind)
	switch s.Buckets {
	case 0:
		return line + "that their gradients are added up takes no time in this plan"
	case 1:
		buckets = "1 bucket"
	}
	if s.Zero != pipeline.ZeroNothing {
		return line + fmt.Sprintf("each updates its part of %s (zero %d), and the new weights have come %s behind the last backward", buckets, s.Zero, until)
	}
	return line + fmt.Sprintf("their gradients are added up in %s, until %s behind the last backward", buckets, until)
}

// addRun adds what a run of a table found; it may not have come to its end.
func (p *pipelineFigures) addRun(s *interop.Schedule, r *interop.Run) {
	p.Strategy, p.Kind, p.Devices, p.Stages, p.Microbatches = s.Name, "flush", len(s.Rows), s.Stages, s.Microbatches
	p.Makespan, p.PerMinibatch, p.Bubble, p.Busy = r.Makespan, r.Makespan/float64(s.Microbatches), r.Bubble, r.Busy
	p.PeakLive, p.Deadlock = r.PeakLive, r.Deadlock()
}

func (p *pipelineFigures) add(plan *pipeline.Plan, r *pipeline.Report) {
	p.Chain, p.Strategy, p.Stages, p.Microbatches, p.Kind = plan.Chain, cmp.Or(plan.Strategy, "given"), len(plan.Stages), plan.Microbatches, "periodic"
	p.Batch = plan.Batch
	if plan.IsFlush() {
		p.Kind = "flush"
	}
	if r == nil {
		return
	}
	p.Period, p.Makespan, p.PerMinibatch, p.Bubble, p.Busy = r.Period, r.Makespan, r.PerMinibatch, r.Bubble, r.PerDeviceBusy
	p.LowerBound = r.LowerBound
	p.NCA, p.Peak, p.Weights, p.Buffers = r.NCA, r.PerDevicePeak, r.PerDeviceWeights, r.PerDeviceBuffers
	for _, s := range r.Replicated {
		p.Replicated = append(p.Replicated, replicatedStage(s))
	}
	if plan.Versions != pipeline.Stash && plan.Versions != pipeline.Latest {
		return
	}
	p.Missed = r.Missed
	for s, m := range r.Missed {
		if n := len(plan.Stages[s].Devices); n > 1 {
			p.stale = append(p.stale, fmt.Sprintf("stage %d, %d replicas: the weights of a forward miss %s", s, n, missed(m[0], m[1])))
		}
	}
}

// missed words how many updates are missed.
func missed(least, most int) string {
	switch {
	case least < most:
		return fmt.Sprintf("%d to %d updates", least, most)
	case most == 0:
		return "no update"
	case most == 1:
		return "1 update"
	}
	return fmt.Sprintf("%d updates", most)
}

func (p *pipelineFigures) write(w io.Writer) {
	fmt.Fprintf(w, "%s: %s pipeline of %d stages on %d devices", p.Strategy, p.Kind, p.Stages, p.Devices)
	if p.Microbatches > 0 {
		fmt.Fprintf(w, ", %d microbatches", p.Microbatches)
	}
	if p.Batch > 0 && p.Microbatches == 0 {
		fmt.Fprint(w, ", minibatches")
	}
	if p.Batch > 0 {
		fmt.Fprintf(w, " of %s, %.4g samples/s", units.Count(p.Batch, "sample"), float64(p.Batch)/p.PerMinibatch)
	}
	fmt.Fprintln(w)
	switch {
	case p.Period > 0:
		fmt.Fprintf(w, "period %s, %s a minibatch, bubble %s\n", units.Seconds(p.Period), units.Seconds(p.PerMinibatch), percent(p.Bubble))
	case p.Makespan > 0:
		fmt.Fprintf(w, "makespan %s, %s a microbatch, bubble %s\n", units.Seconds(p.Makespan), units.Seconds(p.PerMinibatch), percent(p.Bubble))
	}
	if p.LowerBound > 0 && p.PerMinibatch > 0 {
		fmt.Fprintf(w, "bound as the plan states it: with one stage on each device, and replicas in turn, no plan takes less than %s a minibatch, at most %s less\n", units.Seconds(p.LowerBound), percent(max(0, 1-p.LowerBound/p.PerMinibatch)))
	}
	for d := range p.Busy {
		fmt.Fprintf(w, "device %d: busy %s", d, units.Seconds(p.Busy[d]))
		if p.PeakLive != nil {
			fmt.Fprintf(w, ", at most %d live forwards", p.PeakLive[d])
		}
		if p.Peak != nil {
			fmt.Fprintf(w, ", peak %s (weights %s, buffers %s)", units.Bytes(p.Peak[d]), units.Bytes(p.Weights[d]), units.Bytes(p.Buffers[d]))
		}
		fmt.Fprintln(w)
	}
	for _, s := range p.Replicated {
		fmt.Fprintln(w, s)
	}
	for _, line := range slices.Concat(p.stale, p.Violations) {
		fmt.Fprintln(w, line)
	}
	if p.Valid {
		fmt.Fprintln(w, "the plan keeps every rule")
	}
	if p.Noise != nil {
		p.Noise.write(w)
	}
}

// devices returns a platform with what the flags say about it.
func (f *checkFlags) devices(p *pipeline.Platform) (*pipeline.Platform, error) {
	q := *p
	if f.bandwidth > 0 {
		q.Bandwidth, q.Levels, q.Pairs = float64(f.bandwidth), nil, nil
	}
	q.Duplex = q.Duplex || f.duplex
	if f.memory.IsZero() {
		return &q, nil
	}
	if f.memory.Of(0) != f.memory.Of(1<<40) {
		return nil, usage(fmt.Errorf("--memory is %v: a pipeline takes bytes, as in 4GiB", f.memory))
	}
	return q.WithMemory(f.memory.Of(0)), nil
}

// judge checks a plan, prints what was found, which more may add to, and returns the first violation.
func (a *app) judge(ctx context.Context, f *checkFlags, p *anyPlan, figures *pipelineFigures, more func()) error {
	report, err := pipeline.Check(p.chain, p.platform, p.plan)
	var invalid *pipeline.InvalidError
	if err != nil && !errors.As(err, &invalid) {
		return usage(fmt.Errorf("%s: %w", &f.plan, err))
	}
	figures.Devices, figures.Valid = p.platform.Devices, err == nil
	figures.add(p.plan, report)
	if report != nil {
		a.noteWarnings(report)
	}
	more()
	if invalid == nil {
		if figures.Noise, err = f.noisy(ctx, p, report); err != nil {
			return err
		}
	}
	if invalid != nil {
		for _, v := range invalid.Violations {
			figures.Violations = append(figures.Violations, v.Reason)
		}
	}
	if report != nil {
		if printed := a.print(figures, figures.write); printed != nil {
			return printed
		}
	}
	switch {
	case invalid == nil:
		return nil
	case invalid.OnlyMemory():
		return noFit{fmt.Errorf("%s: %w", &f.plan, err)}
	}
	return usage(fmt.Errorf("%s: %w", &f.plan, err))
}

// checkSchedule judges PyTorch's table of pipeline ops.
func (a *app) checkSchedule(ctx context.Context, f *checkFlags, text string) error {
	placed, run, err := f.plan.place(text, f.chain, func(p *pipeline.Platform) (*pipeline.Platform, error) {
		if f.platform != "" {
			var err error
			if p, err = pipeline.ReadPlatform(f.platform); err != nil {
				return nil, usage(err)
			}
		}
		return f.devices(p)
	})
	if err != nil {
		return err
	}
	figures := &pipelineFigures{}
	plan, err := placed.Plan(run)
	if err != nil {
		return a.refuseSchedule(f, placed.Schedule, run, figures)
	}
	return a.judge(ctx, f, &anyPlan{placed.Chain, plan, placed.Platform}, figures, func() { figures.addRun(placed.Schedule, run) })
}

// refuseSchedule prints how far a table that is no plan runs, and returns why it is none: the op that cannot run first.
func (a *app) refuseSchedule(f *checkFlags, s *interop.Schedule, r *interop.Run, figures *pipelineFigures) error {
	for _, v := range s.Violations() {
		figures.Violations = append(figures.Violations, v.String())
	}
	for _, stuck := range r.Stuck {
		figures.Violations = append(figures.Violations, stuck.String())
	}
	why := figures.Violations[0]
	if r.Deadlock() {
		why = r.Stuck[0].String()
	}
	figures.addRun(s, r)
	if err := a.print(figures, figures.write); err != nil {
		return err
	}
	return usage(fmt.Errorf("%s: %w: %s", &f.plan, interop.ErrIllegal, why))
}
