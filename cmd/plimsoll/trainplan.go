package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll/executor/measure"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/internal/fields"
	"plimsoll/internal/ram"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
)

// planning is how a run is measured and planned.
type planning struct {
	choice  *choice // on one device
	rate    train.Rate
	measure train.Measure
}

// begin checks the flags.
func (c *trainCommand) begin() (p *planning, err error) {
	p = &planning{}
	if c.job.narrowGradients() && c.pipe.devices == 0 && c.strategy == auto.Name {
		if err := c.moveState(); err != nil {
			return nil, err
		}
	}
	if c.pipe.devices == 0 {
		if p.choice, err = choose(c.strategy, auto.Options{}); err != nil {
			return nil, err
		}
	}
	if p.rate, err = c.rate.rate(c.job.optimizer, c.steps); err != nil {
		return nil, err
	}
	if p.measure, err = c.how.measure(c.progress("profile")); err != nil {
		return nil, err
	}
	p.measure.Halves = c.pipe.devices > 0 && anyFlushes(c.pipe.strategies)
	return p, c.check()
}

// mayMoveState reports whether auto may plan where weights and state are.
func (c *trainCommand) mayMoveState(job *train.Job) bool {
	return !job.Work.Model.Wiring().Joins() && c.pipe.devices == 0 && c.strategy == auto.Name && c.processes == nil
}

// moveState makes the strategy one that plans where weights and state are, on the one device.
func (f *trainFlags) moveState() error {
	f.pipe.devices, f.pipe.microbatches, f.job.parts = 1, f.job.parts, 0
	f.strategy = residency.Search
	return f.pipe.check(f.strategy)
}

// planRun measures and plans what open has opened. A run that goes on does so from its checkpoint then. It ends with an update, and a note says
// so where that takes more steps than were asked for.
func (c *trainCommand) planRun(ctx context.Context, place *runFolder, r *train.Run, p *planning) (err error) {
	if c.pipe.devices > 0 {
		err = c.planStages(ctx, place, r, p.measure)
	} else {
		err = c.planStep(ctx, r, p)
	}
	if err != nil {
		return err
	}
	if err := tell(ctx, r); err != nil {
		return err
	}
	if err := place.resume(r); err != nil {
		return err
	}
	steps := r.Steps
	if r.Whole(); r.Steps > steps {
		c.note("%d steps in place of %d: an update takes %d minibatches (double buffered weights)", r.Steps, steps, r.Plan.Group)
	}
	return nil
}

// planStep plans a run on one device, and notes what auto chose.
func (c *trainCommand) planStep(ctx context.Context, r *train.Run, p *planning) (err error) {
	limit, err := c.limit(r.Job)
	if err != nil {
		return err
	}
	m, s := p.measure, p.choice
	m.Limit, m.Check = limit, func() error { return r.Job.Feasible(ctx, s.Strategy, limit, c.options.Options) }
	if r.Chain, err = c.chain(ctx, c.app, r.Job, m); err != nil {
		return err
	}
	if r.Plan, err = r.Job.Plan(ctx, r.Chain, s.Strategy, limit, c.options.Options); err == nil && s.report != nil {
		c.note("auto: %s", strings.ReplaceAll(s.report.Why(), "\n", "\nauto: "))
	}
	return err
}

