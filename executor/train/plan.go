package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"plimsoll/executor"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/units"
	"plimsoll/models/data"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/residency"
	"plimsoll/planner/strategy"
)

// JobPlan is a plan for a job's device, or devices, and what it takes of them.
type JobPlan struct {
	*pipeline.Plan
	Work  *executor.Workload // the job's, with room for the next batch, or with the plan's portals
	Costs pipe.Costs         // what it was made with
	Limit int64              // bytes of each device's arena
	Needs []pipe.Memory      // of each device of a pipeline; nil of a sequence
	Group int                // minibatches, or microbatches, of one update
	Corrections
	// Patience ends a run in which nothing happens for so long; 0: never.
	Patience time.Duration
}

// IsPipeline reports whether the plan is run as a pipeline, on several devices or on one, and not as a sequence.
func (p *JobPlan) IsPipeline() bool { return p != nil && p.Needs != nil }

// steps returns the plan of a step: of a sequence with all parts of it.
func (p *JobPlan) steps() *pipeline.Plan {
	if p.IsPipeline() {
		return p.Plan
	}
	return p.Accumulated(p.Group)
}

// devices returns how many devices the plan has.
func (p *JobPlan) devices() int { return max(len(p.Needs), 1) }

// Corrections are how a pipeline trains otherwise than its plan alone says.
type Corrections struct {
	// PipeMare is over how many updates its rescheduling of learning rates is phased out; 0: without.
	PipeMare int `json:"pipemare,omitempty"`
	// PipeMareDecay is the decay with which PipeMare corrects the weights of backwards; 0: without.
	PipeMareDecay float64 `json:"pipemare_decay,omitempty"`
	// DeferredBatchNorm: the running statistics move once for a step, not once for each of its microbatches.
	DeferredBatchNorm bool `json:"deferred_batchnorm,omitempty"`
	// Sums lets NCCL add up the gradients of replicas in different processes of a world; nil: Plimsoll does.
	Sums *World `json:"-"`
}

func (c Corrections) options() pipe.Options {
	o := pipe.Options{DeferredBatchNorm: c.DeferredBatchNorm}
	if c.Sums != nil {
		o.AllReduce, o.World = true, c.Sums.describe()
	}
	if c.PipeMare > 0 || c.PipeMareDecay > 0 {
		o.PipeMare = &pipe.PipeMare{Anneal: c.PipeMare, Decay: c.PipeMareDecay}
	}
	return o
}

// unit returns how many steps of a run come together: the minibatches of an update of an asynchronous plan, else 1.
func (p *JobPlan) unit() int {
	if p == nil || p.IsFlush() {
		return 1
	}
	return p.Group
}

// stepwise reports whether each step is a run of its own, which ends before the next begins: steps of a cyclic plan run on into each other.
func (p *JobPlan) stepwise() bool { return p.IsFlush() && !p.IsCycle() }

// Holds returns the memory of each device that minibatches and tasks hold.
func (p *JobPlan) Holds() ([][]pipe.Hold, error) {
	return pipe.Holds(p.Work, p.Costs, p.Plan, p.options())
}

// timedSteps is of how many steps with a flush it is kept when their tasks ran, the latest.
const timedSteps = 15

// timedPeriods returns how many periods are timed of a plan without a flush: those that fill and drain the pipeline and some
// between. For a step it returns 0, all. For a cyclic plan it returns as many steps as for one with a flush, and the one
// after them.
func (p *JobPlan) timedPeriods() int {
	switch {
	case p.stepwise():
		return 0
	case p.IsCycle():
		return timedSteps + 1
	}
	return 8 + 4*len(p.Stages)
}

// versions returns the weight versions of a plan; those of a single device are as with a flush.
func (p *JobPlan) versions() pipeline.Versions {
	switch {
	case p == nil:
		return pipeline.Flush
	case p.Versions == "":
		return pipeline.DoubleBuffered
	}
	return p.Versions
}

// PredictedSeconds returns the time of a training step by the plan. A plan without a flush has the share of a minibatch in its
// period, which leaves out its updates.
func (p *JobPlan) PredictedSeconds() float64 {
	if !p.IsPipeline() {
		return float64(p.Group)*p.Predicted.Makespan + executor.UpdateSeconds(p.Costs.Chain)
	}
	return p.taskSeconds() + pipeline.UpdateSeconds(p.Costs.Chain, p.Costs.Platform, p.Plan)
}

