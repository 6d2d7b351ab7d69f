package pipeline

import (
	"fmt"
	"math"
	"math/big"
	"slices"

	"plimsoll/planner/chain"
)

// job is a task, or a message between replicas, with what the chain and the platform say about it.
type job struct {
	task     int // position in the plan, as in Span
	kind     Kind
	bucket   *Synchronization // of a message between replicas, which has no kind
	owner    int              // of a part of a bucket: its device; else None
	stage    int
	far      int   // the other stage of a communication through a portal; 0: the next one
	residue  int   // shift modulo R: which of the R minibatches of a period, or the microbatch
	start    ticks // for the minibatch whose number is residue
	length   ticks
	early    ticks // of B: how much before its gradient it may start
	device   int   // of F, B, W
	from, to int   // devices, of what is on a link
}

func (j *job) end() ticks { return add(j.start, j.length) }

// place returns the place of a task.
func (j *job) place() place { return place{j.kind, j.stage, j.residue} }

// onLink reports whether the job is a message.
func (j *job) onLink() bool { return j.kind.Communication() || j.bucket != nil }

// place identifies a task: a plan has one task for each place.
type place struct {
	kind           Kind
	stage, residue int
}

// layout is a plan whose tasks are known to be those of its stages, each once, on devices and links that exist. Whether
// their times work out is not known yet.
type layout struct {
	chain     *chain.Chain
	platform  *Platform
	plan      *Plan
	repeats   int      // R
	unit      *big.Int // ticks in a second
	period    ticks    // nil for a flush plan
	split     []bool   // stages with W tasks
	at        map[place]*job
	gates     map[gate]*job     // communications through portals
	sums      []*sum            // of replicas, in the order of stages, rounds and layers; nil: they take no time
	divided   []replicatedStage // whose optimizer's state is divided
	found     findings          // of weights that are divided
	ties      []tie             // weights that stages of a plan with a flush share
	jobs      []*job            // in the order of the plan's tasks, behind them the messages between replicas
	ops       []*stageCosts     // by stage; nil for one without ops
	unfit     error             // of ops that no stage can run, or of weights that stages cannot share
	broken    violations
	lengths   map[place]ticks // durations by kind and stage
	backwards []ticks         // of the first layers together, by their number; nil: not asked for yet
	queues    map[resource][]entry
}

// arranger lays out a plan: it fills in its jobs, and says what is broken.
type arranger struct{ *layout }

// division says what a layout divides among replicas (Zero), and when that is where.
type division struct{ *layout }

func divisionOf(l *layout) division { return division{l} }

// account counts the memory of the devices of a layout.
type account struct{ *layout }

// maxShift bounds shifts, which count minibatches in flight.
const maxShift = 1 << 31

// versions refuses weight versions that are not known, and copies that cannot be.
func (a *arranger) versions() error {
	p := a.plan
	switch n := len(p.WeightCopies); {
	case p.Versions != "" && !slices.Contains(AllVersions(), p.Versions):
		return fmt.Errorf("field \"weight_versions\" is %q, which is none of %v", p.Versions, AllVersions())
	case n > 1 && n != len(p.Stages):
		return fmt.Errorf("field \"weight_copies\" has %d entries for %d stages", n, len(p.Stages))
	}
	for _, x := range p.WeightCopies {
		if !(x >= 0 && x <= math.MaxFloat64) {
			return fmt.Errorf("field \"weight_copies\" is %g, which is negative or not finite", x)
		}
	}
	if x := p.OptimizerCopies; !(x >= 0 && x <= math.MaxFloat64) {
		return fmt.Errorf("field \"optimizer_copies\" is %g, which is negative or not finite", x)
	}
	return nil
}

// stages: they cover the layers in order, without gap or overlap, on different devices of the platform.
func (a *arranger) stages() {
	next := 1
	for s, st := range a.plan.Stages {
		if st.First != next || st.Last < st.First {
			a.broken.stage("stage %d holds layers %d to %d, it must start at layer %d", s, st.First, st.Last, next)
			return
		}
		next = st.Last + 1
		a.devicesOf(s, st)
	}
	if next != a.chain.Len()+1 {
		a.broken.stage("the stages cover layers 1 to %d, the chain has %d", next-1, a.chain.Len())
	}
}

