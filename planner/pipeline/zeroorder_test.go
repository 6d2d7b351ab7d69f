package pipeline_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/schedule"
)

// hasty returns random plans with a flush that divide gradients, and about half of them weights. Many tasks and messages take no time. With ops
// some stages recompute what they need.
func hasty(t *testing.T, rnd *rand.Rand, plans int, ops bool) (all []pipelinetest.Case) {
	t.Helper()
	for len(all) < plans {
		k := pipelinetest.Case{Chain: pipelinetest.Chain(rnd, 1+rnd.IntN(8), rnd.IntN(2) == 0), Platform: pipelinetest.Platform(rnd, 2+rnd.IntN(2))}
		long := rnd.IntN(4) // quarters of the layers take time
		for i := range k.Chain.Layers {
			if x := &k.Chain.Layers[i]; rnd.IntN(4) >= long {
				x.ForwardS, x.BackwardS, x.BackwardInputS, x.BackwardWeightS = 0, 0, new(float64), new(float64)
			}
		}
		k.Chain.Layers[0].ForwardS++ // something takes time
		if rnd.IntN(2) == 0 {
			k.Platform.Bandwidth = pipeline.Free()
		}
		k.Plan = pipelinetest.InTurns(rnd, k.Chain, k.Platform)
		if ops {
			recompute(rnd, k)
		}
		k.Plan.Zero = pipeline.ZeroGradients + pipeline.Zero(rnd.IntN(2))
		if rnd.IntN(3) == 0 {
			larger(k)
		}
		plan, err := pipeline.Synchronize(k.Chain, k.Platform, k.Plan)
		if stuck, is := errors.AsType[*pipeline.DeadlockError](err); is && ops && !strings.Contains(strings.Join(stuck.Cycle, " "), "before") {
			continue // a backward may recompute, and then take no time: tasks of its last instant have no order
		}
		if err != nil {
			t.Fatalf("%v: %+v", err, k.Plan)
		}
		if k.Plan = plan; len(plan.Synchronization) > 0 {
			all = append(all, k)
		}
	}
	return all
}

// recompute gives ops to some stages of a plan that splits no backward, unless devices then wait for each other: tasks that took no time now do.
func recompute(rnd *rand.Rand, k pipelinetest.Case) {
	plan := copied(k).Plan
	if slices.Contains(plan.Split(), true) {
		return
	}
	for i := range plan.Tasks {
		plan.Tasks[i].Duration = nil
	}
	for s := range plan.Stages {
		if rnd.IntN(3) == 0 {
			continue
		}
		st := &plan.Stages[s]
		kind := schedule.ForwardCheckpoint
		for i := st.First; i <= st.Last; i++ {
			st.Ops, kind = append(st.Ops, schedule.Op{Kind: kind, Layer: i}), schedule.ForwardDiscard
		}
		for i := st.First; i <= st.Last; i++ {
			st.Ops = append(st.Ops, schedule.Op{Kind: schedule.ForwardAll, Layer: i})
		}
		for i := st.Last; i >= st.First; i-- {
			st.Ops = append(st.Ops, schedule.Op{Kind: schedule.Backward, Layer: i})
		}
	}
	if timed, err := pipeline.Timed(k.Chain, k.Platform, plan); err == nil {
		*k.Plan = *timed
	}
}

// Plans whose tasks and messages take no time keep every rule, for the independent judge too.
func TestHastyZeroPlansAreValid(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(16, 14))
	all := hasty(t, rnd, many(400, 100), false)
	for _, k := range slices.Concat(all, hasty(t, rnd, many(200, 50), true)) {
		report, err := pipeline.Check(k.Chain, k.Platform, k.Plan)
		if err != nil {
			t.Fatalf("%v: %+v of %+v", err, k.Plan, k.Platform)
		}
		neverLater(t, k, report)
	}
	pipelinetest.Accept(t, all)
	var changed []pipelinetest.Case
	for _, k := range all {
		for range 3 {
			x := copied(k)
			x.Plan.Synchronization = slices.Clone(k.Plan.Synchronization)
			changeMessages(rnd, &x)
			changed = append(changed, x)
		}
	}
	pipelinetest.Agree(t, changed)
}

// Whatever work of a plan that divides gradients waits for stands before it, and devices that keep to their orders end.
func TestOrderOfZeroPlans(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(16, 15))
	plans, weights, third := slices.Concat(divided(t, rnd, many(200, 50)), hasty(t, rnd, many(400, 100), false), hasty(t, rnd, many(400, 100), true)), 0, 0
	for _, k := range plans {
		if k.Plan.Zero < pipeline.ZeroGradients {
			continue
		}
		if _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err != nil {
			t.Fatalf("%v: %+v of %+v", err, k.Plan, k.Platform)
		}
		work, err := pipeline.Order(k.Chain, k.Platform, k.Plan, 0)
		if err != nil {
			t.Fatal(err)
		}
		o := &workOrder{Case: k, devices: work.Devices, at: map[workOf]*placedWork{}}
		o.number(t)
		o.tasks(t)
		o.gradients(t)
		if k.Plan.Zero == pipeline.ZeroWeights {
			weights++
			third += o.weights(t)
		} else {
			o.newWeights(t)
		}
		o.run(t)
		if t.Failed() {
			t.Fatalf("%+v of %+v, %+v", k.Plan, k.Platform, k.Chain)
		}
	}
	if weights < len(plans)/5 || third < len(plans)/4 {
		t.Errorf("of %d plans %d divide weights, %d turns have a buffer that others had", len(plans), weights, third)
	}
}

