package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	"plimsoll/executor/train"
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

// planFlags are the flags of plimsoll plan.
type planFlags struct {
	chain    string
	memory   units.Size
	strategy string
	link     planLink
	options  strategyFlags
	pipe     pipelineFlags

	memoryGiven bool
	budget      time.Duration
	out         string
	text        bool
	list        bool
}

// planLink says which link to host memory a plan may use.
type planLink struct {
	bandwidth units.Bandwidth
	duplex    bool
	host      units.Size
}

func (f *planLink) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.Var(&f.host, "host-memory", "limit of the host memory for what leaves the device: 4GiB (default: none)")
	s.Var(&f.bandwidth, "bandwidth", "bandwidth of the link to host memory: 12GB/s (default: that of the chain)")
	s.BoolVar(&f.duplex, "duplex", false, "the link has a queue for each direction")
}

// of returns the link of the flags, or else the one that the chain was measured with.
func (f *planLink) of(c *chain.Chain) (schedule.Link, error) {
	l := executor.LinkOf(c)
	if err := noShare("--host-memory", f.host); err != nil {
		return l, err
	}
	if f.bandwidth > 0 {
		l.Bandwidth = float64(f.bandwidth)
	}
	l.Duplex = l.Duplex || f.duplex
	if f.duplex && l.Bandwidth == 0 {
		return l, usage(errors.New("--duplex without a link: the chain has no bandwidth, give --bandwidth 12GB/s"))
	}
	return l, nil
}

func (a *app) plan() *cobra.Command {
	f := &planFlags{}
	cmd := command("plan", "Plan a measured chain under a memory limit", `Plan the step of a chain file under a memory limit, and print what it costs.

The limit counts activations and gradients of activations, the input included; weights are counted by train, which
knows them. A share is one of the peak of store-all, the step that recomputes nothing. With a link, plans may also move
activations to host memory and back. Beside the makespan stands a bound that no plan is below, with the gap to it.

With --devices or --platform the chain is cut into stages on several devices, and the plan is a pipeline. Then the memory is that of
each device and counts weights too, and --bandwidth is that of the links between devices.`, nil)
	cmd.Example = `  plimsoll plan -c c.json --memory 4GiB --strategy rotor -o p.json
  plimsoll plan -c c.json --memory 40% --text
  plimsoll plan -c c.json --devices 4 --memory 8GiB --bandwidth 12GB/s --strategy madpipe --svg p.svg
  plimsoll plan --list`
	s := cmd.Flags()
	s.StringVarP(&f.chain, "chain", "c", "", "chain file")
	s.Var(&f.memory, "memory", "memory limit: 4GiB, 512MB, 123, or a share as 40%")
	s.StringVar(&f.strategy, "strategy", auto.Name, "strategy; --list shows them (default of a pipeline: "+defaultPipeline+", with --microbatches or --versions flush "+defaultFlush+")")
	f.link.register(cmd)
	f.options.register(cmd)
	f.options.registerTolerance(cmd)
	f.pipe.register(cmd)
	optionsOf(cmd).DurationVar(&f.budget, "auto.budget", 0, "")
	s.StringVarP(&f.out, "output", "o", "", "write the plan file here")
	s.BoolVar(&f.text, "text", false, "print the sequence in its text form, one token an op")
	s.BoolVar(&f.list, "list", false, "list the strategies with their papers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.list {
			return a.listStrategies()
		}
		if err := f.pipe.check(cmd); err != nil {
			return err
		}
		f.memoryGiven = cmd.Flags().Changed("memory")
		if f.pipe.wanted() {
			if !cmd.Flags().Changed("strategy") {
				if f.strategy = defaultPipeline; asksFlush(max(f.pipe.microbatches, f.pipe.batch), f.pipe.versions) {
					f.strategy = defaultFlush
				}
			}
			return a.runPipeline(cmd.Context(), f)
		}
		return a.runPlan(cmd.Context(), f)
	}
	return cmd
}

// listed is a strategy in the list.
type listed struct {
	Name      string `json:"name"`
	Summary   string `json:"summary"`
	Paper     string `json:"paper"`
	Section   string `json:"section"`
	NeedsLink bool   `json:"needs_link"`
	Missing   string `json:"missing,omitempty"` // why this build does not have it

	Options []string `json:"options,omitempty"` // of --option
}

// strategyList is what plan --list prints.
type strategyList struct {
	Strategies []listed `json:"strategies"`
	Pipelines  []listed `json:"pipelines"` // for several devices
}

