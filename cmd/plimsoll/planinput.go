package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/internal/bounded"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/interop"
	"plimsoll/planner/profiles"
	"plimsoll/planner/schedule"
)

// planInput says where a plan is, ours or not: a plan file, or a sequence as text, or a table of a pipeline.
type planInput struct {
	path string // "-" is standard input
	text string // in place of a file
}

func (f *planInput) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVarP(&f.path, "plan", "p", "", "plan file, or a file with a sequence in text form; - is standard input")
	s.StringVar(&f.text, "text", "", "a sequence in text form")
}

// String says where the plan is from, for errors.
func (f *planInput) String() string {
	switch f.path {
	case "":
		return "--text"
	case "-":
		return "standard input"
	}
	return f.path
}

// read returns the text of the plan.
func (f *planInput) read(stdin io.Reader) (string, error) {
	var text []byte
	var err error
	switch {
	case (f.path == "") == (f.text == ""):
		return "", usage(errors.New("give either a plan, -p p.json, or a sequence, --text \"Fall1 B1\""))
	case f.text != "":
		return f.text, nil
	case f.path == "-":
		text, err = bounded.ReadAll(stdin, "standard input")
	default:
		text, err = bounded.ReadFile(f.path)
	}
	return string(text), usage(err)
}

// isTable reports whether a text is PyTorch's table of pipeline ops, which says so or is called so.
func (f *planInput) isTable(text string) bool {
	return interop.IsTable(f.path) || interop.LooksLikeSchedule(text)
}

// known reads a plan in any of its forms from its text; it must be for the chain of the source. Its platform is that of a file, for
// several devices, or else the plan's.
func (f *planInput) known(text string, source *profiles.Source, platform string) (*anyPlan, error) {
	p, err := f.parse(text, source.Chain)
	switch {
	case err != nil:
		return nil, usage(fmt.Errorf("%s: %w", f, err))
	case !p.IsSequence():
		return f.several(p, source, platform)
	}
	if err := p.For(source.Chain); err != nil {
		return nil, usage(fmt.Errorf("%s: %w%s", f, err, missingPrefetch(p.Sequence(), err)))
	}
	return &anyPlan{source.Chain, p, p.Platform}, nil
}

// parse reads a plan file, or a sequence for a chain: the text form of one step, or of a cyclic plan where it has ops of weights and state.
func (f *planInput) parse(text string, c *chain.Chain) (*pipeline.Plan, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		p, err := pipeline.Decode(strings.NewReader(text))
		if err != nil && strings.Contains(text, `"stages"`) {
			err = fmt.Errorf("pipeline plan: %w", err)
		}
		return p, err
	}
	seq, err := f.parseSequence(text, c.Len())
	if wrong, ok := errors.AsType[*schedule.ParseError](err); ok {
		cyclic, err := cycle.Parse(text)
		if further, ok := errors.AsType[*cycle.ParseError](err); !ok || further.Index > wrong.Index {
			platform := pipeline.NewPlatform(1, pipeline.NoLimit, pipeline.Free())
			platform.Host = c.Bandwidth
			return pipeline.NewCycle(c.Name, "given", cyclic, platform), err
		}
	}
	return pipeline.NewSequence(c.Name, "given", seq, schedule.Limits{Memory: schedule.NoLimit}), err
}

// parseSequence reads the text form of a sequence for so many layers, or the printed actions of checkpoint_schedules.
func (f *planInput) parseSequence(text string, layers int) (schedule.Sequence, error) {
	if !interop.LooksLikeActions(text) {
		return schedule.Parse(text)
	}
	actions, err := interop.ParseActions(f.String(), []byte(text))
	if err != nil {
		return nil, err
	}
	return actions.Sequence(layers)
}

// several returns a plan for several devices with the chain and the platform that it is for.
func (f *planInput) several(plan *pipeline.Plan, source *profiles.Source, platform string) (*anyPlan, error) {
	c, err := planner.ChainFor(source, plan.Strategy, plan.Platform)
	if err == nil {
		c, err = atBatch(plan, c)
	}
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", f, err))
	}
	if plan.Chain != "" && plan.Chain != c.Name {
		return nil, usage(fmt.Errorf("%s: field \"chain\" is %q, the chain's name %q: the pipeline plan is for another chain", f, plan.Chain, c.Name))
	}
	on, err := f.platformOf(plan, platform)
	return &anyPlan{c, plan, on}, err
}

// atBatch returns the chain at the batch size that a plan is for.
func atBatch(plan *pipeline.Plan, c *chain.Chain) (*chain.Chain, error) {
	if plan.Batch == 0 {
		return c, nil
	}
	of := c.At(plan.Batch)
	if of == nil || of.Batch != 0 && of.Batch != plan.Batch {
		return nil, fmt.Errorf("field \"batch\" is %d: the chain was not profiled at that batch size", plan.Batch)
	}
	return of, nil
}

