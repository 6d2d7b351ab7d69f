package periodic

import (
	"cmp"
	"math"
	"slices"

	"plimsoll/planner/pipeline"
)

// Folder turns absolute times of minibatches 0..k-1 into the tasks of a pattern.
type Folder struct{ plan *pipeline.Plan }

// NewFolder returns a folder for a plan that has a period but no tasks.
func NewFolder(p *pipeline.Plan) *Folder { return &Folder{p} }

// Add puts a task that runs at an absolute time for minibatch m into the period: in period j it works on minibatch
// j·k + shift at j·T + start.
func (f *Folder) Add(kind pipeline.Kind, stage, device int, at float64, m int) {
	t := f.plan.Period
	turn := math.Floor(at / t)
	start := at - turn*t
	if start >= t*(1-slack) { // rounding: it starts with the next period
		turn, start = turn+1, 0
	}
	f.plan.Tasks = append(f.plan.Tasks, pipeline.Task{
		Kind: kind, Stage: stage, Device: device, Start: max(start, 0), Shift: m - int(turn)*f.plan.Repeats(),
	})
}

// Finish orders the tasks by stage and time. It counts shifts from the minibatch of the first backward of stage 0, as the thesis
// does. If stages have replicas, it counts from the first minibatch of that one's round, so that rounds begin with minibatch 0.
func (f *Folder) Finish() {
	tasks := f.plan.Tasks
	slices.SortStableFunc(tasks, func(a, b pipeline.Task) int {
		return cmp.Or(a.Stage-b.Stage, boolean(a.Kind.Communication())-boolean(b.Kind.Communication()), cmp.Compare(a.Start, b.Start), int(a.Kind)-int(b.Kind), a.Shift-b.Shift)
	})
	first := slices.IndexFunc(tasks, func(t pipeline.Task) bool { return t.Kind == pipeline.B })
	round := 1
	for _, st := range f.plan.Stages {
		round = LCM(round, len(st.Devices))
	}
	zero := tasks[first].Shift
	zero -= (zero%round + round) % round
	for i := range tasks {
		tasks[i].Shift -= zero
	}
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