func (a *app) listStrategies() error {
	list := strategyList{}
	for _, s := range slices.Concat(planner.Sequences(), planner.Joins()) {
		list.Strategies = append(list.Strategies, listed{s.Name, s.Summary, s.Paper, s.Section, planner.NeedsLink(s.Name), "", optionsNamed(s.Name)})
	}
	if _, err := planner.Lookup(remat.Checkmate); err != nil {
		list.Strategies = append(list.Strategies, listed{Name: remat.Checkmate, Missing: err.Error()})
	}
	for _, s := range planner.Pipelines() {
		list.Pipelines = append(list.Pipelines, listed{Name: s.Name, Summary: s.Summary, Paper: s.Paper, Section: s.Section, Options: optionsNamed(s.Name)})
	}
	return a.print(list, func(w io.Writer) {
		for _, s := range list.Strategies {
			s.write(w)
		}
		fmt.Fprintln(w, "\nfor several devices (--devices or --platform):")
		for _, s := range list.Pipelines {
			s.write(w)
		}
	})
}

func (s *listed) write(w io.Writer) {
	if s.Missing != "" {
		fmt.Fprintf(w, "%-15s not in this build\n%-15s   %s\n", s.Name, "", s.Missing)
		return
	}
	link := ""
	if s.NeedsLink {
		link = " (needs a link)"
	}
	fmt.Fprintf(w, "%-15s %s%s\n%-15s   %s, %s\n", s.Name, s.Summary, link, "", s.Paper, s.Section)
	for _, name := range s.Options {
		fmt.Fprintf(w, "%-15s   --option %s\n", "", name)
	}
}

// planFigures is what plan and check print: seconds and bytes.
type planFigures struct {
	Chain       string       `json:"chain"`
	Strategy    string       `json:"strategy"`
	Winner      string       `json:"winner,omitempty"`       // as in pipeline.Plan
	MemoryBytes int64        `json:"memory_bytes,omitempty"` // 0 when there is no limit
	MakespanS   float64      `json:"makespan_s"`
	PeakBytes   int64        `json:"peak_bytes"`
	IdleS       float64      `json:"idle_s"`
	LowerBoundS float64      `json:"lower_bound_s"` // no sequence is faster; 0 when it does not hold for this one, see addBounds
	Gap         train.Number `json:"gap"`           // null where it is no number
	// OffloadBoundS is the bound of sequences that recompute nothing, for such a one with transfers.
	OffloadBoundS float64 `json:"offload_bound_s,omitempty"`
	StoreAllS     float64 `json:"store_all_s"`
	StoreAllBytes int64   `json:"store_all_peak_bytes"`
	Ops           int     `json:"ops"`
	Forwards      int     `json:"forwards"`
	Transfers     int     `json:"transfers"`
	Layers        int     `json:"layers"`
	Sequence      string  `json:"sequence"`

	Auto *autoFigures `json:"auto,omitempty"`
	// Of check --noise: how robust the plan is.
	Noise *noiseFigures `json:"noise,omitempty"`
}

func (a *app) runPlan(ctx context.Context, f *planFlags) error {
	c, choice, err := f.read()
	if err != nil {
		return err
	}
	all, err := storeAll(c)
	if err != nil {
		return err
	}
	problem := strategy.Problem{Chain: c, Memory: f.memory.Of(all.Peak), Options: f.options.Options}
	if problem.Link, err = f.link.of(c); err != nil {
		return err
	}
	if problem.Tolerance > 0 && problem.Link == executor.LinkOf(c) { // as it was measured
		problem.Contention = executor.ContentionOf(c)
	}
	problem.HostMemory = f.link.host.Bytes
	p, err := f.plan(ctx, choice, problem)
	if err != nil {
		return err
	}
	if err := (&anyPlan{c, p, p.Platform}).write(planFiles{f.out, f.pipe.svg, f.pipe.trace}); err != nil {
		return err
	}
	figures, err := figuresOf(c, p, p.Limits(), all)
	if err != nil {
		return err
	}
	figures.Auto = choice.figures()
	if least := p.Predicted.LowerBound; least > figures.LowerBoundS {
		figures.LowerBoundS, figures.Gap = least, train.Number(bound.Gap(p.Predicted.Makespan, least))
	}
	return a.print(figures, func(w io.Writer) {
		if f.text {
			fmt.Fprintln(w, p.Sequence())
			return
		}
		figures.write(w)
	})
}

// plan plans, within the budget where there is one.
func (f *planFlags) plan(ctx context.Context, choice *choice, problem strategy.Problem) (*pipeline.Plan, error) {
	if f.budget == 0 {
		return choice.Solve(ctx, problem.Request())
	}
	ctx, cancel := context.WithTimeout(ctx, f.budget)
	defer cancel()
	p, err := choice.Solve(ctx, problem.Request())
	if errors.Is(err, context.DeadlineExceeded) {
		err = usage(fmt.Errorf("--option auto.budget=%v is too little for a first plan: give more, or --strategy rotor", f.budget))
	}
	if refusal, ok := errors.AsType[*pipeline.InfeasibleError](err); ok && refusal.Tried > 0 {
		err = fmt.Errorf("%w in %v", err, f.budget)
	}
	return p, err
}

