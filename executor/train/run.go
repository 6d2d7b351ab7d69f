package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/folder"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Run is a planned job: on one device along Plan, or on several along Pipe.
type Run struct {
	Job   *Job
	Chain *chain.Chain
	Plan  *pipeline.Plan
	Pipe  *Pipe // nil on one device
	Limit int64 // bytes of the arena, of each device
	// HostLimit bounds the page-locked host memory, in bytes; 0: no limit.
	HostLimit int64
	Steps     int
	Rate      Rate
	// MaxNorm clips the gradients to this norm, all of them together; 0: no clipping.
	MaxNorm float32
	// SkipNotFinite goes on after a step whose gradients are not finite, which changed no weight and no optimizer state.
	// Otherwise such a step, or a loss that is not finite, ends the run.
	SkipNotFinite bool
	// EvalEvery evaluates after so many steps, besides the end; 0: at the end alone.
	EvalEvery int
	Saves     Saves
	// Init is a file of weights with torchvision's names to begin with; From, the checkpoint to go on from, overrules it.
	Init string
	From *checkpoint.Checkpoint
	// World is the processes that have the devices of Pipe; nil: this one has all.
	World *World
	// Past is what was logged of the steps before From.
	Past History

	batches map[string]int64 // that BatchNorms had seen when the run began

	// What follows a run; any may be nil. Record and Evaluated are called after every step and evaluation: an error
	// ends the run. Saved is called after every attempt to save a checkpoint.
	Record    func(Record) error
	Evaluated func(Evaluation) error
	Saved     func(step int, err error)
}

// Saves says what a run keeps on disk.
type Saves struct {
	Dir   *checkpoint.Dir // nil: no checkpoints
	Every int             // steps; 0: only when the run is interrupted
	Final folder.File     // of the trained weights, with torchvision's names; zero: none
}

// SavesTo keeps in the folder at a path, which is made, the newest checkpoints, one after every so many steps, and the trained weights.
func SavesTo(path string, keep, every int) Saves { return SavesIn(folder.At(path), keep, every) }

// SavesIn is SavesTo of a folder that is open.
func SavesIn(at *folder.Dir, keep, every int) Saves {
	return Saves{Dir: checkpoint.DirIn(at.Sub(Checkpoints), keep), Every: every, Final: folder.File{Dir: at, Name: FinalWeights}}
}

// Summary is what a run gave and took, beside what was predicted. Times are of one step, in seconds.
type Summary struct {
	Steps              int      `json:"steps"`              // of the whole run
	ResumedFrom        int      `json:"resumed_from"`       // steps that were done before
	Loss               Number   `json:"loss"`               // the last one that is finite
	Accuracy           float64  `json:"accuracy"`           // on the test samples
	MeanIoU            *float64 `json:"mean_iou,omitempty"` // likewise, as in Score, where images have masks
	TestLoss           Number   `json:"test_loss"`
	TestCorrect        int      `json:"test_correct"`
	TestSamples        int      `json:"test_samples"`
	Strategy           string   `json:"strategy"`
	Winner             string   `json:"winner,omitempty"` // as in pipeline.Plan
	LimitBytes         int64    `json:"limit_bytes"`
	PredictedS         float64  `json:"predicted_s_per_step"`
	MeasuredS          float64  `json:"measured_s_per_step"`
	Drift              *Drift   `json:"drift,omitempty"` // on one device
	PredictedPeakBytes int64    `json:"predicted_peak_bytes"`
	MeasuredPeakBytes  int64    `json:"measured_peak_bytes,omitempty"` // not of pipelines without a flush
	ExtentBytes        int64    `json:"extent_bytes"`
	StagedBytes        int64    `json:"staged_bytes,omitempty"` // of the arena, in which the next batch waits beside a step
	// Pipe is how a pipeline used its devices. Peak and extent above are then those of the device that needs most.
	Pipe *PipeSummary `json:"pipeline,omitempty"`
	// State is what offloaded state costs beside the predicted time, and StateWaitS for how long a step waited for it.
	State         *executor.StateCost `json:"state,omitempty"`
	StateWaitS    float64             `json:"state_wait_s_per_step,omitempty"`
	HostBytes     int64               `json:"host_bytes"`             // of page-locked memory
	CopiesBytes   int64               `json:"host_copies_bytes"`      // of which for what is offloaded
	SamplesPerS   float64             `json:"samples_per_s"`          // without evaluations and checkpoints
	ImagesPerS    float64             `json:"images_per_s,omitempty"` // the same, of models of images
	TokensPerS    float64             `json:"tokens_per_s,omitempty"` // of language models
	DataWaitShare float64             `json:"data_wait_share"`        // of the time of the steps, that they waited for data
	// Idle is how long the device computed nothing; not of pipelines, whose devices wait for each other, too.
	Idle              *Idle  `json:"idle,omitempty"`
	Skipped           int    `json:"skipped"`     // steps whose gradients were not finite
	BadSamples        int64  `json:"bad_samples"` // that were passed over
	Checkpoints       int    `json:"checkpoints"` // saved
	CheckpointsFailed int    `json:"checkpoints_failed"`
	WeightsSHA256     string `json:"weights_sha256"`
}