// workOf tells pieces of work apart.
type workOf struct {
	kind         pipeline.Kind
	stage, shift int
	first, part  int
	before       pipeline.Kind
	device, to   int
}

// placedWork is work, where it is, and what it waits for.
type placedWork struct {
	pipeline.Work
	device, index int
	waits         []*placedWork
	done          bool
}

// workOrder is the order of a plan's work.
type workOrder struct {
	pipelinetest.Case
	devices [][]pipeline.Work
	at      map[workOf]*placedWork
	all     [][]*placedWork
}

// number finds all work, each piece once.
func (o *workOrder) number(t *testing.T) {
	t.Helper()
	listed := map[int]bool{}
	for d, list := range o.devices {
		o.all = append(o.all, nil)
		for i, w := range list {
			x := &placedWork{Work: w, device: d, index: i}
			k := workOf{kind: w.Kind, stage: w.Stage, shift: w.Shift, first: w.First, part: w.Part, before: w.Before, device: d, to: w.To}
			if w.Kind <= pipeline.CB {
				k.device, k.to = 0, 0
			}
			if o.at[k] != nil {
				t.Errorf("%+v is twice in the order", w)
			}
			o.at[k], o.all[d] = x, append(o.all[d], x)
			listed[w.Task] = true
		}
	}
	for i := range len(o.Plan.Tasks) + len(o.Plan.Synchronization) {
		if !listed[i] {
			t.Errorf("task %d is not in the order", i)
		}
	}
}

// task returns a task; nil where there is none.
func (o *workOrder) task(kind pipeline.Kind, stage, shift int) *placedWork {
	return o.at[workOf{kind: kind, stage: stage, shift: shift}]
}

// last returns the last task of a microbatch in a stage.
func (o *workOrder) last(stage, shift int) *placedWork {
	if w := o.task(pipeline.W, stage, shift); w != nil {
		return w
	}
	return o.task(pipeline.B, stage, shift)
}

// wait notes that work waits for other work, which stands before it.
func (o *workOrder) wait(t *testing.T, y, x *placedWork) {
	t.Helper()
	if x == nil || y == nil {
		t.Fatalf("%+v and %+v: not both are in the order", x, y)
	}
	early := y.Kind == pipeline.B && x.Kind != pipeline.F && len(o.Plan.Stages[y.Stage].Ops) > 0 // it starts before its gradient comes
	if x.Place.Compare(y.Place) >= 0 && !early || x.device == y.device && x.index > y.index {
		t.Errorf("device %d: %+v waits for device %d: %+v", y.device, y.Work, x.device, x.Work)
	}
	y.waits = append(y.waits, x)
}

// tasks: a microbatch passes all stages, and comes back.
func (o *workOrder) tasks(t *testing.T) {
	t.Helper()
	for r := range o.Plan.Microbatches {
		for s := range o.Plan.Stages {
			f, b := o.task(F, s, r), o.task(B, s, r)
			o.wait(t, b, f)
			if w := o.last(s, r); w != b {
				o.wait(t, w, b)
			}
			if s == 0 {
				continue
			}
			forward, backward := o.task(F, s-1, r), b
			if x := o.task(pipeline.CF, s-1, r); x != nil {
				o.wait(t, x, forward)
				forward = x
			}
			if x := o.task(pipeline.CB, s-1, r); x != nil {
				o.wait(t, x, b)
				backward = x
			}
			o.wait(t, f, forward)
			o.wait(t, o.task(B, s-1, r), backward)
		}
	}
}

// gradients: devices send parts when they have made them. Owners add them up when all have come, round by round.
func (o *workOrder) gradients(t *testing.T) {
	t.Helper()
	for _, m := range o.Plan.Synchronization {
		if m.Kind != pipeline.Reduce {
			continue
		}
		round := len(o.Plan.Line(m.Stage))
		sends := o.at[workOf{kind: pipeline.Reducing, stage: m.Stage, shift: m.Shift, first: m.First, part: m.Part, device: m.From, to: m.To}]
		adds := func(shift int) *placedWork {
			return o.at[workOf{kind: pipeline.Owning, stage: m.Stage, shift: shift, first: m.First, part: m.Part, device: m.To, to: pipeline.NoDevice}]
		}
		o.wait(t, adds(m.Shift), sends)
		for r := m.Shift - round + 1; r <= m.Shift; r++ {
			switch last := o.last(m.Stage, r); last.device {
			case m.From:
				o.wait(t, sends, last)
			case m.To:
				o.wait(t, adds(m.Shift), last)
			}
		}
		if m.Shift >= round {
			o.wait(t, adds(m.Shift), adds(m.Shift-round))
		}
	}
}

