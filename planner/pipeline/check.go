package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"

	"plimsoll/planner/chain"
)

// Check judges a plan, whoever made it. A plan for one device is judged by schedule.Simulate, within the limits of the platform's first
// device; errors are those of schedule.Simulate and ErrPlatform. Every other plan is judged in exact arithmetic on the decimals of its files; times may be off by 1e-9 of the
// period or makespan. The report is there whenever its figures mean something: for a valid plan, and beside an
// *InvalidError whose violations are all of RuleDuration or later. Errors: *InvalidError; ErrPlan, ErrPlatform,
// ErrBranches and chain.ErrFormat for what cannot be judged.
func Check(c *chain.Chain, p *Platform, plan *Plan) (*Report, error) {
	switch {
	case plan.IsCycle():
		return checkCycle(c, p, plan)
	case plan.RunsSequence():
		return checkSequence(c, p, plan)
	}
	l, err := arrange(c, p, plan)
	if err != nil {
		return nil, err
	}
	if err := l.transfers(); err != nil {
		return nil, err
	}
	k := &check{layout: l, span: l.span()}
	k.eps = new(big.Int).Div(k.span, tolerance)
	k.durations()
	k.dependencies()
	k.resources()
	report, err := k.report()
	if err != nil {
		return nil, err
	}
	return report, k.broken.err()
}

// durations: what a task says about its duration agrees with the chain.
func (k *check) durations() {
	for _, j := range k.jobs {
		if j.bucket != nil {
			continue
		}
		said := k.plan.Tasks[j.task].Duration
		if said != nil && !k.agrees(*said, j.length) {
			k.broken.add(RuleDuration, j.task, None, "%s: its duration_s is %g, the chain and the platform say %g", k.name(j), *said, k.seconds(j.length))
		}
	}
}

// dependencies: a task starts when its inputs have ended. A backward that recomputes may do so before its gradient is there,
// and a message of gradients starts when the backward has made them. Among those that break this, the earliest come first.
func (k *check) dependencies() {
	type pair struct{ x, y *job }
	var early []pair
	judge := func(x, y *job) {
		if less(add(add(y.start, k.eps), k.lead(x, y)), x.end()) {
			early = append(early, pair{x, y})
		}
	}
	k.before(judge)
	k.updatesBehind(judge)
	slices.SortStableFunc(early, func(a, b pair) int { return a.y.start.Cmp(b.y.start) })
	for _, e := range early {
		until := fmt.Sprintf("ends at %g s", k.seconds(e.x.end()))
		if lead := k.lead(e.x, e.y); e.y.bucket != nil && lead.Sign() > 0 {
			until = fmt.Sprintf("has made these gradients at %g s", k.seconds(sub(e.x.end(), lead)))
		}
		k.broken.add(RuleDependency, e.y.task, e.x.task, "%s starts at %g s for %s %d: it waits for %s, which %s",
			k.name(e.y), k.seconds(e.y.start), k.word(), e.y.residue, k.name(e.x), until)
	}
}

// turn is when a job occupies its resource: in the period that begins at 0, or in the one minibatch of a flush plan.
type turn struct {
	job   *job
	begin ticks
}

func (t turn) end() ticks { return add(t.begin, t.job.length) }

// turns returns the turns of every resource in order, and the resources in order.
func (l *layout) turns() ([]resource, map[resource][]turn) {
	turns := map[resource][]turn{}
	for _, j := range l.jobs {
		t := turn{j, j.start}
		if l.period != nil {
			t.begin = modulo(j.start, l.period)
		}
		r := l.resource(j)
		turns[r] = append(turns[r], t)
	}
	for _, all := range turns {
		slices.SortStableFunc(all, func(a, b turn) int { return cmp.Or(a.begin.Cmp(b.begin), a.job.length.Cmp(b.job.length)) })
	}
	order := slices.SortedFunc(maps.Keys(turns), func(a, b resource) int { return cmp.Or(a.x-b.x, a.y-b.y) })
	return order, turns
}

// resources: a device or link does one thing at a time. A task of no duration that could be told from none may touch another one
// but not interrupt it.
func (k *check) resources() {
	order, turns := k.turns()
	for _, r := range order {
		var long, instant []turn
		for _, t := range turns[r] {
			if less(k.eps, t.job.length) {
				long = append(long, t)
			} else {
				instant = append(instant, t)
			}
		}
		k.load(r, turns[r])
		k.overlaps(r, long)
		k.interruptions(r, long, instant)
	}
}

// load: what a resource does in a period fits in one.
func (k *check) load(r resource, turns []turn) {
	sum := new(big.Int)
	for _, t := range turns {
		sum.Add(sum, t.job.length)
	}
	if k.period != nil && less(add(k.period, k.eps), sum) {
		k.broken.add(RuleResource, turns[len(turns)-1].job.task, None, "%v is used for %g s in a period of %g s", r, k.seconds(sum), k.plan.Period)
	}
}