func (a *arranger) devicesOf(s int, st Stage) {
	if len(st.Devices) == 0 {
		a.broken.stage("stage %d has no device", s)
	}
	for i, d := range st.Devices {
		switch {
		case d < 0 || d >= a.platform.Devices:
			a.broken.stage("stage %d is on device %d, the platform has 0 to %d", s, d, a.platform.Devices-1)
		case slices.Contains(st.Devices[:i], d):
			a.broken.stage("stage %d names device %d twice", s, d)
		}
	}
}

// halves: the layers of a stage whose backward is split have both times.
func (a *arranger) halves() {
	for s, st := range a.plan.Stages {
		for i := st.First; a.split[s] && i <= st.Last; i++ {
			if layer := a.chain.Layer(i); layer.BackwardInputS == nil || layer.BackwardWeightS == nil {
				a.broken.stage("stage %d splits its backward, but layer %d (%s) of the chain lacks backward_input_s or backward_weight_s (plimsoll profile --halves measures both)", s, i, layer.Name)
				break
			}
		}
	}
}

// measure chooses the tick. Powers of ten make every time of the chain and the plan a whole number of ticks. Factors of
// the bandwidths between stages do so for communications, and a further factor for the tolerance.
func (a *arranger) measure() {
	places := digits(a.plan.Period)
	for _, t := range a.plan.Tasks {
		if math.Abs(t.Start) <= math.MaxFloat64 {
			places = max(places, digits(t.Start))
		}
	}
	for _, m := range a.plan.Synchronization {
		if math.Abs(m.Start) <= math.MaxFloat64 {
			places = max(places, digits(m.Start))
		}
	}
	for i := range a.chain.Layers {
		layer := &a.chain.Layers[i]
		places = max(places, digits(layer.ForwardS), digits(layer.BackwardS), digits(value(layer.BackwardInputS)), digits(value(layer.BackwardWeightS)))
	}
	for _, t := range a.plan.Timings {
		if t != nil {
			places = max(places, digits(t.Length), digits(t.Early))
		}
	}
	for _, k := range a.ops {
		if k != nil {
			places = max(places, k.each.digits(), k.last.digits())
		}
	}
	a.unit = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil)
	a.unit.Mul(a.unit, tolerance)
	seen := map[float64]bool{}
	for _, ends := range a.linked() {
		if beta := a.platform.Beta(ends[0], ends[1]); !seen[beta] && beta > 0 && !math.IsInf(beta, 1) {
			seen[beta] = true
			a.unit.Mul(a.unit, exact(beta).Num())
		}
	}
	if !a.plan.IsFlush() {
		a.period = a.ticks(a.plan.Period)
	}
}

// linked returns the pairs of devices that send messages to each other.
func (a *arranger) linked() (all [][2]int) {
	for _, ends := range a.joined() {
		for _, x := range a.plan.Stages[ends[0]].Devices {
			for _, y := range a.plan.Stages[ends[1]].Devices {
				if x != y {
					all = append(all, [2]int{x, y})
				}
			}
		}
	}
	for _, x := range a.ties {
		all = append(all, x.messages()...)
	}
	for _, m := range a.plan.Synchronization {
		if n := a.platform.Devices; m.From != m.To && min(m.From, m.To) >= 0 && max(m.From, m.To) < n {
			all = append(all, [2]int{m.From, m.To})
		}
	}
	return all
}

func (l *layout) ticks(seconds float64) ticks { return l.scaled(exact(seconds)) }

func (l *layout) scaled(seconds *big.Rat) ticks {
	n := new(big.Int).Mul(seconds.Num(), l.unit)
	if _, rest := n.QuoRem(n, seconds.Denom(), new(big.Int)); rest.Sign() != 0 {
		panic("BUG: " + seconds.String() + " s is no whole number of ticks")
	}
	return n
}

// seconds returns a time rounded once.
func (l *layout) seconds(t ticks) float64 {
	x, _ := new(big.Rat).SetFrac(t, l.unit).Float64()
	return x
}

