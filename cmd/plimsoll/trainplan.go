package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"plimsoll/executor"
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
func (f *trainFlags) begin(a *app) (p *planning, err error) {
	p = &planning{}
	if f.pipe.devices == 0 {
		if p.choice, err = choose(f.strategy, auto.Options{}); err != nil {
			return nil, err
		}
	}
	if p.rate, err = f.rate.rate(f.job.optimizer, f.steps); err != nil {
		return nil, err
	}
	if p.measure, err = f.how.measure(a.progress("profile")); err != nil {
		return nil, err
	}
	p.measure.Halves = f.pipe.devices > 0 && anyFlushes(f.pipe.strategies)
	return p, f.check()
}

// planOpened plans what open has opened. Where auto finds no plan of activations alone, it plans what moves weights, gradients and state,
// too: a run of its own. Errors close the run.
func (a *app) planOpened(ctx context.Context, f *trainFlags, place *runFolder, r *train.Run, p *planning) (*train.Run, error) {
	err := a.planRun(ctx, f, place, r, p)
	small, ok := errors.AsType[*executor.TooSmallError](err)
	if !ok || !f.mayMoveState(r.Job) {
		return r, whenFailed(err, r)
	}
	a.note("auto: activations alone need %s: weights, gradients and optimizer state move too (--strategy %s)", units.Bytes(small.Smallest), residency.Search)
	if err := cmp.Or(closeFrom(r), f.moveState()); err != nil {
		return nil, err
	}
	if r, err = f.open(ctx, a, place, p); err != nil {
		return nil, err
	}
	return r, whenFailed(a.planRun(ctx, f, place, r, p), r)
}

// whenFailed closes the run of an error.
func whenFailed(err error, r *train.Run) error {
	if err == nil {
		return nil
	}
	return firstOf(err, closeFrom(r))
}

// mayMoveState reports whether auto may plan where weights and state are.
func (f *trainFlags) mayMoveState(job *train.Job) bool {
	return !job.Work.Model.Wiring().Joins() && f.pipe.devices == 0 && f.strategy == auto.Name && f.processes == nil
}

// updatesLast reports whether no layer may be updated before all gradients of its step are there.
func (f *trainFlags) updatesLast() bool { return f.clip > 0 || f.onNaN == "skip" }

// moveState makes the strategy one that plans where weights and state are, on the one device.
func (f *trainFlags) moveState() error {
	f.pipe.devices, f.pipe.microbatches, f.job.parts = 1, f.job.parts, 0
	f.strategy = residency.Search
	return f.pipe.check(f.strategy)
}

// planRun measures and plans what open has opened. A run that goes on does so from its checkpoint then.
func (a *app) planRun(ctx context.Context, f *trainFlags, place *runFolder, r *train.Run, p *planning) (err error) {
	if f.pipe.devices > 0 {
		err = a.planStages(ctx, f, place, r, p.measure)
	} else {
		err = a.planStep(ctx, f, r, p)
	}
	if err != nil {
		return err
	}
	if err := a.tell(ctx, r); err != nil {
		return err
	}
	if err := place.resume(r); err != nil {
		return err
	}
	a.whole(r)
	return nil
}

// planStep plans a run on one device, and notes what auto chose.
func (a *app) planStep(ctx context.Context, f *trainFlags, r *train.Run, p *planning) (err error) {
	limit, err := a.limit(f, r.Job)
	if err != nil {
		return err
	}
	m, s := p.measure, p.choice
	m.Limit, m.Check = limit, func() error { return r.Job.Feasible(ctx, s.Strategy, limit, f.options.Options) }
	if r.Chain, err = a.chain(ctx, r.Job, f.cache, f.link, m); err != nil {
		return err
	}
	if r.Plan, err = r.Job.Plan(ctx, r.Chain, s.Strategy, limit, f.options.Options); err == nil && s.report != nil {
		a.note("auto: %s", strings.ReplaceAll(s.report.Why(), "\n", "\nauto: "))
	}
	return err
}

