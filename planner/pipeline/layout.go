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

// onLink reports whether the job is a message.
func (j *job) onLink() bool { return j.kind.Communication() || j.bucket != nil }

// place is what there is one task of.
type place struct {
	kind           Kind
	stage, residue int
}

// layout is a plan whose tasks are known to be those of its stages, each once, on devices and links that exist. Whether
// their times work out is not known yet.
type layout struct {
	chain    *chain.Chain
	platform *Platform
	plan     *Plan
	repeats  int      // R
	unit     *big.Int // ticks in a second
	period   ticks    // nil for a flush plan
	split    []bool   // stages with W tasks
	at       map[place]*job
	gates    map[gate]*job     // communications through portals
	sums     []*sum            // of replicas, in the order of stages, rounds and layers; nil: they take no time
	divided  []replicatedStage // whose optimizer's state is divided
	jobs     []*job            // in the order of the plan's tasks, behind them the messages between replicas
	ops      []*stageCosts     // by stage; nil for one without ops
	unfit    error             // of ops that no stage can run
	broken   violations
	lengths  map[place]ticks // durations by kind and stage
	queues   map[resource][]entry
}

// maxShift bounds shifts, which count minibatches in flight.
const maxShift = 1 << 31

// versions refuses weight versions that are not known, and copies that cannot be.
func (l *layout) versions() error {
	p := l.plan
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
func (l *layout) stages() {
	next := 1
	for s, st := range l.plan.Stages {
		if st.First != next || st.Last < st.First {
			l.broken.stage("stage %d holds layers %d to %d, it must start at layer %d", s, st.First, st.Last, next)
			return
		}
		next = st.Last + 1
		l.devicesOf(s, st)
	}
	if next != l.chain.Len()+1 {
		l.broken.stage("the stages cover layers 1 to %d, the chain has %d", next-1, l.chain.Len())
	}
}

func (l *layout) devicesOf(s int, st Stage) {
	if len(st.Devices) == 0 {
		l.broken.stage("stage %d has no device", s)
	}
	for i, d := range st.Devices {
		switch {
		case d < 0 || d >= l.platform.Devices:
			l.broken.stage("stage %d is on device %d, the platform has 0 to %d", s, d, l.platform.Devices-1)
		case slices.Contains(st.Devices[:i], d):
			l.broken.stage("stage %d names device %d twice", s, d)
		}
	}
}

// halves: the layers of a stage whose backward is split have both times.
func (l *layout) halves() {
	for s, st := range l.plan.Stages {
		for i := st.First; l.split[s] && i <= st.Last; i++ {
			if layer := l.chain.Layer(i); layer.BackwardInputS == nil || layer.BackwardWeightS == nil {
				l.broken.stage("stage %d splits its backward, but layer %d (%s) of the chain lacks backward_input_s or backward_weight_s (plimsoll profile --halves measures both)", s, i, layer.Name)
				break
			}
		}
	}
}

// measure chooses the unit: a second is so many powers of ten that every time of the chain and the plan is a whole number
// of ticks, times the bandwidths between stages, so that communications are, times what the tolerance needs.
func (l *layout) measure() {
	places := digits(l.plan.Period)
	for _, t := range l.plan.Tasks {
		if math.Abs(t.Start) <= math.MaxFloat64 {
			places = max(places, digits(t.Start))
		}
	}
	for _, m := range l.plan.Synchronization {
		if math.Abs(m.Start) <= math.MaxFloat64 {
			places = max(places, digits(m.Start))
		}
	}
	for i := range l.chain.Layers {
		layer := &l.chain.Layers[i]
		places = max(places, digits(layer.ForwardS), digits(layer.BackwardS), digits(value(layer.BackwardInputS)), digits(value(layer.BackwardWeightS)))
	}
	for _, t := range l.plan.Timings {
		if t != nil {
			places = max(places, digits(t.Length), digits(t.Early))
		}
	}
	for _, k := range l.ops {
		if k != nil {
			places = max(places, k.each.digits(), k.last.digits())
		}
	}
	l.unit = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil)
	l.unit.Mul(l.unit, tolerance)
	seen := map[float64]bool{}
	for _, ends := range l.linked() {
		if beta := l.platform.Beta(ends[0], ends[1]); !seen[beta] && beta > 0 && !math.IsInf(beta, 1) {
			seen[beta] = true
			l.unit.Mul(l.unit, exact(beta).Num())
		}
	}
	if !l.plan.IsFlush() {
		l.period = l.ticks(l.plan.Period)
	}
}

