package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// planFigures is the JSON of plan and check for a plan, on any number of devices: seconds and bytes.
type planFigures struct {
	planShape
	Valid      bool     `json:"valid"`
	Violations []string `json:"violations,omitempty"`
	planTimes
	eachFigures
	// Deadlock and PeakLive are found by running PyTorch's table.
	Deadlock bool  `json:"deadlock"`
	PeakLive []int `json:"peak_live_activations,omitempty"`

	*modelFigures    // of a model on a described device
	*sequenceFigures // of a plan for one device
	*cycleFigures    // of one that says where weights and state are

	Auto *autoFigures `json:"auto,omitempty"`
	// Of check --noise: how robust the plan is.
	Noise *noiseFigures `json:"noise,omitempty"`

	stale []string // for people: of stages with replicas
}

// text returns the text form of a plan for one device.
func (f *planFigures) text() string {
	if f.cycleFigures != nil {
		return f.Cycle
	}
	return f.Sequence
}

// planShape holds a plan's own statements.
type planShape struct {
	Chain        string `json:"chain"`
	Estimated    bool   `json:"estimated,omitempty"` // its times, from a description of the device
	Strategy     string `json:"strategy"`
	Winner       string `json:"winner,omitempty"` // as in pipeline.Plan
	RunnerUp     string `json:"runner_up,omitempty"`
	Kind         string `json:"kind"` // periodic, flush or cyclic
	Devices      int    `json:"devices"`
	Stages       int    `json:"stages"`
	Microbatches int    `json:"microbatches,omitempty"`
	Batch        int    `json:"batch,omitempty"` // samples of a microbatch, or minibatch, where the plan says it

	Placed []placedStage `json:"placed,omitempty"` // the stages; not of a table that is no plan
}

// planTimes are how long a plan takes.
type planTimes struct {
	Period       float64 `json:"period_s,omitempty"`
	Makespan     float64 `json:"makespan_s,omitempty"`
	PerMinibatch float64 `json:"seconds_per_minibatch"`
	Updates      float64 `json:"updates_s,omitempty"`   // of a plan with a flush, behind its makespan
	HostState    bool    `json:"host_state,omitempty"`  // the host makes them
	RunnerUpS    float64 `json:"runner_up_s,omitempty"` // makespan and updates of the plan that comes next
	// No plan takes less than LowerBound: on one device for a step (addBounds), on several for a minibatch, by the plan's word. 0: unknown.
	LowerBound float64 `json:"lower_bound_s"`
	Bubble     float64 `json:"bubble_fraction"`
}

// eachFigures are the figures of each device, or of each stage.
type eachFigures struct {
	Busy   []float64 `json:"per_device_busy_s"`
	NCA    []int     `json:"nca_per_stage,omitempty"`
	Missed [][2]int  `json:"missed_updates_per_stage,omitempty"` // fewest and most
	// Of stages with replicas and weights: when their gradients are added up.
	Replicated []replicatedStage `json:"synchronization,omitempty"`
	Peak       []int64           `json:"per_device_peak_bytes,omitempty"`
	Weights    []int64           `json:"per_device_weight_bytes,omitempty"`
	Buffers    []int64           `json:"per_device_buffer_bytes,omitempty"`
}

// sequenceFigures are the figures of a plan for one device, beside store-all.
type sequenceFigures struct {
	MemoryBytes int64        `json:"memory_bytes,omitempty"` // 0 when there is no limit
	PeakBytes   int64        `json:"peak_bytes"`
	IdleS       float64      `json:"idle_s"`
	Gap         train.Number `json:"gap"` // null where it is no number
	// OffloadBoundS is the bound of sequences that recompute nothing, for such a one with transfers.
	OffloadBoundS float64 `json:"offload_bound_s,omitempty"`
	StoreAllS     float64 `json:"store_all_s"`
	StoreAllBytes int64   `json:"store_all_peak_bytes"`
	Ops           int     `json:"ops"`
	Forwards      int     `json:"forwards"`
	Transfers     int     `json:"transfers"`
	Layers        int     `json:"layers"`
	Sequence      string  `json:"sequence"`

	peakAt string // for people: the op of the peak, and its layer
}

