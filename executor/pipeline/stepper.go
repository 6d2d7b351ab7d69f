package pipeline

import (
	"context"
	"time"

	"plimsoll/executor"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// Stepper trains along a sequence on one device, step by step, each at a learning rate of its own.
type Stepper struct {
	*Executor
	seq  schedule.Sequence
	rate float32
	step Step
}

// Step holds the results and the times of a training step.
type Step struct {
	Loss    float64 // the mean over the microbatches
	Correct int     // predictions, before the update
	Counted int     // labels that count
	Norm    float64 // as in Result
	Skipped bool    // likewise
	// Parts are the times of the microbatches; nil unless Options.Timed.
	Parts   []executor.Times
	Seconds float64 // wall time of the whole step as the caller sees it
}

// NewStepper binds a plan that runs a sequence to a device. It overrules Rate and Done of the options. Errors: those of New.
func NewStepper(w *Workload, on executor.Target, costs Costs, plan *pipeline.Plan, opt Options) (*Stepper, error) {
	s := &Stepper{seq: plan.Sequence()}
	opt.Rate, opt.Done = func(int) float32 { return s.rate }, s.add
	var err error
	s.Executor, err = New(w, []executor.Target{on}, costs, plan, opt)
	return s, err
}

// NewAlone is NewStepper for a sequence without transfers that nothing was measured for.
func NewAlone(w *Workload, on executor.Target, seq schedule.Sequence, opt Options) (*Stepper, error) {
	costs, plan := Unmeasured(w, seq)
	return NewStepper(w, on, costs, plan, opt)
}

// Unmeasured returns the plan of a sequence without transfers, in as much memory as it takes, and the costs that it is bound with.
func Unmeasured(w *Workload, seq schedule.Sequence) (Costs, *pipeline.Plan) {
	plan := pipeline.NewSequence(w.Model.Name, "", seq, schedule.Limits{Memory: schedule.NoLimit})
	return Costs{w.Unmeasured(), plan.Platform}, plan
}

func (s *Stepper) add(r Result) {
	x := &s.step
	x.Loss, x.Correct, x.Counted = x.Loss+r.Loss/float64(s.group), x.Correct+r.Correct, x.Counted+r.Counted
	x.Norm, x.Skipped = r.Norm, r.Skipped
}

// Step trains the next step. Errors: those of Run.
func (s *Stepper) Step(rate float32) (*Step, error) {
	s.rate, s.step = rate, Step{}
	begun := time.Now()
	if err := s.Run(context.Background(), s.group); err != nil {
		return nil, err
	}
	s.step.Seconds = time.Since(begun).Seconds()
	if s.opt.Timed == nil {
		return &s.step, nil
	}
	ran, err := s.Timings()
	s.step.Parts = PartTimes(ran, s.seq, s.group)
	return &s.step, err
}

// PartTimes returns the times of each of n microbatches of a step along a sequence: its ops, its batch and, of the last one, the update.
func PartTimes(ran []Timing, seq schedule.Sequence, n int) []executor.Times {
	all, begins := make([]executor.Times, n), make([]float64, n)
	for k := range all {
		all[k].Intervals = make([]executor.Interval, len(seq))
	}
	for _, t := range ran {
		if t.Op == 0 && t.Kind == pipeline.F {
			begins[t.Minibatch] = t.Start
		}
	}
	for _, t := range ran {
		x, begin := &all[t.Minibatch], begins[t.Minibatch]
		switch {
		case t.Op == TheBatch:
			x.Upload = begin - t.Start
		case t.Op > 0:
			x.Intervals[t.Op-1] = executor.Interval{Start: t.Start - begin, End: t.End - begin}
			if !seq[t.Op-1].Kind.Transfer() {
				x.Busy += t.End - t.Start
			}
		case t.Kind == pipeline.B:
			x.Sequence = t.End - begin
		case t.Kind == pipeline.Update:
			x.Update = t.End - t.Start
			x.Busy += x.Update
		}
	}
	return all
}

// Batch is a feed that gives every minibatch the same images and labels. Its owner changes them between steps.
type Batch struct {
	Input  []float32 // as Feed.Images has it
	Target []int32   // as Feed.Labels has it
}

// NewBatch returns a batch of zeros for a model.
func NewBatch(m *models.Model) *Batch {
	bytes := m.Input.Bytes() * int64(m.Wiring().Inputs())
	return &Batch{make([]float32, bytes/4), make([]int32, m.Labels.Elements())}
}

// Images implements Feed.
func (b *Batch) Images(_ int, dst []float32) error {
	copy(dst, b.Input)
	return nil
}

// Labels implements Feed.
func (b *Batch) Labels(_ int, dst []int32) error {
	copy(dst, b.Target)
	return nil
}

// Predict predicts a batch of a feed and fills logits: float32, N,Classes; of tokens N,T,Classes. Errors: those of Evaluate.
func (s *Stepper) Predict(feed Feed, logits []float32) error {
	return s.Evaluate(context.Background(), feed, 1, func(_ int, got []float32) error {
		copy(logits, got)
		return nil
	})
}