// taskSeconds returns the makespan of a plan with a flush, and else the time of a minibatch: strategies choose by it.
func (p *JobPlan) taskSeconds() float64 {
	if p.IsFlush() {
		return p.Predicted.Makespan
	}
	return p.SecondsPerMinibatch()
}

// PredictedPeak returns the peak of the arena, of the device that needs most, static memory included.
func (p *JobPlan) PredictedPeak() int64 {
	if !p.IsPipeline() {
		return p.Peak() + p.Work.StaticBytes()
	}
	most, _ := largest(p.Needs, func(m pipe.Memory) int64 { return m.Peak })
	return most
}

// CheckGradients refuses, with ErrSpec, a strategy that moves no state for a job whose gradients are kept in bfloat16.
func CheckGradients(j *Job, strategy string) error {
	if !j.NarrowGradients {
		return nil
	}
	return fmt.Errorf("%w: --option optimizer.gradients=bf16 is of plans that move weights and state, and --strategy %s makes none: give --strategy %s, or leave the option out",
		ErrSpec, strategy, residency.Search)
}

// Plan plans a step of the job on one device. Where the samples are bytes, the plan has the next batch wait in the room that it
// leaves, if it does (executor.Staged). Errors: those of executor.Plan.
func (j *Job) Plan(ctx context.Context, c *chain.Chain, s pipeline.Strategy, limit int64, opt strategy.Options) (*JobPlan, error) {
	if err := CheckGradients(j, s.Name); err != nil {
		return nil, err
	}
	p, err := executor.Plan(ctx, j.Work, c, s, limit, opt)
	if err != nil {
		return nil, err
	}
	if staged := j.staged(); staged != j {
		p = executor.Staged(staged.Work, c, p, limit)
	}
	return j.SequenceOf(c, p, limit), nil
}

// SequenceOf returns the plan of a job on one device that a sequence is, made with a chain's costs for so many bytes of the arena.
func (j *Job) SequenceOf(c *chain.Chain, p *pipeline.Plan, limit int64) *JobPlan {
	return &JobPlan{Plan: p, Work: j.Planned(p).Work, Costs: pipe.Costs{Chain: c, Platform: p.Platform}, Limit: limit, Group: j.parts()}
}

// Planned returns the job with the memory that a plan of it counts: that of the next batch, where that waits in the arena.
func (j *Job) Planned(p *pipeline.Plan) *Job {
	if _, staged := p.Extra[executor.StagedField]; staged {
		return j.staged()
	}
	return j
}

// StagedBytes returns the bytes of the arena in which the next batch can wait; 0 where samples are no bytes.
func (j *Job) StagedBytes() int64 { return j.staged().Work.StagedBytes() }

// staged returns the job with room for the next batch; the job itself where samples are no bytes.
func (j *Job) staged() *Job {
	palette := data.Palette(j.Set)
	if palette == nil {
		return j
	}
	out := *j
	out.Work = j.Work.Stage(palette)
	return &out
}

// extent returns the largest arena and whose it is.
func (p *JobPlan) extent() (bytes int64, device int) {
	return largest(p.Needs, func(m pipe.Memory) int64 { return m.Extent })
}

func largest(all []pipe.Memory, of func(pipe.Memory) int64) (bytes int64, device int) {
	for d, m := range all {
		if b := of(m); b > bytes {
			bytes, device = b, d
		}
	}
	return bytes, device
}

// Extra fields of the plan of a pipeline that is trained, bytes of each device.
const extentsField = "per_device_extent_bytes"

// note writes into the plan what the executor lays out.
func (p *JobPlan) note() error {
	extents := make([]int64, len(p.Needs))
	for d, m := range p.Needs {
		extents[d] = m.Extent
	}
	raw, err := json.Marshal(extents)
	if err != nil {
		return err
	}
	limit := fmt.Append(nil, p.Limit)
	if p.Extra == nil {
		p.Extra = map[string]json.RawMessage{}
	}
	p.Extra[extentsField], p.Extra[executor.ArenaField] = raw, limit
	return nil
}

