package train

import (
	"errors"
	"fmt"

	"plimsoll/executor/checkpoint"
	"plimsoll/internal/folder"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// Run is a planned job.
type Run struct {
	Job   *Job
	Chain *chain.Chain
	Plan  *JobPlan
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
	// World is the processes that have the devices of Plan; nil: this one has all.
	World *World
	// Past is the log of the steps before From.
	Past History

	batches map[string]int64 // that BatchNorms had seen when the run began

	// Callbacks follow a run; any may be nil. Record and Evaluated are called after every step and evaluation: an
	// error ends the run. Saved is called after every attempt to save a checkpoint.
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

// InFolder returns the saves of a model of a folder, whose trained weights are a folder of that kind.
func (s Saves) InFolder() Saves {
	if !s.Final.IsZero() {
		s.Final = folder.File{Dir: s.Final.Dir.Sub(FinalFolder), Name: FolderWeights}
	}
	return s
}

// SavesIn is SavesTo of a folder that is open.
func SavesIn(at *folder.Dir, keep, every int) Saves {
	return Saves{Dir: checkpoint.DirIn(at.Sub(Checkpoints), keep), Every: every, Final: folder.File{Dir: at, Name: FinalWeights}}
}

var (
	// ErrDiverged says that the loss or the gradients are no longer numbers.
	ErrDiverged = errors.New("the training is not finite")
	// ErrInterrupted says that a run was asked to stop before its end.
	ErrInterrupted = errors.New("interrupted")
)

// Check refuses settings that cannot go together, before anything is measured. Errors: ErrSpec, *executor.HostLimitError.
func (r *Run) Check() error {
	if err := r.Job.checkNext(); err != nil {
		return err
	}
	if r.Job.Microbatches > 0 {
		return r.checkPipe()
	}
	return r.Job.Work.CheckHost(r.HostLimit)
}

// checkNext refuses, with ErrSpec, a model whose tokens see those behind them: here text has the next token as the label of each, which they
// would see.
func (j *Job) checkNext() error {
	if _, masked := j.Set.(*data.Cloze); masked || data.Labels(j.Set) == 1 {
		return nil
	}
	for _, l := range j.Work.Model.Layers {
		for i := range l.Nodes {
			if a, attends := l.Nodes[i].Op.(kernels.Attention); attends && a.Bidirectional && models.OfText(j.Model) {
				return fmt.Errorf("%w: --model %s, layer %s: each token sees those behind it, and the labels of text are the next tokens: give a model with a causal mask",
					ErrSpec, j.Model, l.Name)
			}
		}
	}
	return nil
}

// checkPipe refuses what pipelines do not do, and what the plan, where it is known, does not. Errors: ErrSpec.
func (r *Run) checkPipe() error {
	if r.Plan.IsPipeline() {
		if err := CheckGuard(r.Plan.Strategy, r.Plan.IsFlush(), float64(r.MaxNorm), r.SkipNotFinite); err != nil {
			return err
		}
	}
	if r.HostLimit > 0 && !(r.Plan != nil && r.Plan.IsCycle()) {
		return fmt.Errorf("%w: --devices %s: --host-memory limits what the plan of one device offloads: leave it out, or train whole batches on one device", ErrSpec, r.Job.Devices)
	}
	return nil
}

// CheckGuard refuses, with ErrSpec, to clip the gradients of a plan without a flush, or to pass over its bad steps.
func CheckGuard(strategy string, flush bool, maxNorm float64, skips bool) error {
	var what string
	switch {
	case flush || maxNorm == 0 && !skips:
		return nil
	case maxNorm > 0:
		what = fmt.Sprintf("--clip-norm %v", maxNorm)
	default:
		what = "--on-nan skip"
	}
	return fmt.Errorf("%w: %s needs all stages' gradients before any update, and %s updates each on its own: leave it out, or give --strategy joint-flush, or another of type flush (plan --list)",
		ErrSpec, what, strategy)
}

// Whole makes the steps that a run has to do a multiple of those that the plan's updates take.
func (r *Run) Whole() {
	begun, unit := r.begun(), r.Plan.unit()
	r.Steps = begun + (r.Steps-begun+unit-1)/unit*unit
}

// SavesAfter reports whether a checkpoint follows after some steps.
func (r *Run) SavesAfter(steps int) bool {
	return r.Saves.Every > 0 && (r.crossed(steps, r.Saves.Every) || steps == r.Steps)
}

// crossed reports whether the last steps that were run together reached a multiple of every; 0 has none.
func (r *Run) crossed(steps, every int) bool {
	return every > 0 && steps > 0 && steps/every > max(steps-r.Plan.unit(), 0)/every
}

// begun returns how many steps were done before the run.
func (r *Run) begun() int {
	if r.From == nil {
		return 0
	}
	return int(r.From.Step)
}

// wants reports what of a batch this process asks for: images where it has its first stage, labels where it has its last one.
func (r *Run) wants(batch int) (images, labels bool) {
	plan := r.Plan
	for _, t := range plan.Tasks {
		if t.Kind != pipeline.F || (t.Shift-batch)%plan.Repeats() != 0 || r.World.ranks[t.Device] != r.World.Rank() {
			continue
		}
		images, labels = images || t.Stage == 0, labels || t.Stage == len(plan.Stages)-1
	}
	return images, labels
}

// forget removes the checkpoints on this process's disk that nothing goes on from.
func (r *Run) forget() error {
	switch {
	case r.Saves.Dir == nil:
		return nil
	case r.From == nil:
		return r.Saves.Dir.Clear()
	}
	return r.Saves.Dir.Forget(r.From.Step)
}

// begin puts the weights to start from in place.
func (r *Run) begin(e checkpoint.Model) (err error) {
	switch {
	case r.From != nil:
		if err := r.From.Restore(e); err != nil {
			return err
		}
		r.batches, err = r.From.Batches()
	case r.Init != "":
		r.batches, err = checkpoint.Import(r.Init, e)
	}
	if err == nil && r.From == nil && r.Job.Adapter != "" {
		err = checkpoint.ImportAdapter(r.Job.Adapter, e)
	}
	return err
}