// Outcome is a finished run.
type Outcome struct {
	Summary
	Measured executor.Measured // the step in the middle of the latest ones, which MeasuredS is the time of
	// Tasks says when the tasks of a pipeline ran: of the step in the middle of the latest ones, which took MeasuredS; without a
	// flush of the last minibatches.
	Tasks   []pipe.Timing
	History History
	// Unsaved is why the trained state is not on disk as it should be; nil when it is.
	Unsaved error
}

var (
	// ErrDiverged says that the loss or the gradients are no longer numbers.
	ErrDiverged = errors.New("the training is not finite")
	// ErrInterrupted says that a run was asked to stop before its end.
	ErrInterrupted = errors.New("interrupted")
)

// PredictedPeak returns the peak of a plan in the arena: the plan counts activations, static memory comes on top.
func (j *Job) PredictedPeak(p *pipeline.Plan) int64 {
	return p.Peak() + j.Planned(p).Work.StaticBytes()
}

// PredictedSeconds returns the time of a training step along a plan: its sequence, once for each part, and the update. What transfers
// of offloaded state add is not in it (executor.StateCost).
func (j *Job) PredictedSeconds(c *chain.Chain, p *pipeline.Plan) float64 {
	return float64(j.parts())*p.Predicted.Makespan + executor.UpdateSeconds(c)
}

// FollowedPlan returns the plan that the run follows, on one device or on several; nil before it is planned.
func (r *Run) FollowedPlan() *pipeline.Plan {
	if r.Pipe != nil {
		return r.Pipe.Plan
	}
	return r.Plan
}

// PredictedSeconds returns the time of a step along the plan.
func (r *Run) PredictedSeconds() float64 {
	if r.Pipe != nil {
		return r.Pipe.PredictedSeconds()
	}
	return r.Job.PredictedSeconds(r.Chain, r.Plan)
}

