package validate

import (
	"math"

	"plimsoll/bench/timeline"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
	"plimsoll/planner/pipeline"
)

// period returns the time between two of many instants, from pairs that lie half of all apart: the median of their slopes
// (Theil, 1950). A stall of the machine moves few of the slopes, and a rhythm over several periods, which a pipeline of its
// own accord may have, moves none much. There are at least two instants.
func period(instants []float64) (seconds float64, samples int) {
	apart := len(instants) / 2
	var slopes []float64
	for i := apart; i < len(instants); i++ {
		slopes = append(slopes, (instants[i]-instants[i-apart])/float64(apart))
	}
	return stats.Median(slopes), len(slopes)
}

// makespan returns when the tasks of a step ran, with the updates that follow or without. In simulated time these take as long as the messages
// of weights that stages share, which makespans count.
func makespan(tasks []pipe.Timing, updates bool) (from, to float64) {
	from = math.Inf(1)
	for _, t := range tasks {
		if t.Kind != pipeline.Update || updates {
			from, to = min(from, t.Start), max(to, t.End)
		}
	}
	return from, to
}

// steady fills in the figures of a plan that repeats a period, after so many periods in the steady state.
func (r *Row) steady(tasks []pipe.Timing, periods int) {
	depth := r.line.Flat.Depth
	instants := timeline.Ends(tasks, r.Minibatches, depth+periods)[depth-1:]
	r.MeasuredS, r.Samples = period(instants)
	r.line.Ran = timeline.Stretch{Tasks: tasks, From: instants[0], To: instants[len(instants)-1]}
	r.observe()
}

// steps fills in the figures of a plan with a flush, from the tasks of each step: those of the step in the middle.
func (r *Row) steps(all [][]pipe.Timing) {
	var done []timeline.Stretch
	for _, tasks := range all {
		from, to := makespan(tasks, r.line.Simulated)
		done = append(done, timeline.Stretch{Tasks: tasks, From: from, To: to})
	}
	r.line.Ran = done[stats.Middle(done, timeline.Stretch.Seconds)]
	_, end := makespan(r.line.Ran.Tasks, true) // with the updates, which PredictedS counts in real time
	r.MeasuredS, r.Samples = end-r.line.Ran.From, len(all)
	r.observe()
}

// observe fills in what follows from the time and the stretch that were measured.
func (r *Row) observe() {
	r.Ratio = r.MeasuredS / r.PredictedS
	used := 0
	for d, idle := range r.line.Ran.Idle(len(r.PerDevice)) {
		if !r.line.Uses(d) {
			continue
		}
		used++
		r.PerDevice[d].MeasuredIdle = idle
		r.MeasuredBubble += idle
	}
	r.MeasuredBubble /= float64(used)
}
