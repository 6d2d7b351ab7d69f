package pipeline

// A stage with ops
//
// For each minibatch, a stage of layers i..j with ops runs a forward part F and a backward part B; other minibatches' parts come between.
// Its backward is not split, and without a flush the stage has its devices for itself. Its ops are Stage.Ops, and LastOps for the last
// microbatch of a plan with a flush. They are forwards and backwards of layers i..j, in the numbers of the whole chain, with the semantics of package schedule.
// F ends with the first op that computes layer j, and B is the rest. In a plan F and B are one task each, of the times of their ops.
//
// With a flush the ops of B before its first backward recompute and need no gradient, so they may run before the gradient is there. A
// device that waits for a gradient recomputes meanwhile (GPipe, Huang et al. 2019, section 2.3; torchgpipe, Kim et al. 2020, sections 2.1
// and 3.2.4).
//
// Beside the weights and the communication buffers, a minibatch of a stage without transfers holds:
//
//	while F runs    a_{i-1}, and what the ops have made so far, with the op's output and overhead
//	between         a_{i-1}, and what F leaves: K bytes together. A plain a_j goes, it is in the send buffer; an a_j that
//	                is part of a saved set stays
//	while B runs    that and δ_j, copied from the receive buffer, and so on to δ_{i-1}, which goes when B ends
//
// Let R be the most bytes that one minibatch holds while F or B runs. If at most g minibatches are live at once (from the start of F to the
// end of B), a stage needs at most
//
//	copies·W(i,j) + Buffers(i,j) + (g-1)·K + R
//
// Proof: the device runs one part at a time. So at any instant at most one live minibatch is inside F or B, and it holds at most R. All
// others live are between and hold K each, and they are at most g-1. When none is inside, at most g hold K each. K <= R, because F's last
// instant holds all of K or more. For g = 1 the bound is reached: some op reaches R, and the stage takes exactly the sum. For g > 1 it is
// reached when a part's peak falls on an instant with g live minibatches. With a flush the sum of one part and of the bytes that all others
// keep is counted exactly, part by part.

import (
	"fmt"
	"math/big"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/schedule"
)

// measureOps measures the stages that have ops. The backward of each is one task.
func (a *arranger) measureOps() {
	a.ops = make([]*stageCosts, len(a.plan.Stages))
	for s, st := range a.plan.Stages {
		if !st.hasOps() {
			continue
		}
		var err error
		a.ops[s], err = a.opsOf(s)
		switch {
		case err != nil:
			a.unfit = fmt.Errorf("stage %d: %w", s, err)
		case a.split[s]:
			a.unfit = fmt.Errorf("%w: stage %d has ops and W tasks: its backward cannot be split", ErrOps, s)
		case !a.plan.IsFlush() && a.shared(s):
			a.unfit = fmt.Errorf("%w: stage %d has ops, so without a flush it must have its devices for itself", ErrOps, s)
		default:
			continue
		}
		return
	}
}

// opsOf measures a stage with ops.
func (a *arranger) opsOf(s int) (*stageCosts, error) {
	st := a.plan.Stages[s]
	switch {
	case len(st.LastOps) > 0 && !a.plan.IsFlush():
		return nil, fmt.Errorf("%w: field \"last_ops\" is for plans with a flush, \"weight_versions\" is %q", ErrOps, a.plan.Versions)
	case len(st.Ops) == 0:
		return nil, fmt.Errorf("%w: it has \"last_ops\" without \"ops\" for the other microbatches", ErrOps)
	}
	each, err := a.measureIn(s, st.Ops)
	if err != nil || len(st.LastOps) == 0 {
		return &stageCosts{each, each}, err
	}
	last, err := a.measureIn(s, st.LastOps)
	if err != nil {
		return nil, fmt.Errorf("last_ops: %w", err)
	}
	return &stageCosts{each, last}, nil
}

// measureIn is MeasureStage for a stage of the plan: transfers need a period of one minibatch, and only with a flush does a backward
// start before its gradient is there.
func (a *arranger) measureIn(s int, ops schedule.Sequence) (*StageCost, error) {
	own, beside := a.inside(s)
	k, err := MeasureStage(own, a.plan.Stages[s], ops)
	switch {
	case err != nil:
		return nil, err
	case k.Moves() > 0 && (a.plan.IsFlush() || a.repeats != 1):
		return nil, fmt.Errorf("%w: it offloads: that is for periodic plans with one minibatch a period", ErrOps)
	case !a.plan.IsFlush():
		k.Early = 0
	}
	k.keep(beside)
	return k, nil
}