// findBatch replaces --batch max by a number.
func (f *trainFlags) findBatch(ctx context.Context, a *app, p *planning) error {
	if !f.job.largest {
		return nil
	}
	switch {
	case f.pipe.devices > 0 || f.job.parts > 0:
		return usage(errors.New("--batch max is for one device and whole batches: give a number of samples"))
	case f.memoryGiven && f.memory.Share > 0:
		return usage(fmt.Errorf("--batch max with --memory %v: what is it a share of? give bytes, as in 8GiB, or leave it out to use what the device has", &f.memory))
	}
	f.job.largest = false
	job, err := f.job.open()
	if err != nil {
		return err
	}
	if !f.memoryGiven {
		f.memory, f.memoryGiven = units.Size{Bytes: job.Device.Memory}, true
	}
	limit, err := a.limit(f, job)
	if err != nil {
		return err
	}
	q := train.FitRequest{Limit: limit, Options: f.options.Options}
	q.Options.HostMemory = job.Work.HostRoom(job.HostLimit(f.link.memory.Bytes))
	n, err := job.LargestBatch(ctx, q, planner.KindOf(p.choice.Strategy))
	if err != nil {
		return err
	}
	if n == 0 {
		sample := fmt.Sprintf("image of %d pixels", job.Config.Image)
		if job.Tokens() > 0 {
			sample = fmt.Sprintf("sample of %s", units.Count(job.Tokens(), "token"))
		}
		return noFit{fmt.Errorf("--batch max: not one %s fits in %s", sample, units.Bytes(limit))}
	}
	a.note("--batch max: %s fit in %s (give --batch %d to train the same elsewhere)", job.Samples(n), units.Bytes(limit), n)
	if all := job.Set.TrainLen(); all > 0 && int64(n) > all { // 0: they never end
		a.note("--batch max: all %s of %s", job.Samples(int(all)), job.Data)
		n = int(all)
	}
	f.job.config.Batch = n
	return nil
}

// limit returns the bytes of the arena: --memory, or without it what store-all and the next batch take, as far as the device has that.
func (a *app) limit(f *trainFlags, job *train.Job) (int64, error) {
	all, err := job.StoreAllBytes()
	if err != nil {
		return 0, err
	}
	limit, has := f.memory.Of(all), job.Device.Memory
	switch {
	case !f.memoryGiven && limit <= has:
		return min(limit+job.StagedBytes(), has), nil
	case limit <= has:
		return limit, nil
	case f.memoryGiven:
		return 0, noFit{fmt.Errorf("--memory %v is %s, and %s has %s: give at most that, or leave it out to use all", &f.memory, units.Bytes(limit), job.Device.Name, units.Bytes(has))}
	}
	a.note("store-all takes %s and %s has %s: that is the limit", units.Bytes(all), job.Device.Name, units.Bytes(has))
	return has, nil
}

// chain returns the measured chain of a job, with the link that plans may use.
func (a *app) chain(ctx context.Context, job *train.Job, f cacheFlags, link linkFlags, m train.Measure) (*chain.Chain, error) {
	c, err := a.measured(ctx, job, f, m)
	if err != nil {
		return nil, err
	}
	return link.chain(c)
}

func (a *app) measured(ctx context.Context, job *train.Job, f cacheFlags, m train.Measure) (*chain.Chain, error) {
	if f.file != "" {
		c, err := job.ReadChain(f.file)
		if errors.Is(err, train.ErrOtherModel) && job.Images() > job.Config.Batch {
			err = fmt.Errorf("%w; --batch %d is divided into %d parts: the chain is that of %s", err, job.Images(), job.Images()/job.Config.Batch, job.Samples(job.Config.Batch))
		}
		return c, usage(err)
	}
	folder, err := profilesFolder()
	if f.none || err != nil { // a user without a home has no cache
		a.note("measuring %s", job.Model)
		return job.Profile(ctx, m)
	}
	c, hit, err := job.Cached(ctx, folder, m)
	if hit {
		a.note("measured before: %s (--option profile.no-cache measures again)", job.Model)
	}
	if errors.Is(err, train.ErrNotKept) {
		a.note("%v", err)
		err = nil
	}
	return c, err
}