// findBatch replaces --batch max by a number.
func (c *trainCommand) findBatch(ctx context.Context, p *planning) error {
	if !c.job.largest {
		return nil
	}
	switch {
	case c.pipe.devices > 0 || c.job.parts > 0:
		return usage(errors.New("--batch max is for one device and whole batches: give a number of samples"))
	case c.memoryGiven && c.memory.Share > 0:
		return usage(fmt.Errorf("--batch max with --memory %v: what is it a share of? give bytes, as in 8GiB, or leave it out to use what the device has", &c.memory))
	}
	c.job.largest = false
	job, err := c.job.open()
	if err != nil {
		return err
	}
	if !c.memoryGiven {
		c.memory, c.memoryGiven = units.Size{Bytes: job.Device.Memory}, true
	}
	limit, err := c.limit(job)
	if err != nil {
		return err
	}
	q := train.FitRequest{Limit: limit, Options: c.options.Options}
	q.Options.HostMemory = job.Work.HostRoom(job.HostLimit(c.link.memory.Bytes))
	n, err := job.LargestBatch(ctx, q, planner.KindOf(p.choice.Strategy))
	if err != nil {
		return err
	}
	if n == 0 {
		sample := fmt.Sprintf("image of %d pixels", job.Config.Image)
		if size := job.SampleSize(); !size.OfImages() {
			sample = "sample of " + size.Describe()
		}
		return noFit{fmt.Errorf("--batch max: not one %s fits in %s", sample, units.Bytes(limit))}
	}
	c.note("--batch max: %s fit in %s (give --batch %d to train the same elsewhere)", job.Samples(n), units.Bytes(limit), n)
	if all := job.Set.TrainLen(); all > 0 && int64(n) > all { // 0: they never end
		c.note("--batch max: all %s of %s", job.Samples(int(all)), job.Data)
		n = int(all)
	}
	c.job.config.Batch = n
	return nil
}

// limit returns the bytes of the arena: --memory, or without it what store-all and the next batch take, as far as the device has that.
func (c *trainCommand) limit(job *train.Job) (int64, error) {
	all, err := job.StoreAllBytes()
	if err != nil {
		return 0, err
	}
	limit, has := c.memory.Of(all), job.Device.Memory
	switch {
	case !c.memoryGiven && limit <= has:
		return min(limit+job.StagedBytes(), has), nil
	case limit <= has:
		return limit, nil
	case c.memoryGiven:
		return 0, noFit{fmt.Errorf("--memory %v is %s, and %s has %s: give at most that, or leave it out to use all", &c.memory, units.Bytes(limit), job.Device.Name, units.Bytes(has))}
	}
	c.note("store-all takes %s and %s has %s: that is the limit", units.Bytes(all), job.Device.Name, units.Bytes(has))
	return has, nil
}

// requestField is the extra field of a run's plan with the flags that it was made for.
const requestField = "request"

// request is everything that a run's plan depends on besides the measured chain.
func (c *trainCommand) request(platform *pipeline.Platform) (json.RawMessage, error) {
	return fields.Marshal(struct {
		Strategy     string             `json:"strategy"`
		Devices      string             `json:"devices"`
		Memory       string             `json:"memory"`
		Batch        int                `json:"batch"`
		Microbatches int                `json:"microbatches"`
		Versions     string             `json:"weight_versions,omitempty"`
		Zero         int                `json:"zero,omitempty"`
		HostState    bool               `json:"host_state,omitempty"`
		Platform     *pipeline.Platform `json:"platform"`
		Plan         string             `json:"plan_sha256,omitempty"`
		UpdatesLast  bool               `json:"updates_last,omitempty"`
		Carried      bool               `json:"carried,omitempty"`
		train.Corrections
	}{
		c.strategy, c.devices(), c.memory.String(), c.job.config.Batch, c.pipe.stepParts(), c.pipe.versions, c.pipe.zero, c.pipe.hostState, platform, c.pipe.given.hash(), c.updatesLast() && c.pipe.movesState(), !c.pipe.portals, c.pipe.Corrections,
	})
}

// devices names the devices of all processes.
func (c *trainCommand) devices() string {
	if c.processes == nil {
		return c.job.devices
	}
	return fmt.Sprintf("%s in each of %d processes", c.job.devices, c.processes.Size())
}