// Do measures the peak of one step, trains, and evaluates on the test samples. When ctx ends it finishes the step that
// runs, saves a checkpoint and returns ErrInterrupted. Errors: ErrDiverged, ErrOtherRun, those of the executor, the data
// and the run's functions; a checkpoint that cannot be saved is none (Saved, Outcome.Unsaved).
func (r *Run) Do(ctx context.Context) (out *Outcome, err error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if r.Pipe != nil {
		return r.doPipe(ctx)
	}
	opt, job := r.deviceOptions(), r.Job.Planned(r.Plan)
	audit, err := job.Audit(r.Plan.Sequence(), executor.Options{Limit: opt.Limit, HostLimit: opt.HostLimit, Sim: opt.Sim})
	if err != nil {
		return nil, err
	}
	e, err := job.Start(r.Plan.Sequence(), opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	out = &Outcome{Measured: executor.Measured{Live: audit.Live}, History: r.Past, Summary: Summary{
		Steps: r.Steps, Strategy: r.Plan.Strategy, Winner: r.Plan.Winner, LimitBytes: r.Limit,
		PredictedS: r.PredictedSeconds(), PredictedPeakBytes: r.Job.PredictedPeak(r.Plan),
		MeasuredPeakBytes: audit.PeakBytes, ExtentBytes: audit.ExtentBytes,
		StagedBytes: job.Work.StagedBytes(), HostBytes: audit.HostBytes, CopiesBytes: audit.CopiesBytes, State: r.Job.Work.StateCost(r.Chain, r.Plan),
	}}
	if err := r.begin(e, out); err != nil {
		return nil, err
	}
	l := &loop{Run: r, e: e, m: e, out: out, step: out.ResumedFrom, saved: -1}
	l.save = l.saveWhole
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	out.WeightsSHA256, err = e.Hash()
	return out, err
}

// deviceOptions are those of the executor of a run on one device.
func (r *Run) deviceOptions() executor.Options {
	return executor.Options{
		Limit: r.Limit, HostLimit: r.HostLimit, Sim: executor.Following(r.Chain, r.Plan), Timed: true, MaxNorm: r.MaxNorm, Updates: r.updates(),
	}
}

// Check refuses settings that cannot go together, before anything is measured. Errors: ErrSpec, *executor.HostLimitError.
func (r *Run) Check() error {
	if err := r.Job.Work.CheckHost(r.HostLimit); err != nil {
		return err
	}
	if r.Job.Microbatches > 0 {
		return r.checkPipe()
	}
	if r.Job.Offload != executor.OffloadWeights {
		return nil
	}
	switch {
	case r.MaxNorm > 0:
		return fmt.Errorf("%w: %w: --clip-norm %v needs the gradients of all layers: leave it out, or give --offload-state optimizer", ErrSpec, executor.ErrAtOnce, r.MaxNorm)
	case r.SkipNotFinite:
		return fmt.Errorf("%w: %w: with --on-nan skip some layers of a bad step would be updated: give --on-nan stop, or --offload-state optimizer", ErrSpec, executor.ErrAtOnce)
	}
	return nil
}

// SavesAfter reports whether a checkpoint follows after some steps.
func (r *Run) SavesAfter(steps int) bool {
	return r.Saves.Every > 0 && (r.crossed(steps, r.Saves.Every) || steps == r.Steps)
}

// crossed reports whether the last steps that were run together reached a multiple of every; 0 has none.
func (r *Run) crossed(steps, every int) bool {
	return every > 0 && steps > 0 && steps/every > max(steps-r.Pipe.unit(), 0)/every
}

// begin puts the weights to start from in place.
func (r *Run) begin(e checkpoint.Model, out *Outcome) (err error) {
	switch {
	case r.From != nil:
		out.ResumedFrom = r.begun()
		if err := r.From.Restore(e); err != nil {
			return err
		}
		r.batches, err = r.From.Batches()
	case r.Init != "":
		r.batches, err = checkpoint.Import(r.Init, e)
	}
	return err
}

// Audited is the memory of one step, measured: each op's bytes are checked against what its tensors own.
type Audited struct {
	PeakBytes   int64   // the most that was owned while an op ran, static memory included
	ExtentBytes int64   // the end of the highest byte that was written
	Live        []int64 // bytes owned when each op started
	HostBytes   int64   // page-locked memory
	CopiesBytes int64   // of which for what is offloaded
}

// Audit runs one step that stops after every op and looks at the whole arena.
func (j *Job) Audit(seq schedule.Sequence, opt executor.Options) (a *Audited, err error) {
	opt.Audit = true
	e, err := j.Start(seq, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	res, err := e.Train(0, 0)
	if err != nil {
		return nil, err
	}
	return &Audited{
		PeakBytes: res.PeakBytes, ExtentBytes: res.ExtentBytes, Live: slices.Clone(res.Live),
		HostBytes: res.HostBytes, CopiesBytes: res.CopiesBytes,
	}, nil
}