// shared reports whether a device of a stage has another stage.
func (a *arranger) shared(stage int) bool {
	for s, st := range a.plan.Stages {
		if s != stage && slices.ContainsFunc(st.Devices, func(d int) bool { return slices.Contains(a.plan.Stages[stage].Devices, d) }) {
			return true
		}
	}
	return false
}

// transfers refuses transfers on links of which nothing is known. Errors: ErrPlatform.
func (l *layout) transfers() error {
	for s, k := range l.ops {
		if k != nil && k.each.Moves() > 0 && l.platform.Host == 0 {
			return fmt.Errorf("%w: stage %d offloads, but field \"host_bandwidth_bytes_per_s\" does not say how fast", ErrPlatform, s)
		}
	}
	return nil
}

// run returns the ops, with their costs, of a minibatch of a stage with ops.
func (l *layout) run(stage, residue int) *StageCost {
	if l.period == nil && residue == l.repeats-1 {
		return l.ops[stage].last
	}
	return l.ops[stage].each
}

// timing returns the time of a task if it is not the sum over the layers of its stage; else nil.
func (l *layout) timing(j *job) *Timing {
	switch {
	case l.plan.Timings != nil && l.plan.Timings[j.task] != nil:
		return l.plan.Timings[j.task]
	case l.ops[j.stage] == nil:
		return nil
	}
	k := l.run(j.stage, j.residue)
	if j.kind == F {
		return &Timing{Length: k.Forward}
	}
	return &Timing{Length: k.Backward, Early: k.Early}
}

// memoryOfOps sets the peaks of devices of which a stage has ops, and refuses those that have less.
func (k *check) memoryOfOps(r *Report, peaks []*peak) {
	done := map[int]bool{}
	for s, costs := range k.ops {
		if costs == nil {
			continue
		}
		for _, d := range k.plan.Stages[s].Devices {
			if !done[d] {
				k.memoryOfReplica(r, s, d, peaks[d].live[s])
			}
			done[d] = true
		}
	}
}

// memoryOfReplica does that for one device of a stage, on which without a flush so many minibatches are live at most.
func (k *check) memoryOfReplica(r *Report, s, d, live int) {
	held, at, why := k.heldByOps(s, d, live)
	if why != nil {
		k.broken.add(why.rule, None, None, "stage %d on device %d: %s", s, d, why.reason)
		return
	}
	need := r.PerDeviceWeights[d] + r.PerDeviceBuffers[d] + held
	r.PerDevicePeak[d] = need
	if limit := k.platform.Memory[d]; need > limit {
		k.broken.put(Violation{Rule: RuleMemory, Task: at, Other: None, Device: d, Needed: need, Limit: limit,
			Reason: fmt.Sprintf("device %d needs %s%s (weights %s, buffers %s, %s %s), it has %s",
				d, units.Precise(need), k.atTask(at), units.Bytes(r.PerDeviceWeights[d]), units.Bytes(r.PerDeviceBuffers[d]), k.whose(s, live), units.Bytes(held), units.Precise(limit))})
	}
}

// whose says what holds the memory of a device of a stage with ops.
func (k *check) whose(s, live int) string {
	if k.period == nil {
		return "microbatches"
	}
	return fmt.Sprintf("%d live minibatches of stage %d with its ops", live, s)
}

// heldByOps returns the most bytes of live minibatches on a device of a stage with ops, and the task that reaches it first where one is known.
// With a flush and with transfers that is exact, else a bound.
func (k *check) heldByOps(s, d, live int) (bytes int64, at int, why *misfit) {
	switch cost := k.ops[s].each; {
	case k.period == nil:
		bytes, at = k.fullest(d)
		return bytes, at, nil
	case live == 0:
		return 0, None, nil
	case cost.Moves() > 0:
		bytes, why = cost.held(k.platform, k.plan.rhythm(s), cost.Moves())
		return bytes, None, why
	default:
		return cost.Bytes(live), None, nil
	}
}