// modelFigures are the figures of a plan for a chain that was estimated from a model. The arena counts weights, gradients and
// optimizer state.
type modelFigures struct {
	Model       string  `json:"model"`
	Parameters  int64   `json:"parameters"`
	Device      string  `json:"device"`
	LimitBytes  int64   `json:"arena_limit_bytes"`
	ArenaBytes  int64   `json:"arena_peak_bytes"`
	StaticBytes int64   `json:"static_bytes,omitempty"` // of a plan that moves no weights and no state
	HostBytes   int64   `json:"host_bytes,omitempty"`   // page-locked, of one that does
	StepS       float64 `json:"step_s"`                 // with the update
	TokensPerS  float64 `json:"tokens_per_s,omitempty"`
	SamplesPerS float64 `json:"samples_per_s"`

	step, speed string // for people
}

func modelFiguresOf(job *train.Job, p *train.JobPlan) *modelFigures {
	f := &modelFigures{
		Model: job.Model, Parameters: job.Work.Model.ParamCount(), Device: job.Described.Name, LimitBytes: p.Limit, ArenaBytes: p.PredictedPeak(),
		StepS: p.PredictedSeconds(), step: job.Samples(job.Images()),
	}
	f.SamplesPerS = float64(job.Images()) / f.StepS
	f.TokensPerS, f.speed = f.SamplesPerS*float64(job.Tokens()), job.Rate(f.SamplesPerS)
	if p.IsPipeline() {
		f.HostBytes = p.Needs[0].Host
	} else {
		f.StaticBytes = p.Work.StaticBytes()
	}
	return f
}

// write prints the figures for people.
func (f *modelFigures) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "model\t%s, %d parameters\n", f.Model, f.Parameters)
	fmt.Fprintf(w, "device\t%s, from its description: times are estimated\n", f.Device)
	fmt.Fprintf(w, "speed, estimated\t%s: %s in %s\n", f.speed, f.step, units.Seconds(f.StepS))
	static := ""
	if f.StaticBytes > 0 {
		static = fmt.Sprintf(", %s of them weights, gradients and optimizer state", units.Bytes(f.StaticBytes))
	}
	fmt.Fprintf(w, "arena\t%s of %s%s\n", units.Precise(f.ArenaBytes), units.Bytes(f.LimitBytes), static)
	if f.HostBytes > 0 {
		fmt.Fprintf(w, "host memory\t%s\n", units.Precise(f.HostBytes))
	}
	_ = w.Flush() // of a buffer
}

// placedStage is where a stage is.
type placedStage struct {
	FirstLayer int    `json:"first_layer"`
	LastLayer  int    `json:"last_layer"`
	Devices    []int  `json:"devices"`
	Sequence   string `json:"sequence,omitempty"`      // of a stage that recomputes
	Last       string `json:"last_sequence,omitempty"` // of its last microbatch, where that differs
}

func placed(p *pipeline.Plan) (all []placedStage) {
	for _, s := range p.Stages {
		all = append(all, placedStage{s.First, s.Last, s.Devices, s.Ops.String(), s.LastOps.String()})
	}
	return all
}

// write prints stage i.
func (s *placedStage) write(w io.Writer, i int) {
	fmt.Fprintf(w, "stage %d: layers %d to %d on device", i, s.FirstLayer, s.LastLayer)
	for k, d := range s.Devices {
		if k > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, " %d", d)
	}
	if s.Sequence != "" {
		fmt.Fprintf(w, ": %s", s.Sequence)
	}
	if s.Last != "" {
		fmt.Fprintf(w, "; last microbatch: %s", s.Last)
	}
	fmt.Fprintln(w)
}

// replicatedStage is when the gradients of a stage's replicas are added up.
type replicatedStage struct {
	Stage    int           `json:"stage"`
	Replicas int           `json:"replicas"`
	Parts    int           `json:"parts"`
	Zero     pipeline.Zero `json:"zero,omitempty"`
	Buckets  int           `json:"buckets"`
	Behind   float64       `json:"behind_s"`
}