func (k *check) overlaps(r resource, long []turn) {
	for i, t := range long {
		var next turn
		switch {
		case i+1 < len(long):
			next = long[i+1]
		case k.period != nil:
			next = turn{long[0].job, add(long[0].begin, k.period)}
		default:
			continue
		}
		if less(add(next.begin, k.eps), t.end()) {
			k.broken.add(RuleResource, next.job.task, t.job.task, "%v: %s starts at %g s, before %s ends at %g s",
				r, k.name(next.job), k.seconds(next.begin), k.name(t.job), k.seconds(t.end()))
		}
	}
}

// interruptions looks only at the last long turn that begins before each instant one: no two long ones overlap, or else the
// plan is refused for that.
func (k *check) interruptions(r resource, long, instant []turn) {
	for _, x := range instant {
		if len(long) == 0 {
			return
		}
		i, _ := slices.BinarySearchFunc(long, x.begin, func(y turn, at ticks) int { return cmp.Or(y.begin.Cmp(at), -1) })
		y := long[(i+len(long)-1)%len(long)]
		gap := sub(x.begin, y.begin)
		if k.period != nil {
			gap = modulo(gap, k.period)
		}
		if less(k.eps, gap) && less(gap, sub(y.job.length, k.eps)) {
			k.broken.add(RuleResource, x.job.task, y.job.task, "%v: %s, of no duration, interrupts %s", r, k.name(x.job), k.name(y.job))
		}
	}
}

// report computes the figures, and refuses devices whose memory is too small.
func (k *check) report() (*Report, error) {
	r := &Report{PerMinibatch: k.seconds(k.span) / float64(k.repeats)}
	if k.period == nil {
		r.Makespan = k.seconds(k.span)
	} else {
		r.Period, r.Missed = k.plan.Period, k.missed()
	}
	r.Replicated = k.replicated()
	k.memory(r)
	k.bubbles(r)
	if opsAtOnce(k.layout) > 0 && k.broken.onlyMemory() {
		if err := k.shareProcessors(r); err != nil {
			return nil, err
		}
	}
	k.predictions(r)
	return r, nil
}

// predictions: what the plan says of its costs is what was found. If not, that is no reason to refuse it.
func (k *check) predictions(r *Report) {
	r.Warnings = append(r.Warnings, warnOfTies(k.layout)...)
	if said := k.plan.PerDevicePeak; said != nil && !slices.Equal(said, r.PerDevicePeak) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan says that per_device_peak_bytes is %v, it is %v", said, r.PerDevicePeak))
	}
	if said := k.plan.Predicted.Makespan; k.period == nil && said != 0 && !k.agrees(said, k.span) && !alike(said, r.Makespan) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan says that makespan_s is %g, it is %g", said, r.Makespan))
	}
	if said := k.plan.Predicted.Period; said != 0 && !alike(said, r.Period) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan predicts a period of %g s, it is %g", said, r.Period))
	}
	if said := k.plan.Predicted.LowerBound; said <= r.PerMinibatch*(1+1e-9) {
		r.LowerBound = said
	} else {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plan says that lower_bound_s is %g, and takes %g a minibatch: its bound is wrong", said, r.PerMinibatch))
	}
}

// alike reports whether two times differ by no more than rounding.
func alike(a, b float64) bool { return math.Abs(a-b) <= near*max(a, b) }

// bubbles fills in how long devices work, and how much of the time those that hold a stage do not.
func (k *check) bubbles(r *Report) {
	busy := make([]big.Int, k.platform.Devices)
	for _, j := range k.jobs {
		if !j.onLink() {
			busy[j.device].Add(&busy[j.device], j.length)
		}
	}
	used := usedDevices(k.plan)
	r.PerDeviceBusy, r.PerDeviceBubble = make([]float64, len(busy)), make([]float64, len(busy))
	total := new(big.Int)
	for d := range busy {
		r.PerDeviceBusy[d] = k.seconds(&busy[d])
		if used[d] {
			r.PerDeviceBubble[d] = k.idle(&busy[d], 1)
		}
		total.Add(total, &busy[d])
	}
	r.Bubble = k.idle(total, len(used))
}

// idle returns the fraction of the time of some devices in which they do nothing; 0 when there is no time.
func (k *check) idle(busy ticks, devices int) float64 {
	if k.span.Sign() == 0 {
		return 0
	}
	all := new(big.Int).Mul(k.span, big.NewInt(int64(devices)))
	fraction, _ := new(big.Rat).SetFrac(sub(all, busy), all).Float64()
	return fraction
}

// shareProcessors replaces the times of a report, which hold for devices with processors of their own, by simulated times of devices that
// share processors.
func (k *check) shareProcessors(r *Report) error {
	s := &simulation{}
	if err := s.play(k.layout); err != nil {
		return err
	}
	o := s.outcome()
	r.Makespan, r.PerMinibatch, r.Bubble, r.PerDeviceBubble = o.Makespan, o.PerMinibatch, o.Bubble, s.idlePerDevice(o.Makespan)
	if k.period != nil {
		r.Makespan, r.Period = 0, o.Period
	}
	return nil
}