// linked returns the pairs of devices that send messages to each other.
func (l *layout) linked() (all [][2]int) {
	for _, ends := range l.joined() {
		for _, x := range l.plan.Stages[ends[0]].Devices {
			for _, y := range l.plan.Stages[ends[1]].Devices {
				if x != y {
					all = append(all, [2]int{x, y})
				}
			}
		}
	}
	for _, m := range l.plan.Synchronization {
		if n := l.platform.Devices; m.From != m.To && min(m.From, m.To) >= 0 && max(m.From, m.To) < n {
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

func (l *layout) misplaced(t *Task) (reason string) {
	switch {
	case t.Kind < F || t.Kind > CB:
		return "no such kind"
	case t.Stage < 0 || t.Stage >= len(l.plan.Stages):
		return fmt.Sprintf("no such stage, there are 0 to %d", len(l.plan.Stages)-1)
	case t.To != 0 && !l.hasPortal(t):
		return fmt.Sprintf("the plan has no portal from stage %d to stage %d", t.Stage, t.To)
	case t.Kind.Communication() && t.Stage == len(l.plan.Stages)-1:
		return "the last stage has no boundary after it"
	case !t.Kind.Communication() && !slices.Contains(l.plan.Stages[t.Stage].Devices, t.Device):
		return fmt.Sprintf("on device %d, the stage is on %v", t.Device, l.plan.Stages[t.Stage].Devices)
	}
	return l.mistimed(t.Start, t.Shift)
}

// mistimed says why nothing can start then, for that shift.
func (l *layout) mistimed(start float64, shift int) (reason string) {
	switch {
	case !(math.Abs(start) <= math.MaxFloat64):
		return fmt.Sprintf("starts at %g", start)
	case start < 0:
		return fmt.Sprintf("starts at %g s, before 0", start)
	case l.period == nil && (shift < 0 || shift >= l.repeats):
		return fmt.Sprintf("microbatches are 0 to %d", l.repeats-1)
	case l.period != nil && start >= l.plan.Period:
		return fmt.Sprintf("starts at %g s, outside the period of %g s", start, l.plan.Period)
	case shift > maxShift || shift < -maxShift:
		return fmt.Sprintf("a shift of more than %d cannot be meant", maxShift)
	}
	return ""
}

// timed sets which minibatch a job is for, and when it starts for the one of that number.
func (l *layout) timed(j *job, start float64, shift int) {
	j.residue, j.start = shift, l.ticks(start)
	if l.period != nil {
		j.residue = modulus(shift, l.repeats)
		periods := big.NewInt(int64(j.residue - shift)) // a multiple of R
		periods.Div(periods, big.NewInt(int64(l.repeats)))
		j.start.Add(j.start, periods.Mul(periods, l.period))
	}
}

// brings reports whether x gives y, a backward, its gradient.
func brings(x, y *job) bool {
	return y.kind == B && (x.kind == CB || x.kind == B && x.stage == y.stage+1)
}

// complete: no F, B or W is missing.
func (l *layout) complete() {
	for s := range l.plan.Stages {
		for _, kind := range l.kinds(s) {
			for r := range l.repeats {
				if l.at[place{kind, s, r}] == nil {
					l.broken.add(RuleOnce, None, None, "%v of stage %d is missing for %s %d", kind, s, l.word(), r)
					break // one is enough: R may be a large number
				}
			}
		}
	}
}

// kinds returns what a device does for a stage.
func (l *layout) kinds(s int) []Kind {
	if l.split[s] {
		return []Kind{F, B, W}
	}
	return []Kind{F, B}
}

// replicas: a minibatch stays on one device of its stage.
func (l *layout) replicas() {
	for _, j := range l.jobs {
		if j.kind.Communication() {
			continue
		}
		if f := l.at[place{F, j.stage, j.residue}]; f.device != j.device {
			l.broken.add(RuleReplica, j.task, f.task, "%s runs on device %d, its forward, %s, on %d", l.name(j), j.device, l.name(f), f.device)
		}
	}
}

// boundaries: communications join two devices that have a link, and none that takes time is missing.
func (l *layout) boundaries() {
	for s := range len(l.plan.Stages) - 1 {
		last := l.plan.Stages[s].Last
		for r := range l.repeats {
			x, y := l.at[place{F, s, r}].device, l.at[place{F, s + 1, r}].device
			passing := l.passing(s)
			l.boundary(l.at[place{CF, s, r}], gate{CF, s, s + 1, r}, x, y, l.chain.Activation(last)-passing)
			l.boundary(l.at[place{CB, s, r}], gate{CB, s, s + 1, r}, y, x, l.chain.Gradient(last)-passing)
		}
	}
	for _, p := range l.plan.Portals {
		for r := range l.repeats {
			x, y := l.at[place{F, p.From, r}].device, l.at[place{F, p.To, r}].device
			forward, backward := gate{CF, p.From, p.To, r}, gate{CB, p.From, p.To, r}
			l.boundary(l.gates[forward], forward, x, y, p.Bytes)
			l.boundary(l.gates[backward], backward, y, x, p.Bytes)
		}
	}
}

// boundary measures a communication between two stages, or refuses that it is there or missing.
func (l *layout) boundary(j *job, at gate, from, to int, bytes int64) {
	if from == to {
		if j != nil {
			l.broken.add(RuleBoundary, j.task, None, "%s: both stages are on device %d", l.name(j), from)
		}
		return
	}
	beta := l.platform.Beta(from, to)
	if beta == 0 {
		l.broken.add(RuleBoundary, None, None, "stages %d and %d are on devices %d and %d, which no link joins", at.from, at.to, min(from, to), max(from, to))
		return
	}
	length := l.message(bytes, beta)
	if j == nil {
		switch portal := at.to > at.from+1; {
		case portal:
			l.broken.add(RuleOnce, None, None, "%v of the portal from stage %d to stage %d is missing for %s %d", at.kind, at.from, at.to, l.word(), at.residue)
		case length.Sign() > 0:
			l.broken.add(RuleOnce, None, None, "%v of stage %d is missing for %s %d", at.kind, at.from, l.word(), at.residue)
		}
		return
	}
	if j.device != NoDevice && j.device != from && j.device != to {
		l.broken.add(RuleBoundary, j.task, None, "%s: on device %d, its ends are %d and %d", l.name(j), j.device, min(from, to), max(from, to))
	}
	j.from, j.to, j.length = from, to, length
}

// message returns the time of bytes over a link.
func (l *layout) message(bytes int64, beta float64) ticks {
	if math.IsInf(beta, 1) {
		return new(big.Int)
	}
	seconds := exact(beta)
	seconds.Quo(new(big.Rat).SetInt64(bytes), seconds)
	return l.scaled(seconds)
}

// crosses reports whether the boundary after stage s joins two devices for a residue.
func (l *layout) crosses(s, r int) bool {
	return l.at[place{F, s, r}].device != l.at[place{F, s + 1, r}].device
}

// word is what the R repetitions of a task are.
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

// gate is what there is one communication of: from one stage to another, or back.
type gate struct {
	kind     Kind
	from, to int
	residue  int
}

// put books a job, unless there is one like it, which it returns.
func (l *layout) put(j *job) (first *job) {
	if j.far > 0 {
		at := gate{j.kind, j.stage, j.far, j.residue}
		if first = l.gates[at]; first == nil {
			l.gates[at] = j
		}
		return first
	}
	at := place{j.kind, j.stage, j.residue}
	if first = l.at[at]; first == nil {
		l.at[at] = j
	}
	return first
}

// hasPortal reports whether a task is a communication of one of the plan's portals.
func (l *layout) hasPortal(t *Task) bool {
	return t.Kind.Communication() && slices.ContainsFunc(l.plan.Portals, func(p Portal) bool { return p.From == t.Stage && p.To == t.To })
}

// stageCosts are those of a stage with ops: of its minibatches, or microbatches, and of the last one.
type stageCosts struct{ each, last *StageCost }

// sum is how the gradients of one bucket of layers are added up over the replicas of a stage in one round: along the line of its
// devices, and from the last of them to all others. Those of a part of a bucket go from all to its owner, from where the new weights go to
// all others.
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

// entry is a job in an order, and how many periods it starts after the one in which its minibatch's number is its residue.
type entry struct {
	job   *job
	half  int // within the period
	later int
}

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
func (l *layout) joined() (all [][2]int) {
	for s := range len(l.plan.Stages) - 1 {
		all = append(all, [2]int{s, s + 1})
	}
	for _, p := range l.plan.Portals {
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