// String says it in a line.
func (s replicatedStage) String() string {
	line := fmt.Sprintf("stage %d, %d replicas: ", s.Stage, s.Replicas)
	if s.Buckets == 0 {
		return line + "that their gradients are added up takes no time in this plan"
	}
	buckets, until := units.Count(s.Buckets, "bucket"), units.Seconds(s.Behind)
	switch s.Zero {
	case pipeline.ZeroWeights:
		return line + fmt.Sprintf("each keeps its part of the weights (zero %d), and adds up and updates that, until %s behind the last backward", s.Zero, until)
	case pipeline.ZeroGradients:
		return line + fmt.Sprintf("each adds up and updates its part of %s (zero %d), microbatch by microbatch, and the new weights have come %s behind the last backward", buckets, s.Zero, until)
	case pipeline.ZeroShards:
		return line + fmt.Sprintf("each updates its part of %s (zero %d), and the new weights have come %s behind the last backward", buckets, s.Zero, until)
	}
	if s.Parts > 1 {
		return line + fmt.Sprintf("each adds up its part of the gradients in %s, and all parts have come %s behind the last backward", buckets, until)
	}
	return line + fmt.Sprintf("their gradients are added up in %s, until %s behind the last backward", buckets, until)
}

// figures returns the figures of the plan from a report. An invalid plan has no report, and the figures come from the
// plan.
func (p *anyPlan) figures(r *pipeline.Report) (*planFigures, error) {
	plan := p.plan
	f := &planFigures{planShape: planShape{
		Chain: plan.Chain, Estimated: p.chain.Estimated, Strategy: cmp.Or(plan.Strategy, "given"), Winner: plan.Winner, Kind: "periodic",
		Devices: p.platform.Devices, Stages: len(plan.Stages), Microbatches: plan.Microbatches, Batch: plan.Batch, Placed: placed(plan),
	}}
	if plan.IsFlush() {
		f.Kind = "flush"
	}
	if r == nil {
		return f, nil
	}
	f.planTimes = planTimes{Period: r.Period, Makespan: r.Makespan, PerMinibatch: r.PerMinibatch, LowerBound: r.LowerBound, Bubble: r.Bubble}
	if !plan.IsSequence() {
		f.Updates, f.HostState = pipeline.UpdateSeconds(p.chain, p.platform, plan), plan.HostState
	}
	if next := plan.RunnerUp; next != nil {
		f.RunnerUp, f.RunnerUpS = next.Strategy, next.Seconds
	}
	f.Busy, f.NCA, f.Peak, f.Weights, f.Buffers = r.PerDeviceBusy, r.NCA, r.PerDevicePeak, r.PerDeviceWeights, r.PerDeviceBuffers
	for _, s := range r.Replicated {
		f.Replicated = append(f.Replicated, replicatedStage(s))
	}
	if plan.Versions == pipeline.Stash || plan.Versions == pipeline.Latest {
		f.addMissed(plan, r)
	}
	switch {
	case plan.IsCycle():
		cyclic, err := newCycleFigures(p, r.CyclePeak)
		f.Kind, f.cycleFigures = "cyclic", cyclic
		return f, firstOf(err, f.addCycleBound(p))
	case !plan.IsSequence():
		return f, nil
	}
	return f, f.addSequence(p, r.Sequence)
}