// planStages plans a run on several devices. One that goes on has the plan and the chain in its folder if they were made for
// the same flags: with asynchronous weights another plan would train something else.
func (c *trainCommand) planStages(ctx context.Context, place *runFolder, r *train.Run, m train.Measure) error {
	platform, err := c.pipe.links.platform(c.pipe.devices, c.job.bandwidth, c.link.duplex, &c.pipe.given)
	if err != nil {
		return err
	}
	request, err := c.request(platform)
	if err != nil {
		return err
	}
	if c.keep.resume {
		c.savedPipe(r, place, request)
	}
	if r.Plan == nil {
		if r.Chain, err = c.measuredWithin(ctx, r.Job, m); err != nil {
			return err
		}
		if c.pipe.movesState() {
			platform = c.cyclicPlatform(platform, r)
		}
		if platform, err = c.cache.onProcessors(ctx, platform, r.Job, m); err != nil {
			return err
		}
		if err := c.pipe.given.examine(c.app, r.Chain, platform, c.cache.file == "", c.memoryGiven); err != nil {
			return err
		}
		if r.Plan, err = c.newPipe(ctx, r, platform); err != nil {
			return err
		}
		r.Plan.Extra[requestField] = request
	}
	if c.processes == nil { // which may be on several machines
		if err := machineHas(r); err != nil {
			return err
		}
	}
	r.Plan.Patience = c.pipe.patience
	return nil
}

// measuredWithin is measured within the limit of a plan that moves weights and state. Where a layer alone takes more to be measured, and the
// device has it, that is taken: such plans can need less than a layer with a loss behind it.
func (c *trainCommand) measuredWithin(ctx context.Context, job *train.Job, m train.Measure) (*chain.Chain, error) {
	if !c.pipe.movesState() || !c.memoryGiven {
		return c.cache.measured(ctx, c.app, job, m)
	}
	limit, err := c.arena(job)
	if err != nil {
		return nil, err
	}
	m.Limit = limit(0)
	measured, err := c.cache.measured(ctx, c.app, job, m)
	large, ok := errors.AsType[*measure.WindowError](err)
	if !ok || large.Needed > job.Device.Memory {
		return measured, err
	}
	c.note("%v: measuring takes what it needs", large)
	m.Limit = large.Needed
	return c.cache.measured(ctx, c.app, job, m)
}

// cyclicPlatform returns the device of a plan that moves weights and state, with the link and the host memory that it has.
func (c *trainCommand) cyclicPlatform(p *pipeline.Platform, r *train.Run) *pipeline.Platform {
	out := *p
	if out.Host == 0 {
		out.Host = r.Chain.Bandwidth
	}
	out.Duplex, out.HostMemory = c.link.duplex, r.Job.HostLimit(c.link.memory.Bytes)
	return &out
}

// machineHas refuses a plan of which the host has state, and which takes more memory of this machine than programs can still have. Systems give
// memory when it is written, and end the process then.
func machineHas(r *train.Run) error {
	if !r.Plan.IsCycle() && !r.Plan.HostState {
		return nil
	}
	half, err := ram.HalfOfAvailable()
	if err != nil {
		return err
	}
	var arena, host int64
	for _, n := range r.Plan.Needs {
		arena, host = arena+n.Extent, host+n.Host
	}
	if r.Job.Device.Kind != "host" { // which has the arena itself
		arena = 0
	}
	if arena+host <= 2*half {
		return nil
	}
	less := "give less --host-memory"
	if r.Plan.HostState {
		less = "leave --offload-state out"
	}
	return noFit{fmt.Errorf("%s: the plan takes %s of page-locked host memory and %s of arena, and programs can still take %s of this machine: %s",
		r.Plan.Strategy, units.Bytes(host), units.Bytes(arena), units.Bytes(2*half), less)}
}