// profilesFolder is where measured chains are kept.
func profilesFolder() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "plimsoll", "profiles"), err
}

// requestField is the extra field of a run's plan with the flags that it was made for.
const requestField = "request"

// request is everything that a run's plan depends on besides the measured chain.
func (f *trainFlags) request(platform *pipeline.Platform) (json.RawMessage, error) {
	return fields.Marshal(struct {
		Strategy     string             `json:"strategy"`
		Devices      string             `json:"devices"`
		Memory       string             `json:"memory"`
		Batch        int                `json:"batch"`
		Microbatches int                `json:"microbatches"`
		Versions     string             `json:"weight_versions,omitempty"`
		Zero         int                `json:"zero,omitempty"`
		Platform     *pipeline.Platform `json:"platform"`
		Plan         string             `json:"plan_sha256,omitempty"`
		UpdatesLast  bool               `json:"updates_last,omitempty"`
		Carried      bool               `json:"carried,omitempty"`
		train.Corrections
	}{
		f.strategy, f.devices(), f.memory.String(), f.job.config.Batch, f.pipe.stepParts(), f.pipe.versions, f.pipe.zero, platform, f.pipe.given.hash(), f.updatesLast() && f.pipe.movesState(), !f.pipe.portals, f.pipe.Corrections,
	})
}

// devices names the devices of all processes.
func (f *trainFlags) devices() string {
	if f.processes == nil {
		return f.job.devices
	}
	return fmt.Sprintf("%s in each of %d processes", f.job.devices, f.processes.Size())
}

// planStages plans a run on several devices. One that goes on has the plan and the chain in its folder if they were made for
// the same flags: with asynchronous weights another plan would train something else.
func (a *app) planStages(ctx context.Context, f *trainFlags, place *runFolder, r *train.Run, m train.Measure) error {
	platform, err := f.pipe.links.platform(f.pipe.devices, f.job.bandwidth, f.link.duplex, &f.pipe.given)
	if err != nil {
		return err
	}
	request, err := f.request(platform)
	if err != nil {
		return err
	}
	if f.keep.resume {
		a.savedPipe(r, f, place, request)
	}
	if r.Plan == nil {
		if r.Chain, err = a.measuredWithin(ctx, r.Job, f, m); err != nil {
			return err
		}
		if f.pipe.movesState() {
			platform = f.cyclicPlatform(platform, r)
		}
		if err := a.examine(&f.pipe.given, r.Chain, platform, f.cache.file == "", f.memoryGiven); err != nil {
			return err
		}
		if r.Plan, err = a.newPipe(ctx, r, f, platform); err != nil {
			return err
		}
		r.Plan.Extra[requestField] = request
	}
	if err := machineHas(r); err != nil {
		return err
	}
	r.Plan.Patience = f.pipe.patience
	return nil
}

// measuredWithin is measured within the limit of a plan that moves weights and state. Where a layer alone takes more to be measured, and the
// device has it, that is taken: such plans can need less than a layer with a loss behind it.
func (a *app) measuredWithin(ctx context.Context, job *train.Job, f *trainFlags, m train.Measure) (*chain.Chain, error) {
	if !f.pipe.movesState() || !f.memoryGiven {
		return a.measured(ctx, job, f.cache, m)
	}
	limit, err := f.arena(job)
	if err != nil {
		return nil, err
	}
	m.Limit = limit(0)
	c, err := a.measured(ctx, job, f.cache, m)
	large, ok := errors.AsType[*measure.WindowError](err)
	if !ok || large.Needed > job.Device.Memory {
		return c, err
	}
	a.note("%v: measuring takes what it needs", large)
	m.Limit = large.Needed
	return a.measured(ctx, job, f.cache, m)
}

// cyclicPlatform returns the device of a plan that moves weights and state, with the link and the host memory that it has.
func (f *trainFlags) cyclicPlatform(p *pipeline.Platform, r *train.Run) *pipeline.Platform {
	out := *p
	if out.Host == 0 {
		out.Host = r.Chain.Bandwidth
	}
	out.Duplex, out.HostMemory = f.link.duplex, r.Job.HostLimit(f.link.memory.Bytes)
	return &out
}