// addMissed adds how stale the weights of a plan without a flush are.
func (f *planFigures) addMissed(plan *pipeline.Plan, r *pipeline.Report) {
	f.Missed = r.Missed
	for s, m := range r.Missed {
		if n := len(plan.Stages[s].Devices); n > 1 {
			f.stale = append(f.stale, fmt.Sprintf("stage %d, %d replicas: the weights of a forward miss %s", s, n, missed(m[0], m[1])))
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
	}
	return units.Count(most, "update")
}

// addTo adds what the run found; nil adds nothing.
func (t *ranTable) addTo(f *planFigures) {
	if t == nil {
		return
	}
	s, r := t.Schedule, t.Run
	f.Strategy, f.Kind, f.Devices, f.Stages, f.Microbatches = s.Name, "flush", len(s.Rows), s.Stages, s.Microbatches
	f.Makespan, f.PerMinibatch, f.Bubble, f.Busy = r.Makespan, r.Makespan/float64(s.Microbatches), r.Bubble, r.Busy
	f.PeakLive, f.Deadlock = r.PeakLive, r.Deadlock()
}

// addSequence adds what the sequence of one device costs by a simulation, beside store-all.
func (f *planFigures) addSequence(p *anyPlan, run *schedule.Result) error {
	all, err := storeAll(p.chain)
	if err != nil {
		return err
	}
	seq, limits := p.plan.Sequence(), p.platform.Limits(0)
	s := &sequenceFigures{
		PeakBytes: run.Peak, IdleS: run.Idle, StoreAllS: all.Makespan, StoreAllBytes: all.Peak,
		Ops: len(seq), Layers: p.chain.Len(), Sequence: seq.String(),
	}
	if limits.Memory != schedule.NoLimit {
		s.MemoryBytes = limits.Memory
	}
	for _, op := range seq {
		switch {
		case op.Kind.Transfer():
			s.Transfers++
		case op.Kind != schedule.Backward:
			s.Forwards++
		}
	}
	if at := run.PeakOp; at >= 0 {
		s.peakAt = fmt.Sprintf("the peak is at op %d, %v (%s)", at, seq[at], p.chain.Layer(seq[at].Layer).Name)
	}
	f.sequenceFigures = s
	return f.addBounds(p.chain, limits)
}

// storeAll simulates the step that recomputes nothing.
func storeAll(c *chain.Chain) (*schedule.Result, error) {
	return schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
}

// addBounds adds what no plan for one device within the limits is below: the larger of the bound of the chain and of what the strategy has
// proved. A stranger's plan can be one of those that the bound does not cover, see package bound; then there is none.
func (f *planFigures) addBounds(c *chain.Chain, l schedule.Limits) error {
	if len(c.Branches) == 0 { // the bound of a chain
		least, err := bound.Seconds(c, l)
		if err != nil {
			return err
		}
		if least <= f.Makespan*(1+1e-9) {
			f.LowerBound = max(f.LowerBound, least)
		}
	}
	if f.LowerBound > 0 {
		f.Gap = train.Number(bound.Gap(f.Makespan, f.LowerBound))
	}
	if len(c.Branches) > 0 || f.Transfers == 0 || f.Forwards > f.Layers {
		return nil
	}
	var err error
	f.OffloadBoundS, err = offload.FractionalBound(strategy.Problem{Chain: c, Memory: l.Memory, Link: l.Link})
	if is[*pipeline.InfeasibleError](err) { // it recomputes nothing, but does not save everything either
		err = nil
	}
	return err
}

// write prints the figures for people.
func (f *planFigures) write(w io.Writer) {
	if f.modelFigures != nil {
		f.modelFigures.write(w)
	}
	switch {
	case f.cycleFigures != nil:
		f.writeCycle(w)
	case f.sequenceFigures != nil:
		f.writeSequence(w)
	default:
		f.writeStages(w)
	}
	if f.Valid {
		fmt.Fprintln(w, "the plan keeps every rule")
	}
	if f.Noise != nil {
		f.Noise.write(w)
	}
	if f.Auto != nil {
		f.Auto.write(w)
	}
}

// writeSequence prints what a plan for one device costs.
func (f *planFigures) writeSequence(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "chain\t%s, %d layers\n", f.Chain, f.Layers)
	fmt.Fprintf(w, "strategy\t%s\n", pipeline.Name(f.Strategy, f.Winner))
	if f.Strategy == remat.Checkmate {
		fmt.Fprintln(w, "\tits rounded relaxation is a weak peer beyond 8 layers; rotor-exact is what to compare with")
	}
	of := ""
	if f.modelFigures != nil {
		of = " of activations"
	}
	if f.MemoryBytes > 0 {
		fmt.Fprintf(w, "limit%s\t%s, %s of store-all's peak\n", of, units.Bytes(f.MemoryBytes), share(float64(f.MemoryBytes), float64(f.StoreAllBytes)))
	}
	fmt.Fprintf(w, "peak%s\t%s\n", of, units.Precise(f.PeakBytes))
	fmt.Fprintf(w, "%s\t%s, %s of store-all's %s\n", estimated("makespan", f.Estimated), units.Seconds(f.Makespan), share(f.Makespan, f.StoreAllS), units.Seconds(f.StoreAllS))
	switch {
	case f.LowerBound > 0 && f.Gap == 0:
		fmt.Fprintf(w, "bound\t%s: no plan is faster, this one is optimal\n", units.Seconds(f.LowerBound))
	case f.LowerBound > 0:
		fmt.Fprintf(w, "bound\t%s: no plan is faster, the gap is %s\n", units.Seconds(f.LowerBound), percent(float64(f.Gap)))
	}
	if f.OffloadBoundS > 0 {
		fmt.Fprintf(w, "\t%s when nothing is recomputed\n", units.Seconds(f.OffloadBoundS))
	}
	if f.Transfers > 0 {
		fmt.Fprintf(w, "idle\t%s waiting for %d transfers\n", units.Seconds(f.IdleS), f.Transfers)
	}
	fmt.Fprintf(w, "ops\t%d: %d forwards, of which %d again\n", f.Ops, f.Forwards, f.Forwards-f.Layers)
	_ = w.Flush() // of a buffer
	if f.peakAt != "" {
		fmt.Fprintln(out, f.peakAt)
	}
}