// straight returns the job's workload, compiled for the portals of a plan if it has some.
func (j *Job) straight(plan *pipeline.Plan) (*executor.Workload, error) {
	cuts := pipe.Cuts(plan)
	if cuts == "" {
		return j.Work, nil
	}
	if w := j.straights[cuts]; w != nil {
		return w, nil
	}
	var w *executor.Workload
	err := j.ask(func(target executor.Target) (err error) {
		w, err = pipe.Straight(j.Work, target.Library, plan)
		return err
	})
	if err != nil {
		return nil, err
	}
	if j.straights == nil {
		j.straights = map[string]*executor.Workload{}
	}
	j.straights[cuts] = w
	return w, nil
}

// pipelineOf returns the plan of a pipeline with what it takes. Errors: those of pipeline.Needs.
func pipelineOf(j *Job, costs pipe.Costs, plan *pipeline.Plan, also Corrections) (p *JobPlan, err error) {
	p = &JobPlan{Plan: plan, Costs: costs, Corrections: also}
	if p.Work, err = j.straight(plan); err != nil {
		return nil, err
	}
	p.Needs, err = pipe.Needs(p.Work, costs, plan, also.options())
	switch {
	case errors.Is(err, pipe.ErrTied):
		return nil, fmt.Errorf("%w: %w%s", ErrSpec, err, untied(j.Model))
	case err != nil:
		return nil, err
	}
	if plan.IsCycle() {
		if err := p.predictCycle(); err != nil {
			return nil, err
		}
	}
	p.Group, err = pipe.Grouping(p.Work, costs, plan, pipe.Options{})
	return p, err
}

// predictCycle simulates a cyclic plan with the waits of its layout in memory.
func (p *JobPlan) predictCycle() error {
	p.Waits = p.Needs[0].Waits
	_, r, err := p.PlayCycle(p.Costs.Chain, p.Costs.Platform)
	if err == nil {
		p.Predicted.Makespan = r.Period
	}
	return err
}

// PipeOf returns the pipeline of a plan, by a name for errors, and the chain that it was made with, for a run that goes on. Errors:
// ErrSpec when the plan does not say what it was made for or does not fit in its limit any more; those of pipeline.Needs.
func (j *Job) PipeOf(path string, plan *pipeline.Plan, c *chain.Chain, also Corrections) (*JobPlan, error) {
	costs, limit := *c, int64(0)
	costs.Bandwidth = 0
	if plan.Platform == nil || json.Unmarshal(plan.Extra[executor.ArenaField], &limit) != nil {
		return nil, fmt.Errorf("%w: %s does not say for which devices it was made", ErrSpec, path)
	}
	p, err := pipelineOf(j, pipe.Costs{Chain: &costs, Platform: plan.Platform}, plan, also)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if most, _ := p.extent(); most > limit {
		return nil, fmt.Errorf("%w: %s needs %s of a device, its limit is %s", ErrSpec, path, units.Precise(most), units.Precise(limit))
	}
	p.Limit = limit
	return p, nil
}

// PipeRequest says how a job is planned for its devices.
type PipeRequest struct {
	Strategy pipeline.Strategy
	Platform *pipeline.Platform // its memory is not looked at
	Options  pipeline.Options
	// Portals lets skips go straight from the stage that makes them to the stage that reads them. Portals are taken only if
	// the plan is no slower, and the largest arena no larger, than without.
	Portals bool
	Corrections
	// Limit returns the bytes that the arena of each device may have, given what the device that needs most needs of a plan
	// without limit.
	Limit func(most int64) int64
}

// pipePlanner plans one pipeline.
type pipePlanner struct {
	job   *Job
	chain *chain.Chain
	q     PipeRequest
}

// solve asks the strategy; a search that has not ended gives its best plan.
func (p *pipePlanner) solve(ctx context.Context, c *chain.Chain, platform *pipeline.Platform, o pipeline.Options) (*pipeline.Plan, error) {
	plan, err := p.q.Strategy.Solve(ctx, pipeline.Request{Chain: c, Platform: platform, Options: o})
	if late := (*pipeline.UnfinishedError)(nil); errors.As(err, &late) && late.Best != nil {
		plan, err = late.Best, nil
	}
	return plan, err
}

// measured returns a plan with what it takes.
func (p *pipePlanner) measured(platform *pipeline.Platform, plan *pipeline.Plan) (*JobPlan, error) {
	return pipelineOf(p.job, pipe.Costs{Chain: p.chain, Platform: platform}, plan, p.q.Corrections)
}
