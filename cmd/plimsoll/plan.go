package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/executor"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/profiles"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
)

func newPlanCommand(a *app) *cobra.Command {
	c := &planCommand{app: a}
	cmd := command("plan", "Plan a measured chain under a memory limit", `Plan the step of a chain file under a memory limit, and print what it costs.

The limit counts activations and gradients of activations, the input included; weights are counted by train, which
knows them. A share is one of the peak of store-all, the step that recomputes nothing. With a link, plans may also move
activations to host memory and back. Beside the makespan stands a bound that no plan is below, with the gap to it.

With --devices or --platform the chain is cut into stages on several devices, and the plan is a pipeline. Then the memory is that of
each device and counts weights too, and --bandwidth is that of the links between devices.

With --model and --device the chain is estimated for a device that is not here. The memory is then that of the arena, with weights,
gradients and optimizer state, as train takes it (default: what the device has). All times are called estimated.`, nil)
	cmd.Example = `  plimsoll plan -c c.json --memory 4GiB --strategy rotor -o p.json
  plimsoll plan -c c.json --memory 40% --text
  plimsoll plan -c c.json --devices 4 --memory 8GiB --bandwidth 12GB/s --strategy madpipe --svg p.svg
  plimsoll plan -m gpt2-xl --length 1024 --batch 8 --dtype bf16 --device h100 --memory 20GiB --optimizer adamw
  plimsoll plan --list`
	s := cmd.Flags()
	s.StringVarP(&c.chain, "chain", "c", "", "chain file")
	c.job.registerModel(a, cmd)
	c.job.registerDevice(cmd)
	s.Var(&c.memory, "memory", "memory limit: 4GiB, 512MB, 123, or a share as 40%")
	s.StringVar(&c.strategy, "strategy", auto.Name, "strategy; --list shows them (default of a pipeline: "+defaultPipeline+", with stale --versions "+defaultStale+")")
	c.link.register(cmd)
	c.options.register(cmd)
	c.options.registerTolerance(cmd)
	c.pipe.register(cmd)
	optionsOf(cmd).DurationVar(&c.budget, "auto.budget", 0, "")
	s.StringVarP(&c.out, "output", "o", "", "write the plan file here")
	s.BoolVar(&c.text, "text", false, "print the sequence in its text form, one token an op")
	s.BoolVar(&c.list, "list", false, "list the strategies with their papers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.list {
			return c.listStrategies()
		}
		c.memoryGiven = cmd.Flags().Changed("memory")
		if err := c.checkModel(cmd); err != nil {
			return err
		}
		if c.job.model != "" {
			return c.runModel(cmd.Context())
		}
		if err := c.pipe.check(cmd, cyclic(c.strategy)); err != nil {
			return err
		}
		if c.pipe.wanted() && !cmd.Flags().Changed("strategy") {
			if c.strategy = defaultPipeline; asksStale(c.pipe.versions) {
				c.strategy = stales(c.pipe.versions)[0]
			}
		}
		return c.run(cmd.Context())
	}
	return cmd
}

func (c *planCommand) run(ctx context.Context) error {
	source, choice, err := c.read()
	if err != nil {
		return err
	}
	r, err := c.request(source, choice.Name)
	if err != nil {
		return err
	}
	p, err := c.planned(ctx, choice, r)
	if err != nil {
		return err
	}
	return c.writePlan(p, choice, nil)
}

// read checks the flags and reads what they name.
func (f *planFlags) read() (*profiles.Source, *choice, error) {
	s, err := f.choose()
	if err != nil {
		return nil, nil, err
	}
	if err := firstOf(required("--chain", f.chain, "-c c.json"), f.fit(s), f.files().writable(f.chain)); err != nil {
		return nil, nil, err
	}
	source, err := profiles.ReadSource(f.chain)
	return source, s, usage(err)
}

// fit refuses flags that the strategy would pass over, and one device without a limit.
func (f *planFlags) fit(s *choice) error {
	switch {
	case f.pipe.wanted():
		return f.pipe.fit(s.Strategy)
	case f.memory.IsZero():
		return usage(errors.New("--memory is missing or 0: give it, as in --memory 4GiB or --memory 40%"))
	case f.budget > 0 && f.strategy != auto.Name:
		return usage(fmt.Errorf("--budget is %v with --strategy %s: it goes only with auto", f.budget, f.strategy))
	}
	return nil
}