// read checks the flags and reads what they name.
func (f *planFlags) read() (*chain.Chain, *choice, error) {
	opt := auto.Options{}
	if f.budget > 0 {
		opt.Steps = math.MaxInt
	}
	s, err := choose(f.strategy, opt)
	if err != nil {
		return nil, s, err
	}
	if err := required("--chain", f.chain, "-c c.json"); err != nil {
		return nil, s, err
	}
	switch {
	case f.memory.IsZero():
		return nil, s, usage(errors.New("--memory is missing or 0: give it, as in --memory 4GiB or --memory 40%"))
	case f.budget > 0 && f.strategy != auto.Name:
		return nil, s, usage(fmt.Errorf("--budget is %v with --strategy %s: it goes only with auto", f.budget, f.strategy))
	}
	if err := (planFiles{f.out, f.pipe.svg, f.pipe.trace}).writable(f.chain); err != nil {
		return nil, s, err
	}
	c, err := readChain(f.chain)
	return c, s, err
}

// storeAll simulates the step that recomputes nothing.
func storeAll(c *chain.Chain) (*schedule.Result, error) {
	return schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
}

// figuresOf returns what a plan costs within limits, beside store-all.
func figuresOf(c *chain.Chain, p *pipeline.Plan, l schedule.Limits, all *schedule.Result) (*planFigures, error) {
	seq := p.Sequence()
	f := &planFigures{
		Chain: c.Name, Strategy: p.Strategy, Winner: p.Winner, MakespanS: p.Predicted.Makespan, PeakBytes: p.Peak(), IdleS: p.Predicted.Idle,
		StoreAllS: all.Makespan, StoreAllBytes: all.Peak, Ops: len(seq), Layers: c.Len(), Sequence: seq.String(),
	}
	if l.Memory != schedule.NoLimit {
		f.MemoryBytes = l.Memory
	}
	for _, op := range seq {
		switch {
		case op.Kind.Transfer():
			f.Transfers++
		case op.Kind != schedule.Backward:
			f.Forwards++
		}
	}
	return f, f.addBounds(c, l)
}

// addBounds adds what no plan within the limits is below. A stranger's plan can be one of those that the bound does not cover, see
// package bound; then there is none.
func (f *planFigures) addBounds(c *chain.Chain, l schedule.Limits) error {
	if len(c.Branches) > 0 { // the bounds are those of chains
		return nil
	}
	least, err := bound.Seconds(c, l)
	if err != nil {
		return err
	}
	if least <= f.MakespanS*(1+1e-9) {
		f.LowerBoundS, f.Gap = least, train.Number(bound.Gap(f.MakespanS, least))
	}
	if f.Transfers == 0 || f.Forwards > f.Layers {
		return nil
	}
	f.OffloadBoundS, err = offload.FractionalBound(strategy.Problem{Chain: c, Memory: l.Memory, Link: l.Link})
	if is[*pipeline.InfeasibleError](err) { // it recomputes nothing, but does not save everything either
		err = nil
	}
	return err
}

// write prints the figures for people.
func (f *planFigures) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "chain\t%s, %d layers\n", f.Chain, f.Layers)
	fmt.Fprintf(w, "strategy\t%s\n", pipeline.Name(f.Strategy, f.Winner))
	if f.Strategy == remat.Checkmate {
		fmt.Fprintln(w, "\tits rounded relaxation is a weak peer beyond 8 layers; rotor-exact is what to compare with")
	}
	if f.MemoryBytes > 0 {
		fmt.Fprintf(w, "limit\t%s, %s of store-all's peak\n", units.Bytes(f.MemoryBytes), share(float64(f.MemoryBytes), float64(f.StoreAllBytes)))
	}
	fmt.Fprintf(w, "peak\t%s\n", units.Precise(f.PeakBytes))
	fmt.Fprintf(w, "makespan\t%s, %s of store-all's %s\n", units.Seconds(f.MakespanS), share(f.MakespanS, f.StoreAllS), units.Seconds(f.StoreAllS))
	switch {
	case f.LowerBoundS > 0 && f.Gap == 0:
		fmt.Fprintf(w, "bound\t%s: no plan is faster, this one is optimal\n", units.Seconds(f.LowerBoundS))
	case f.LowerBoundS > 0:
		fmt.Fprintf(w, "bound\t%s: no plan is faster, the gap is %s\n", units.Seconds(f.LowerBoundS), percent(float64(f.Gap)))
	}
	if f.OffloadBoundS > 0 {
		fmt.Fprintf(w, "\t%s when nothing is recomputed\n", units.Seconds(f.OffloadBoundS))
	}
	if f.Transfers > 0 {
		fmt.Fprintf(w, "idle\t%s waiting for %d transfers\n", units.Seconds(f.IdleS), f.Transfers)
	}
	fmt.Fprintf(w, "ops\t%d: %d forwards, of which %d again\n", f.Ops, f.Forwards, f.Forwards-f.Layers)
	_ = w.Flush() // of a buffer
	if f.Auto != nil {
		f.Auto.write(out)
	}
}

// share prints a part of a whole in per cent.
func share(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	if part/whole > beyond {
		return beyondText
	}
	return fmt.Sprintf("%.1f%%", 100*(part/whole))
}