func (a *arranger) misplaced(t *Task) (reason string) {
	switch {
	case t.Kind < F || t.Kind > CB:
		return "no such kind"
	case t.Stage < 0 || t.Stage >= len(a.plan.Stages):
		return fmt.Sprintf("no such stage, there are 0 to %d", len(a.plan.Stages)-1)
	case t.To != 0 && !a.hasPortal(t):
		return fmt.Sprintf("the plan has no portal from stage %d to stage %d", t.Stage, t.To)
	case t.Kind.Communication() && t.Stage == len(a.plan.Stages)-1:
		return "the last stage has no boundary after it"
	case !t.Kind.Communication() && !slices.Contains(a.plan.Stages[t.Stage].Devices, t.Device):
		return fmt.Sprintf("on device %d, the stage is on %v", t.Device, a.plan.Stages[t.Stage].Devices)
	}
	return a.mistimed(t.Start, t.Shift)
}

// mistimed says why nothing can start then, for that shift.
func (a *arranger) mistimed(start float64, shift int) (reason string) {
	switch {
	case !(math.Abs(start) <= math.MaxFloat64):
		return fmt.Sprintf("starts at %g", start)
	case start < 0:
		return fmt.Sprintf("starts at %g s, before 0", start)
	case a.period == nil && (shift < 0 || shift >= a.repeats):
		return fmt.Sprintf("microbatches are 0 to %d", a.repeats-1)
	case a.period != nil && start >= a.plan.Period:
		return fmt.Sprintf("starts at %g s, outside the period of %g s", start, a.plan.Period)
	case shift > maxShift || shift < -maxShift:
		return fmt.Sprintf("a shift of more than %d cannot be meant", maxShift)
	}
	return ""
}

// timed sets which minibatch a job is for, and when it starts for the one of that number.
func (a *arranger) timed(j *job, start float64, shift int) {
	j.residue, j.start = shift, a.ticks(start)
	if a.period != nil {
		j.residue = modulus(shift, a.repeats)
		periods := big.NewInt(int64(j.residue - shift)) // a multiple of R
		periods.Div(periods, big.NewInt(int64(a.repeats)))
		j.start.Add(j.start, periods.Mul(periods, a.period))
	}
}

// brings reports whether x gives y, a backward, its gradient.
func brings(x, y *job) bool {
	return y.kind == B && (x.kind == CB || x.kind == B && x.stage == y.stage+1)
}

// complete: no F, B or W is missing.
func (a *arranger) complete() {
	for s := range a.plan.Stages {
		for _, kind := range a.kinds(s) {
			for r := range a.repeats {
				if a.at[place{kind, s, r}] == nil {
					a.broken.add(RuleOnce, None, None, "%v of stage %d is missing for %s %d", kind, s, a.word(), r)
					break // one is enough: R may be a large number
				}
			}
		}
	}
}

// kinds returns the kinds of a device's tasks for a stage.
func (a *arranger) kinds(s int) []Kind {
	if a.split[s] {
		return []Kind{F, B, W}
	}
	return []Kind{F, B}
}

// replicas: a minibatch stays on one device of its stage.
func (a *arranger) replicas() {
	for _, j := range a.jobs {
		if j.kind.Communication() {
			continue
		}
		if f := a.at[place{F, j.stage, j.residue}]; f.device != j.device {
			a.broken.add(RuleReplica, j.task, f.task, "%s runs on device %d, its forward, %s, on %d", a.name(j), j.device, a.name(f), f.device)
		}
	}
}

// boundaries: communications join two devices that have a link, and none that takes time is missing.
func (a *arranger) boundaries() {
	for s := range len(a.plan.Stages) - 1 {
		last := a.plan.Stages[s].Last
		for r := range a.repeats {
			x, y := a.at[place{F, s, r}].device, a.at[place{F, s + 1, r}].device
			passing := a.passing(s)
			a.boundary(a.at[place{CF, s, r}], gate{CF, s, s + 1, r}, x, y, a.chain.Activation(last)-passing)
			a.boundary(a.at[place{CB, s, r}], gate{CB, s, s + 1, r}, y, x, a.chain.Gradient(last)-passing)
		}
	}
	for _, p := range a.plan.Portals {
		for r := range a.repeats {
			x, y := a.at[place{F, p.From, r}].device, a.at[place{F, p.To, r}].device
			forward, backward := gate{CF, p.From, p.To, r}, gate{CB, p.From, p.To, r}
			a.boundary(a.gates[forward], forward, x, y, p.Bytes)
			a.boundary(a.gates[backward], backward, y, x, p.Bytes)
		}
	}
}

