package pipelined

import (
	"math"
	"slices"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/stats"
)

// stretch is a part of a run: when its tasks ran, and what of that counts. The steady state of a run is from the end of one
// period to the end of a later one; a step is a stretch of its own.
type stretch struct {
	tasks    []pipe.Timing
	from, to float64 // seconds
}

func (s stretch) seconds() float64 { return s.to - s.from }

// ends returns for each of n periods when the last task of its minibatches ended. Period i has the minibatches from i*repeats on.
func ends(tasks []pipe.Timing, repeats, n int) []float64 {
	all := make([]float64, n)
	for _, t := range tasks {
		if i := t.Minibatch / repeats; i < n && t.Kind != pipe.Updating {
			all[i] = max(all[i], t.End)
		}
	}
	return all
}

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

// makespan returns when the tasks of a step ran. Its updates follow.
func makespan(tasks []pipe.Timing) (from, to float64) {
	from = math.Inf(1)
	for _, t := range tasks {
		if t.Kind != pipe.Updating {
			from, to = min(from, t.Start), max(to, t.End)
		}
	}
	return from, to
}

// idle returns the share of the stretch in which each of n devices computes nothing.
func (s *stretch) idle(devices int) []float64 {
	all := slices.Repeat([]float64{1}, devices)
	for _, t := range s.tasks {
		if !t.Kind.Communication() && t.Kind != pipe.Updating {
			all[t.Device] -= max(0, min(t.End, s.to)-max(t.Start, s.from)) / (s.to - s.from)
		}
	}
	return all
}

// steady fills in the figures of a plan that repeats a period, after so many periods in the steady state.
func (r *Row) steady(tasks []pipe.Timing, periods int) {
	depth := r.flat.depth
	instants := ends(tasks, r.Minibatches, depth+periods)[depth-1:]
	r.MeasuredS, r.Samples = period(instants)
	r.span = stretch{tasks: tasks, from: instants[0], to: instants[len(instants)-1]}
	r.observe()
}

// steps fills in the figures of a plan with a flush, from the tasks of each step: those of the step in the middle.
func (r *Row) steps(all [][]pipe.Timing) {
	var done []stretch
	for _, tasks := range all {
		from, to := makespan(tasks)
		done = append(done, stretch{tasks: tasks, from: from, to: to})
	}
	r.span = done[stats.Middle(done, stretch.seconds)]
	r.MeasuredS, r.Samples = r.span.seconds(), len(all)
	r.observe()
}

// observe fills in what follows from the time and the stretch that were measured.
func (r *Row) observe() {
	r.Ratio = r.MeasuredS / r.PredictedS
	used := 0
	for d, idle := range r.span.idle(len(r.PerDevice)) {
		if !r.holds(d) {
			continue
		}
		used++
		r.PerDevice[d].MeasuredIdle = idle
		r.MeasuredBubble += idle
	}
	r.MeasuredBubble /= float64(used)
}