// machineHas refuses a plan that moves weights and state and takes more memory of this machine than programs can still have: systems give
// memory when it is written, and end the process then.
func machineHas(r *train.Run) error {
	if !r.Plan.IsCycle() {
		return nil
	}
	half, err := ram.HalfOfAvailable()
	if err != nil {
		return err
	}
	arena, host := r.Plan.Needs[0].Extent, r.Plan.Needs[0].Host
	if r.Job.Device.Kind != "host" { // which has the arena itself
		arena = 0
	}
	if arena+host <= 2*half {
		return nil
	}
	return noFit{fmt.Errorf("%s: the plan takes %s of page-locked host memory and %s of arena, and programs can still take %s of this machine: give less --host-memory",
		r.Plan.Strategy, units.Bytes(host), units.Bytes(arena), units.Bytes(2*half))}
}

// whole lets a run end with an update, and says so where that is not as it was asked for.
func (a *app) whole(r *train.Run) {
	steps := r.Steps
	if r.Whole(); r.Steps > steps {
		a.note("%d steps in place of %d: an update takes %d minibatches (double buffered weights)", r.Steps, steps, r.Plan.Group)
	}
}

// savedPipe takes the plan in the run's folder if it is for the same flags.
func (a *app) savedPipe(r *train.Run, f *trainFlags, place *runFolder, request json.RawMessage) {
	path := place.Path("plan.json")
	plan, err := fields.ReadIn[pipeline.Plan](place.Dir, "plan.json")
	if err != nil || plan.IsSequence() {
		return // there is none yet, or it is one for a single device
	}
	if other := otherwise(plan.Extra[requestField], request); other != "" {
		a.note("planned anew, not as %s: %s", path, other)
		return
	}
	c, err := fields.ReadIn[chain.Chain](place.Dir, "chain.json")
	if err == nil {
		c, err = r.Job.ChainOf(place.Path("chain.json"), c)
	}
	if err == nil {
		r.Plan, err = r.Job.PipeOf(path, plan, c, f.pipe.Corrections)
	}
	if err != nil {
		a.note("planned anew: %v", err)
		r.Plan = nil
		return
	}
	r.Chain = c
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
func (f *trainFlags) arena(job *train.Job) (limit func(most int64) int64, err error) {
	if f.pipe.movesState() && f.memoryGiven {
		all, err := job.StoreAllBytes()
		return func(int64) int64 { return f.memory.Of(all) }, err
	}
	return func(most int64) int64 {
		limit := f.memory.Of(most)
		if has := job.Device.Memory; !f.memoryGiven && has > 0 {
			limit = min(limit, has)
		}
		return limit
	}, nil
}

// newPipe plans with the first strategy whose plan can be run.
func (a *app) newPipe(ctx context.Context, r *train.Run, f *trainFlags, platform *pipeline.Platform) (p *train.JobPlan, err error) {
	limit, err := f.arena(r.Job)
	if err != nil {
		return nil, err
	}
	for i, s := range f.pipe.strategies {
		o := pipeline.Options{Versions: pipeline.Versions(f.pipe.versions), Accounting: pipeline.Saved, Zero: pipeline.Zero(f.pipe.zero)}
		o.UpdatesLast = f.updatesLast()
		if s.Divides() {
			o.Microbatches = f.pipe.stepParts()
		}
		p, err = r.Job.PlanPipe(ctx, r.Chain, train.PipeRequest{
			Strategy: s, Platform: platform, Options: o, Limit: limit, Portals: f.pipe.straight(), Corrections: f.pipe.Corrections,
		})
		if !errors.Is(err, pipe.ErrPlan) || i == len(f.pipe.strategies)-1 {
			return p, err
		}
		a.note("%v: trying %s", err, f.pipe.strategies[i+1].Name)
	}
	return p, err
}

func closeFrom(r *train.Run) error {
	if r.From == nil {
		return nil
	}
	return r.From.Close()
}