// boundary measures a communication between two stages, or refuses that it is there or missing.
func (a *arranger) boundary(j *job, at gate, from, to int, bytes int64) {
	if from == to {
		if j != nil {
			a.broken.add(RuleBoundary, j.task, None, "%s: both stages are on device %d", a.name(j), from)
		}
		return
	}
	beta := a.platform.Beta(from, to)
	if beta == 0 {
		a.broken.add(RuleBoundary, None, None, "stages %d and %d are on devices %d and %d, which no link joins", at.from, at.to, min(from, to), max(from, to))
		return
	}
	length := a.message(bytes, beta)
	if j == nil {
		switch portal := at.to > at.from+1; {
		case portal:
			a.broken.add(RuleOnce, None, None, "%v of the portal from stage %d to stage %d is missing for %s %d", at.kind, at.from, at.to, a.word(), at.residue)
		case length.Sign() > 0:
			a.broken.add(RuleOnce, None, None, "%v of stage %d is missing for %s %d", at.kind, at.from, a.word(), at.residue)
		}
		return
	}
	if j.device != NoDevice && j.device != from && j.device != to {
		a.broken.add(RuleBoundary, j.task, None, "%s: on device %d, its ends are %d and %d", a.name(j), j.device, min(from, to), max(from, to))
	}
	j.from, j.to, j.length = from, to, length
}

// message returns the time of bytes over a link.
func (a *arranger) message(bytes int64, beta float64) ticks {
	if math.IsInf(beta, 1) {
		return new(big.Int)
	}
	seconds := exact(beta)
	seconds.Quo(new(big.Rat).SetInt64(bytes), seconds)
	return a.scaled(seconds)
}

// crosses reports whether the boundary after stage s joins two devices for a residue.
func (l *layout) crosses(s, r int) bool {
	return l.at[place{F, s, r}].device != l.at[place{F, s + 1, r}].device
}

// word names the R repetitions of a task.
func (l *layout) word() string {
	if l.period == nil {
		return "microbatch"
	}
	return "residue"
}

// name names a job in a message.
func (l *layout) name(j *job) string {
	if j.bucket != nil {
		return fmt.Sprintf("synchronization %d, %v", j.task-len(l.plan.Tasks), j.bucket)
	}
	return fmt.Sprintf("task %d, %v", j.task, l.plan.Tasks[j.task])
}

// resource is a device (x = y), or a link between two: from x to y, or both ways with x < y.
type resource struct{ x, y int }

func (r resource) String() string {
	if r.x != r.y {
		return fmt.Sprintf("link %d-%d", r.x, r.y)
	}
	return fmt.Sprintf("device %d", r.x)
}

func (l *layout) resource(j *job) resource {
	switch {
	case !j.onLink():
		return resource{j.device, j.device}
	case l.platform.Duplex:
		return resource{j.from, j.to}
	}
	return resource{min(j.from, j.to), max(j.from, j.to)}
}

// gate identifies a communication: from one stage to another, or back.
type gate struct {
	kind     Kind
	from, to int
	residue  int
}

// put books a job, unless there is one like it, which it returns.
func (a *arranger) put(j *job) (first *job) {
	if j.far > 0 {
		at := gate{j.kind, j.stage, j.far, j.residue}
		if first = a.gates[at]; first == nil {
			a.gates[at] = j
		}
		return first
	}
	at := place{j.kind, j.stage, j.residue}
	if first = a.at[at]; first == nil {
		a.at[at] = j
	}
	return first
}

// hasPortal reports whether a task is a communication of one of the plan's portals.
func (a *arranger) hasPortal(t *Task) bool {
	return t.Kind.Communication() && slices.ContainsFunc(a.plan.Portals, func(p Portal) bool { return p.From == t.Stage && p.To == t.To })
}

// stageCosts are the costs of a stage with ops: of each of its minibatches, or microbatches, and of the last one.
type stageCosts struct{ each, last *StageCost }

// sum adds up the gradients of one bucket of layers over the replicas of a stage in one round. It goes along the line of its devices, and
// from the last of them to all others. Gradients of a part of a bucket go from all to its owner. The sum goes from there to all others, or with
// ZeroShards the new weights.
type sum struct {
	stage       int
	round       []int // residues of its minibatches
	first, last int   // layers
	part        int   // counted from 1; 0: the whole bucket
	line        []int
	reduces     []*job // by position in the line: from that device to the next one, or to the owner
	gathers     []*job // by position in the line: to that device
}