// request returns the flags' request to a strategy, for the chain of a source.
func (f *planFlags) request(source *profiles.Source, strategy string) (r pipeline.Request, err error) {
	r.Options = f.pipe.asked()
	if !f.pipe.wanted() {
		r.Chain, r.Sequences = source.Chain, f.options.Options
		l, err := f.limits(r.Chain)
		if r.Sequences.Tolerance > 0 && l.Link == executor.LinkOf(r.Chain) { // as it was measured
			r.Sequences.Contention = executor.ContentionOf(r.Chain)
		}
		r.Platform = pipeline.OneDevice(l)
		return r, err
	}
	if r.Platform, err = f.pipe.over(f, source.Chain); err != nil {
		return r, err
	}
	r.Chain, err = planner.ChainFor(source, strategy, r.Platform)
	return r, usage(err)
}

// limits returns the limits of one device.
func (f *planFlags) limits(c *chain.Chain) (l schedule.Limits, err error) {
	all, err := storeAll(c)
	if err != nil {
		return l, err
	}
	l.Memory, l.Host = f.memory.Of(all.Peak), f.link.host.Bytes
	l.Link, err = f.link.of(c)
	return l, err
}

// planned plans, within the budget where there is one. A search that has not ended gives its best plan.
func (c *planCommand) planned(ctx context.Context, s *choice, r pipeline.Request) (*anyPlan, error) {
	if c.budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.budget)
		defer cancel()
	}
	p, sized, err := c.pipe.solve(ctx, s.Strategy, r)
	if late, ok := errors.AsType[*pipeline.UnfinishedError](err); ok && late.Best != nil {
		c.note("%v", err)
		p, err = cmp.Or(p, late.Best), nil
	}
	switch refusal, ok := errors.AsType[*pipeline.InfeasibleError](err); {
	case err == nil:
		return &anyPlan{sized, p, r.Platform}, nil
	case c.budget > 0 && errors.Is(err, context.DeadlineExceeded):
		err = usage(fmt.Errorf("--option auto.budget=%v is too little for a first plan: give more, or --strategy rotor", c.budget))
	case c.budget > 0 && ok && refusal.Tried > 0:
		err = fmt.Errorf("%w in %v", err, c.budget)
	}
	return nil, err
}

// solve plans, at the batch size that trains most samples a second where the chain was profiled at several, or --batch says what makes a
// step. It returns the chain at that size, too.
func (f *pipelineFlags) solve(ctx context.Context, s pipeline.Strategy, r pipeline.Request) (*pipeline.Plan, *chain.Chain, error) {
	switch several := len(r.Chain.Others) > 0 && s.Type != pipeline.Sequencing; {
	case several && f.batch == 0 && s.Type == pipeline.Flushing:
		return nil, nil, usage(fmt.Errorf("--batch is missing: the chain was profiled at several batch sizes, say how many samples make a step, as in --batch %d", 8*r.Chain.Batch))
	case several || f.batch > 0:
		p, c, err := pipeline.SolveSizes(ctx, s, r, f.batch)
		if errors.Is(err, pipeline.ErrBatch) {
			err = usage(fmt.Errorf("--batch %d: %w", f.batch, err))
		}
		return p, c, err
	}
	p, err := s.Solve(ctx, r)
	return p, r.Chain, err
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

// strategyList is the JSON of plan --list.
type strategyList struct {
	Strategies []listed `json:"strategies"`
	Cyclic     []listed `json:"cyclic"`    // for one device, of weights and state
	Pipelines  []listed `json:"pipelines"` // for several devices
}

func (c *planCommand) listStrategies() error {
	list := strategyList{}
	for _, s := range slices.Concat(planner.Sequences(), planner.Joins()) {
		list.Strategies = append(list.Strategies, listed{s.Name, s.Summary, s.Paper, s.Section, planner.NeedsLink(s.Name), "", optionsNamed(s.Name)})
	}
	if _, err := planner.Lookup(remat.Checkmate); err != nil {
		list.Strategies = append(list.Strategies, listed{Name: remat.Checkmate, Missing: err.Error()})
	}
	for _, s := range planner.Cyclic() {
		list.Cyclic = append(list.Cyclic, listed{Name: s.Name, Summary: s.Summary, Paper: s.Paper, Section: s.Section, Options: optionsNamed(s.Name)})
	}
	for _, s := range planner.Pipelines() {
		list.Pipelines = append(list.Pipelines, listed{Name: s.Name, Summary: s.Summary, Paper: s.Paper, Section: s.Section, Options: optionsNamed(s.Name)})
	}
	return c.print(list, func(w io.Writer) {
		for _, s := range list.Strategies {
			s.write(w)
		}
		fmt.Fprintln(w, "\nfor one device, where weights, gradients and optimizer state are, too:")
		for _, s := range list.Cyclic {
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
