package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/profiles"
	"plimsoll/planner/schedule"
)

// checkCommand is plimsoll check.
type checkCommand struct {
	*app
	planFor
	plan  planInput
	noise noiseFlags
}

func newCheckCommand(a *app) *cobra.Command {
	c := &checkCommand{app: a}
	cmd := command("check", "Verify and simulate a plan, ours or not", `Verify a plan against the rules of a chain, and simulate its time and memory.

The plan is a plan file, or the text form of a sequence (Fck1 F2 Fall3 B3 ...) in a file or given with --text; -p -
reads standard input. A plan with stages is a pipeline, judged on its own platform or the one in --platform. A table of
PyTorch's pipeline schedules, a CSV with a row for each rank, is a pipeline too. Without a chain its forwards take 1 s, its
backwards 2 s, and its communication no time. The printed actions of checkpoint_schedules are a sequence too.

If a plan breaks a rule, check names the op and ends with exit code 2. If it does not fit in the limit (--memory, or else the
plan's own), check ends with 3.

--noise shows how robust a plan is. The plan is simulated many times, each task or op in the planned order and as soon as it can
run. Every duration is multiplied by a random factor of its own, drawn evenly from 1 minus the noise to 1 plus the noise.`, nil)
	cmd.Example = `  plimsoll check -c c.json -p p.json --memory 4GiB
  plimsoll check -c c.json --text "Fall1 Fall2 B2 B1"
  plimsoll check -c c.json -p pipeline.json --platform platform.json
  plimsoll check -c c.json -p pipeline.json --noise 10% --runs 1000
  plimsoll check -p schedule.csv`
	c.register(cmd)
	c.plan.register(cmd)
	cmd.Flags().Var(&c.memory, "memory", "memory limit (default: the plan's)")
	c.noise.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) }
	return cmd
}

func (c *checkCommand) run(ctx context.Context) error {
	if err := c.noise.check(); err != nil {
		return err
	}
	text, err := c.plan.read(c.stdin)
	switch {
	case err == nil && c.plan.isTable(text):
		return c.checkTable(ctx, text)
	case c.chain == "" && !interop.IsTable(c.plan.path):
		return required("--chain", c.chain, "-c c.json")
	case err != nil:
		return err
	}
	source, err := profiles.ReadSource(c.chain)
	if err != nil {
		return usage(err)
	}
	p, err := c.plan.known(text, source, c.platform)
	if err != nil {
		return err
	}
	if err := c.apply(p); err != nil {
		return err
	}
	return c.judge(ctx, p, nil)
}

// judge checks a plan, prints what was found, with what the run of its table found, and returns the first violation.
func (c *checkCommand) judge(ctx context.Context, p *anyPlan, table *ranTable) error {
	report, err := pipeline.Check(p.chain, p.platform, p.plan)
	invalid, broken := errors.AsType[*pipeline.InvalidError](err)
	if err != nil && !broken {
		return usage(fmt.Errorf("%s: %w", &c.plan, enough(p, err)))
	}
	figures, failure := p.figures(report)
	if failure != nil {
		return failure
	}
	table.addTo(figures)
	if figures.Valid = !broken; figures.Valid {
		if figures.Noise, err = c.noisy(ctx, p, report); err != nil {
			return err
		}
	} else {
		for _, v := range invalid.Violations {
			figures.Violations = append(figures.Violations, v.Reason)
		}
	}
	if report != nil {
		c.noteReport(p.plan, report)
		if printed := c.print(figures, figures.write); printed != nil {
			return printed
		}
	}
	switch {
	case figures.Valid:
		return nil
	case invalid.OnlyMemory():
		return noFit{fmt.Errorf("%s: %w", &c.plan, err)}
	}
	return usage(fmt.Errorf("%s: %w", &c.plan, err))
}

// noisy runs a valid plan with noise; nil where that is not asked for.
func (c *checkCommand) noisy(ctx context.Context, p *anyPlan, r *pipeline.Report) (*noiseFigures, error) {
	if !c.noise.wanted() {
		return nil, nil
	}
	n, err := c.noise.run(ctx, p.chain, p.platform, p.plan, r)
	if err != nil {
		return nil, fmt.Errorf("%s: --noise %v: %w", &c.plan, &c.noise.fraction, err)
	}
	return n, nil
}

// noteReport notes where a plan promises something else than was found, and offloads that do nothing.
func (c *checkCommand) noteReport(p *pipeline.Plan, r *pipeline.Report) {
	for _, w := range r.Warnings {
		c.note("note: %s", w)
	}
	if p.IsSequence() {
		c.noteUnfetched(p.Sequence())
	}
}

// noteUnfetched notes the offloads of a valid plan whose data nothing needs any more.
func (c *checkCommand) noteUnfetched(seq schedule.Sequence) {
	for at, op := range seq {
		if op.Kind != schedule.Offload {
			continue
		}
		if last, _ := lastTransfer(seq, op.Layer); last == at {
			c.note("note: %v at op %d is never prefetched: nothing reads what it moves, and a forward_discard frees it without a transfer", op, at)
		}
	}
}

// checkTable judges PyTorch's table of pipeline ops.
func (c *checkCommand) checkTable(ctx context.Context, text string) error {
	t, err := c.plan.place(text, &c.planFor)
	if err != nil {
		return err
	}
	plan, err := t.Plan(t.Run)
	if err != nil {
		return c.refuseTable(t)
	}
	return c.judge(ctx, &anyPlan{t.Chain, plan, t.Platform}, t)
}

// refuseTable prints how far a table that is no plan runs, and returns why it is none: the op that cannot run first.
func (c *checkCommand) refuseTable(t *ranTable) error {
	figures := &planFigures{}
	for _, v := range t.Schedule.Violations() {
		figures.Violations = append(figures.Violations, v.String())
	}
	for _, stuck := range t.Stuck {
		figures.Violations = append(figures.Violations, stuck.String())
	}
	why := figures.Violations[0]
	if t.Deadlock() {
		why = t.Stuck[0].String()
	}
	t.addTo(figures)
	if err := c.print(figures, figures.write); err != nil {
		return err
	}
	return usage(fmt.Errorf("%s: %w: %s", &c.plan, interop.ErrIllegal, why))
}