// savedPipe takes the plan in the run's folder if it is for the same flags.
func (c *trainCommand) savedPipe(r *train.Run, place *runFolder, request json.RawMessage) {
	path := place.Path("plan.json")
	plan, err := fields.ReadIn[pipeline.Plan](place.Dir, "plan.json")
	if err != nil || plan.IsSequence() {
		return // there is none yet, or it is one for a single device
	}
	if other := otherwise(plan.Extra[requestField], request); other != "" {
		c.note("planned anew, not as %s: %s", path, other)
		return
	}
	was, err := fields.ReadIn[chain.Chain](place.Dir, "chain.json")
	if err == nil {
		was, err = r.Job.ChainOf(place.Path("chain.json"), was)
	}
	if err == nil {
		r.Plan, err = r.Job.PipeOf(path, plan, was, c.pipe.Corrections)
	}
	if err != nil {
		c.note("planned anew: %v", err)
		r.Plan = nil
		return
	}
	r.Chain = was
}

// otherwise says in what two objects differ, whatever the blanks between their parts; "" when in nothing.
func otherwise(was, now json.RawMessage) string {
	var a, b map[string]any
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(now, &b) != nil {
		return "it is not known what it was made for"
	}
	text := func(of map[string]any, name string) string {
		value, ok := of[name]
		if !ok {
			return "not given"
		}
		b, _ := json.Marshal(value) // it was JSON
		return string(b)
	}
	var all []string
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if x, y := text(a, name), text(b, name); x != y {
			all = append(all, fmt.Sprintf("%s was %s and is %s", name, x, y))
		}
	}
	return strings.Join(all, ", ")
}

// arena returns the limit of a device's arena, given what a plan without a limit takes: without --memory no more than the device has. For plans
// that move weights and state a share is one of store-all's peak.
func (c *trainCommand) arena(job *train.Job) (limit func(most int64) int64, err error) {
	if c.pipe.movesState() && c.memoryGiven {
		all, err := job.StoreAllBytes()
		return func(int64) int64 { return c.memory.Of(all) }, err
	}
	return func(most int64) int64 {
		limit := c.memory.Of(most)
		if has := job.Device.Memory; !c.memoryGiven && has > 0 {
			limit = min(limit, has)
		}
		return limit
	}, nil
}

// newPipe plans with the first strategy whose plan can be run.
func (c *trainCommand) newPipe(ctx context.Context, r *train.Run, platform *pipeline.Platform) (p *train.JobPlan, err error) {
	limit, err := c.arena(r.Job)
	if err != nil {
		return nil, err
	}
	if c.pipe.hostState && platform.Host == 0 {
		linked := *platform
		linked.Host, platform = r.Chain.Bandwidth, &linked
	}
	for i, s := range c.pipe.strategies {
		o := pipeline.Options{Versions: pipeline.Versions(c.pipe.versions), Accounting: pipeline.Saved, Zero: pipeline.Zero(c.pipe.zero), HostState: c.pipe.hostState, Trials: c.pipe.trials}
		o.UpdatesLast, o.WholeUpdates = c.updatesLast(), c.wholeUpdates()
		if s.Divides() {
			o.Microbatches = c.pipe.stepParts()
		}
		p, err = r.Job.PlanPipe(ctx, r.Chain, train.PipeRequest{
			Strategy: s, Platform: platform, Options: o, Limit: limit, Portals: c.pipe.straight(), Corrections: c.pipe.Corrections,
		})
		if !errors.Is(err, pipe.ErrPlan) || i == len(c.pipe.strategies)-1 {
			return p, err
		}
		c.note("%v: trying %s", err, c.pipe.strategies[i+1].Name)
	}
	return p, err
}

// wholeUpdates reports whether no strategy may divide updates among replicas. Muon updates matrices, NCCL adds up whole gradients, and a
// process that saves a stage needs all of its state.
func (c *trainCommand) wholeUpdates() bool {
	return c.job.optimizer == "muon" || c.pipe.allreduce == "nccl" || c.processes != nil && c.keep.out.path != ""
}

func closeFrom(r *train.Run) error {
	if r.From == nil {
		return nil
	}
	return r.From.Close()
}