// platformOf returns the platform of a file, or else the plan's.
func (f *planInput) platformOf(plan *pipeline.Plan, file string) (*pipeline.Platform, error) {
	switch {
	case file != "":
		p, err := pipeline.ReadPlatform(file)
		return p, usage(err)
	case plan.Platform == nil:
		return nil, usage(fmt.Errorf("%s: the pipeline plan does not say its platform: give it, as in --platform p.json", f))
	}
	return plan.Platform, nil
}

// place puts a table on a chain and a platform, and runs it. Without a file, the chain has F = I = W = 1 s, B = 2 s and no sizes. The
// platform then has as many devices as the table has ranks.
func (f *planInput) place(text string, of *planFor) (*ranTable, error) {
	s, err := interop.ParseSchedule(f.String(), []byte(text))
	if err != nil {
		return nil, usage(err)
	}
	c := interop.UnitChain(s.Stages)
	if of.chain != "" {
		if c, err = readChain(of.chain); err != nil {
			return nil, err
		}
	}
	p := pipeline.NewPlatform(len(s.Rows), pipeline.NoLimit, pipeline.Free())
	if of.platform != "" {
		if p, err = pipeline.ReadPlatform(of.platform); err != nil {
			return nil, usage(err)
		}
	}
	if p, err = of.on(p, nil); err != nil {
		return nil, err
	}
	placed, err := s.Place(c, p)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", f, err))
	}
	run, err := placed.Run()
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", f, err))
	}
	return &ranTable{placed, run}, nil
}

// planFor says what a plan of others lacks, or has otherwise: a plan file has it all.
type planFor struct {
	chain     string
	platform  string
	bandwidth units.Bandwidth
	duplex    bool
	memory    units.Size // of check
}

func (f *planFor) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVarP(&f.chain, "chain", "c", "", "chain file, or what plimsoll import reads")
	s.StringVar(&f.platform, "platform", "", "platform file, for pipelines (default: the plan's)")
	s.Var(&f.bandwidth, "bandwidth", "bandwidth of the link to host memory, of a pipeline that between devices (default: the plan's)")
	s.BoolVar(&f.duplex, "duplex", false, "the link has a queue for each direction (default: as the plan says)")
}

// apply gives a plan the platform that the flags say.
func (f *planFor) apply(p *anyPlan) (err error) {
	c := p.chain
	if !p.plan.IsSequence() && !p.plan.IsCycle() {
		c = nil
	}
	p.platform, err = f.on(p.platform, c)
	return err
}

// on returns a platform with what the flags say about it. For the sequence of a chain the bandwidth is that to host memory, and a share of
// memory is of store-all's peak. For stages, without a chain, it is the bandwidth between devices, and memory has no share.
func (f *planFor) on(p *pipeline.Platform, c *chain.Chain) (*pipeline.Platform, error) {
	q := *p
	switch q.Duplex = q.Duplex || f.duplex; {
	case f.bandwidth > 0 && c != nil:
		q.Host = float64(f.bandwidth)
	case f.bandwidth > 0:
		q.Bandwidth, q.Levels, q.Pairs = float64(f.bandwidth), nil, nil
	}
	whole := int64(0)
	switch {
	case f.memory.IsZero():
		return &q, nil
	case c != nil:
		all, err := storeAll(c)
		if err != nil {
			return nil, err
		}
		whole = all.Peak
	case f.memory.Share > 0:
		return nil, usage(fmt.Errorf("--memory is %v: a pipeline takes bytes, as in 4GiB", &f.memory))
	}
	return q.WithMemory(f.memory.Of(whole)), nil
}

// plan reads the plan in whatever form it is; what one of one device is predicted to cost is simulated.
func (f *planInput) plan(stdin io.Reader, of *planFor) (*anyPlan, error) {
	text, err := f.read(stdin)
	if err != nil {
		return nil, err
	}
	if f.isTable(text) {
		return f.tablePlan(text, of)
	}
	if err := required("--chain", of.chain, "-c c.json"); err != nil {
		return nil, err
	}
	source, err := profiles.ReadSource(of.chain)
	if err != nil {
		return nil, usage(err)
	}
	p, err := f.known(text, source, of.platform)
	if err == nil {
		err = of.apply(p)
	}
	if err != nil || !p.plan.IsSequence() {
		return p, err
	}
	r, err := pipeline.Check(p.chain, p.platform, p.plan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, enough(p, err))
	}
	p.plan.Platform, p.plan.Predicted = p.platform, pipeline.Predicted{}
	p.plan.Predict(r.Sequence)
	return p, nil
}

// tablePlan makes a plan of a table of pipeline ops.
func (f *planInput) tablePlan(text string, of *planFor) (*anyPlan, error) {
	t, err := f.place(text, of)
	if err != nil {
		return nil, err
	}
	plan, err := t.Plan(t.Run)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", f, err))
	}
	return &anyPlan{t.Chain, plan, t.Platform}, nil
}