// replicatedStage is a stage whose gradients must be added up.
type replicatedStage struct {
	stage   int
	line    []int
	round   int   // minibatches, or microbatches, between two sums
	weights int64 // bytes
	parts   int   // of each bucket, which its messages carry
}

// Line returns the devices of a stage that work, in the order of the stage: that in which their gradients are added up.
func (p *Plan) Line(stage int) (line []int) {
	for _, d := range p.Stages[stage].Devices {
		if slices.ContainsFunc(p.Tasks, func(t Task) bool { return t.Kind == F && t.Stage == stage && t.Device == d }) {
			line = append(line, d)
		}
	}
	return line
}

// tie is weights of a layer of one stage, the owner, that a layer of another stage, the reader, has as its own (chain.Update.WeightsOf).
//
// In a plan with a flush the reader's gradients go to the devices of the owner when their sum is there, and the device has done its other
// work. When all is done, the updates follow, and the new weights go to the devices of the reader. The plan lists none of these messages.
// Its makespan counts them. They start behind all tasks of their device, so no task waits for them.
type tie struct {
	owner, reader  int // stages
	layer          int // of the owner
	bytes          int64
	sums, renewals [][2]int // messages, from one device to another
}

func (x *tie) messages() [][2]int { return slices.Concat(x.sums, x.renewals) }

// passing returns the bytes that portals take past the boundary behind a stage.
func (l *layout) passing(s int) int64 { return passing(l.plan.Portals, s) }

func passing(portals []Portal, s int) (bytes int64) {
	for _, p := range portals {
		if p.From <= s && s < p.To {
			bytes += p.Bytes
		}
	}
	return bytes
}

// joined returns the pairs of stages between which there are messages.
func (a *arranger) joined() (all [][2]int) {
	for s := range len(a.plan.Stages) - 1 {
		all = append(all, [2]int{s, s + 1})
	}
	for _, p := range a.plan.Portals {
		all = append(all, [2]int{p.From, p.To})
	}
	return all
}

// leaves returns the task after which a minibatch is no longer live in a stage.
func (l *layout) leaves(s, r int) *job {
	if l.split[s] {
		return l.at[place{W, s, r}]
	}
	return l.at[place{B, s, r}]
}

// rounds returns the residues of the minibatches of all rounds of a period, or of the step.
func rounds(repeats, size int) (all [][]int) {
	for r := range repeats {
		if r%size == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all
}

// bucketOf tells sums apart.
type bucketOf struct{ stage, residue, first, last, part int }

func stageOf(all []replicatedStage, s int) *replicatedStage {
	if i := slices.IndexFunc(all, func(x replicatedStage) bool { return x.stage == s }); i >= 0 {
		return &all[i]
	}
	return nil
}

func weights(c *chain.Chain, first, last int) (bytes int64) {
	for i := first; i <= last; i++ {
		bytes += c.SummedWeights(i)
	}
	return bytes
}

// weightTurn is a turn of a stage on a device (ZeroWeights), and the messages of its weights.
type weightTurn struct {
	stage       int
	first, last *job
	gathers     []*job
}

// fetches returns the first task of the turn that a message says it is for.
func (j *job) fetches() place { return place{j.bucket.Before, j.stage, j.residue} }

// findings has what a division finds of a layout once: the turns of all devices, the messages of their weights, and when sums are there.
type findings struct {
	messages []*job
	added    map[*sum]ticks        // when owners have added up parts of gradients; nil: not asked for yet
	of       [][]*weightTurn       // by device; nil: not asked for yet
	by       map[place]*weightTurn // by first task
}

// entry is a job in an order, and how many periods it starts after the one in which its minibatch's number is its residue.
type entry struct {
	job   *job
	Place // within the period
	later int
}

// Place is where work stands among all work of a period on all devices. Two pieces of work that no device has both may have one place.
// Whatever work waits for stands before it, so that devices which keep to their orders do not wait for each other in a circle.
type Place struct {
	Half int // of a moment: twice its number, one more for work that takes time
	Rank int // of those in one half
}