// newWeights: updates follow all that is added up, and new weights follow the updates.
func (o *workOrder) newWeights(t *testing.T) {
	t.Helper()
	r := o.Plan.Microbatches - 1
	for _, list := range o.all {
		for _, x := range list {
			if x.Kind != pipeline.Update {
				continue
			}
			for _, y := range slices.Concat(o.all...) {
				if y.Kind <= pipeline.CB || y.Kind == pipeline.Owning {
					o.wait(t, x, y)
				}
			}
		}
	}
	for _, m := range o.Plan.Synchronization {
		if m.Kind == pipeline.Gather {
			g := workOf{kind: pipeline.Gathering, stage: m.Stage, shift: m.Shift, first: m.First, part: m.Part, device: m.From, to: m.To}
			a := g
			a.kind, a.device, a.to = pipeline.Admitting, m.To, m.From
			o.wait(t, o.at[g], o.at[a])
			o.wait(t, o.at[g], o.at[workOf{kind: pipeline.Update, stage: m.Stage, shift: r, device: m.From, to: pipeline.NoDevice}])
			o.wait(t, o.at[workOf{kind: pipeline.Completing, stage: m.Stage, shift: r, device: m.To, to: pipeline.NoDevice}], o.at[g])
		}
	}
}

// weights: those of a turn are let come behind the turn whose buffer they take, and sent before the first task of their own. It returns how many
// turns have a buffer that others had.
func (o *workOrder) weights(t *testing.T) (again int) {
	t.Helper()
	shared := map[int]bool{}
	for _, m := range o.Plan.Synchronization {
		shared[m.Stage] = true
	}
	gathers := map[workOf][]pipeline.Synchronization{} // by first task
	for _, m := range o.Plan.Synchronization {
		if m.Kind == pipeline.Gather {
			k := workOf{kind: m.Before, stage: m.Stage, shift: m.Shift}
			gathers[k] = append(gathers[k], m)
		}
	}
	for d, list := range o.all {
		var first, last []*placedWork // by turn
		for _, x := range list {
			switch n := len(last) - 1; {
			case x.Kind != F && x.Kind != B || !shared[x.Stage]:
			case n >= 0 && last[n].Stage == x.Stage:
				last[n] = x
			default:
				first, last = append(first, x), append(last, x)
			}
		}
		for i, x := range first {
			come := gathers[workOf{kind: x.Kind, stage: x.Stage, shift: x.Shift}]
			if want := len(o.Plan.Line(x.Stage)) - 1; len(come) != want {
				t.Errorf("device %d: %d messages of weights for the turn of %+v, want %d", d, len(come), x.Work, want)
			}
			if i >= 2 {
				again++
			}
			for _, m := range come {
				g := workOf{kind: pipeline.Gathering, stage: m.Stage, shift: m.Shift, first: m.First, part: m.Part, before: m.Before, device: m.From, to: m.To}
				a := g
				a.kind, a.device, a.to = pipeline.Admitting, m.To, m.From
				o.wait(t, x, o.at[g])
				o.wait(t, o.at[g], o.at[a])
				if i >= 2 {
					o.wait(t, o.at[a], last[i-2])
				}
			}
		}
	}
	for _, m := range o.Plan.Synchronization { // a way brings weights in the order in which they are let come; parts of no bytes come at any time
		of := func(kind pipeline.Kind, device, other int) (all []int) {
			for _, x := range o.all[device] {
				if x.Kind == kind && x.To == other && pipeline.PartBytes(pipeline.NewCosts(o.Chain).Weights(x.First, x.Last), x.Part, len(o.Plan.Line(x.Stage))) > 0 {
					all = append(all, x.Task)
				}
			}
			return all
		}
		if a, g := of(pipeline.Admitting, m.To, m.From), of(pipeline.Gathering, m.From, m.To); !slices.Equal(a, g) {
			t.Errorf("from device %d to %d: messages %v are let come, %v are sent", m.From, m.To, a, g)
		}
	}
	return again
}

// run lets devices do their work one by one, in order.
func (o *workOrder) run(t *testing.T) {
	t.Helper()
	at, left := make([]int, len(o.all)), 0
	for moves := true; moves; {
		moves, left = false, 0
		for d, list := range o.all {
			for at[d] < len(list) && !slices.ContainsFunc(list[at[d]].waits, func(x *placedWork) bool { return !x.done }) {
				list[at[d]].done, moves = true, true
				at[d]++
			}
			left += len(list) - at[d]
		}
	}
	if left > 0 {
		t.Errorf("devices wait for each other: %d pieces of work are left", left)
	}
}