// fullest returns the most bytes that the microbatches of a step with a flush hold on a device at any instant, and the task that reaches it
// first. One part runs at a time. The microbatch of a stage with ops holds what they have made, and between its parts what is left. Tensors
// that wait between two stages of the device come beside.
func (k *check) fullest(d int) (most int64, at int) {
	costs, between, at := NewCosts(k.chain), int64(0), None
	for _, q := range k.inOrder()[resource{d, d}] {
		goes, inside, leaves := k.part(costs, q.job)
		between -= goes
		if at == None || between+inside > most {
			most, at = between+inside, q.job.task
		}
		between += leaves
	}
	return most, at
}

// part returns bytes of a microbatch: which go as a task begins, which it holds while the task runs, and which it leaves.
func (k *check) part(costs *Costs, j *job) (goes, inside, leaves int64) {
	s, r, held := j.stage, j.residue, k.held(costs, j.stage)
	switch ops := k.ops[s] != nil; {
	case j.kind == F && ops:
		x := k.run(s, r)
		return k.waiting(F, s-1, r), x.ForwardPeak, x.Kept + k.waiting(F, s, r)
	case j.kind == F:
		return k.waiting(F, s-1, r), held, held + k.waiting(F, s, r)
	case j.kind == W:
		return held, held, 0
	case ops:
		x := k.run(s, r)
		return k.waiting(B, s, r) + x.Kept, x.BackwardPeak, k.waiting(B, s-1, r)
	case k.split[s]: // W follows
		return k.waiting(B, s, r), 0, k.waiting(B, s-1, r)
	}
	return k.waiting(B, s, r) + held, held, k.waiting(B, s-1, r)
}

// waiting returns the bytes of a tensor that waits between a stage and the next one, where both are on one device. It is the activation behind
// F, or the gradient behind B.
func (k *check) waiting(kind Kind, s, residue int) int64 {
	if s < 0 || s+1 >= len(k.plan.Stages) || k.crosses(s, residue) {
		return 0
	}
	bytes := k.chain.Activation(k.plan.Stages[s].Last)
	if kind == B {
		bytes = k.chain.Gradient(k.plan.Stages[s].Last)
	}
	return bytes - k.passing(s)
}

func (a *arranger) job(i int, t *Task) *job {
	j := &job{task: i, kind: t.Kind, stage: t.Stage, far: t.To, device: t.Device, early: new(big.Int)}
	a.timed(j, t.Start, t.Shift)
	if t.Kind.Communication() {
		return j
	}
	if x := a.timing(j); x != nil {
		j.length, j.early = a.ticks(x.Length), a.ticks(x.Early)
	} else {
		j.length = a.compute(t.Kind, t.Stage)
	}
	return j
}

// compute returns the duration of F, B or W of a stage.
func (a *arranger) compute(kind Kind, s int) ticks {
	at := place{kind: kind, stage: s}
	if sum, ok := a.lengths[at]; ok {
		return sum
	}
	sum := new(big.Int)
	for i := a.plan.Stages[s].First; i <= a.plan.Stages[s].Last; i++ {
		layer := a.chain.Layer(i)
		switch {
		case kind == F:
			sum.Add(sum, a.ticks(layer.ForwardS))
		case kind == W:
			sum.Add(sum, a.ticks(*layer.BackwardWeightS))
		case a.split[s]:
			sum.Add(sum, a.ticks(*layer.BackwardInputS))
		default:
			sum.Add(sum, a.ticks(layer.BackwardS))
		}
	}
	a.lengths[at] = sum
	return sum
}

// tasks: each is one that its stage has, where and when it can be.
func (a *arranger) tasks() {
	for i := range a.plan.Tasks {
		t := &a.plan.Tasks[i]
		if reason := a.misplaced(t); reason != "" {
			a.broken.add(RuleTasks, i, None, "task %d, %v: %s", i, t, reason)
			continue
		}
		j := a.job(i, t)
		if first := a.put(j); first != nil {
			a.broken.add(RuleOnce, i, first.task, "task %d, %v: a second one for %s %d, after task %d", i, t, a.word(), j.residue, first.task)
			continue
		}
		a.jobs = append(a.jobs, j)
	}
}