// writeStages prints where stages are, and what they cost.
func (f *planFigures) writeStages(w io.Writer) {
	for i := range f.Placed {
		f.Placed[i].write(w, i)
	}
	fmt.Fprintf(w, "%s: %s pipeline of %d stages on %d devices", pipeline.Name(f.Strategy, f.Winner), f.Kind, f.Stages, f.Devices)
	if f.Microbatches > 0 {
		fmt.Fprintf(w, ", %d microbatches", f.Microbatches)
	}
	if f.Batch > 0 && f.Microbatches == 0 {
		fmt.Fprint(w, ", minibatches")
	}
	if f.Batch > 0 {
		fmt.Fprintf(w, " of %s, %.4g samples/s", units.Count(f.Batch, "sample"), float64(f.Batch)/(f.PerMinibatch+f.Updates/float64(max(f.Microbatches, 1))))
	}
	fmt.Fprintln(w)
	switch {
	case f.Period > 0:
		fmt.Fprintf(w, "%s %s, %s a minibatch, bubble %s\n", estimated("period", f.Estimated), units.Seconds(f.Period), units.Seconds(f.PerMinibatch), percent(f.Bubble))
	case f.Makespan > 0:
		fmt.Fprintf(w, "%s %s, %s a microbatch, bubble %s\n", estimated("makespan", f.Estimated), units.Seconds(f.Makespan), units.Seconds(f.PerMinibatch), percent(f.Bubble))
	}
	if f.HostState {
		fmt.Fprintln(w, "the host has the optimizer's state and updates")
	}
	if f.Updates > 0 {
		fmt.Fprintf(w, "%s %s, behind the makespan\n", estimated("updates", f.Estimated), units.Seconds(f.Updates))
	}
	if f.RunnerUp != "" {
		fmt.Fprintf(w, "runner-up %s, %s more\n", f.RunnerUp, percent(max(0, f.RunnerUpS/(f.Makespan+f.Updates)-1)))
	}
	if f.LowerBound > 0 && f.PerMinibatch > 0 {
		fmt.Fprintf(w, "bound as the plan states it: with one stage on each device, and replicas in turn, no plan takes less than %s a minibatch, at most %s less\n", units.Seconds(f.LowerBound), percent(max(0, 1-f.LowerBound/f.PerMinibatch)))
	}
	for d := range f.Busy {
		fmt.Fprintf(w, "device %d: busy %s", d, units.Seconds(f.Busy[d]))
		if f.PeakLive != nil {
			fmt.Fprintf(w, ", at most %d live forwards", f.PeakLive[d])
		}
		if f.Peak != nil {
			fmt.Fprintf(w, ", peak %s (weights %s, buffers %s)", units.Bytes(f.Peak[d]), units.Bytes(f.Weights[d]), units.Bytes(f.Buffers[d]))
		}
		fmt.Fprintln(w)
	}
	for _, s := range f.Replicated {
		fmt.Fprintln(w, s)
	}
	for _, line := range slices.Concat(f.stale, f.Violations) {
		fmt.Fprintln(w, line)
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
