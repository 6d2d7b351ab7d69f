package pipeline

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// summing returns a plan with messages for the gradients of all stages with replicas, in the given number of buckets each. With zero
// buckets, the plan has no messages. A message starts as soon as the backwards of the round have made its gradients and the message before
// has ended.
func summing(t testing.TB, c Costs, plan *pipeline.Plan, buckets int) *pipeline.Plan {
	t.Helper()
	out := *plan
	out.Synchronization = nil
	k, err := newClock(c, &out)
	must(t, err)
	o, err := order.New(c.Chain, c.Platform, &out, c.Platform.Devices, 0)
	must(t, err)
	for s, st := range plan.Stages {
		line := o.Hosts(s)
		if len(line) < 2 || buckets == 0 {
			continue
		}
		round := plan.Round(s)
		if plan.IsFlush() {
			round = plan.Repeats()
		}
		for last := round - 1; last < plan.Repeats(); last += round {
			out.Synchronization = append(out.Synchronization, sumsOf(o, c, k, s, last-round+1, last, line, bucketsOf(c, st, buckets))...)
		}
	}
	return &out
}

// bucketsOf divides the layers of a stage with weights.
func bucketsOf(c Costs, st pipeline.Stage, n int) (all []order.Bucket) {
	var layers []int
	for l := st.First; l <= st.Last; l++ {
		if c.Chain.SummedWeights(l) > 0 {
			layers = append(layers, l)
		}
	}
	size := max(1, (len(layers)+n-1)/n)
	for some := range slices.Chunk(layers, size) {
		all = append(all, order.Bucket{First: some[0], Last: some[len(some)-1]})
	}
	slices.Reverse(all)
	return all
}

func sumsOf(o *order.Order, c Costs, k *clock, s, first, last int, line []int, buckets []order.Bucket) (all []pipeline.Synchronization) {
	x, now := &order.Synchronization{Buckets: buckets}, 0.0
	parts := x.MadeBehind(o.Plan.Stages[s], c.Chain, o.Split[s])
	for i, b := range buckets {
		for _, t := range o.Plan.Tasks {
			if r := o.Residue(t.Shift); t.Stage == s && t.Kind == o.Leaves(s) && r >= first && r <= last {
				now = max(now, k.since(t.Start, t.Shift)+parts[i]*k.length(t.Kind, s, r))
			}
		}
		var bytes int64
		for l := b.First; l <= b.Last; l++ {
			bytes += c.Chain.SummedWeights(l)
		}
		send := func(kind pipeline.SynchronizationKind, from, to int) {
			m := pipeline.Synchronization{Kind: kind, Stage: s, First: b.First, Last: b.Last, From: from, To: to, Start: now, Shift: last}
			if k.period > 0 {
				n := math.Floor(now / k.period)
				m.Start, m.Shift = min(max(0, now-n*k.period), math.Nextafter(k.period, 0)), last-int(n)*o.Repeats
			}
			all = append(all, m)
			now += c.Platform.Seconds(bytes, from, to)
		}
		for i := range line[1:] {
			send(pipeline.Reduce, line[i], line[i+1])
		}
		for i := len(line) - 2; i >= 0; i-- {
			send(pipeline.Gather, line[i+1], line[i])
		}
	}
	return all
}

// synchronizedPlans are plans with replicas.
var synchronizedPlans = []struct {
	name     string
	versions pipeline.Versions
	devices  int
}{
	{"chimera", "", 2}, {"chimera", "", 4}, {"replicated", pipeline.Stash, 3}, {"replicated", pipeline.DoubleBuffered, 3}, {"replicated", pipeline.Latest, 3},
	{"data", pipeline.Stash, 2}, {"data", pipeline.Stash, 4}, {"data", pipeline.DoubleBuffered, 2}, {"data", pipeline.Latest, 4},
}

// synchronizedPlan returns one of them, without messages between replicas.
func synchronizedPlan(t *testing.T, w *Workload, name string, versions pipeline.Versions, devices int) (Costs, *pipeline.Plan) {
	t.Helper()
	c := costs(w, devices, 2)
	switch name {
	case "replicated":
		return replicated(t, w, versions)
	case "data":
		all := pipeline.Stage{First: 1, Last: len(c.Chain.Layers), Devices: []int{0, 1, 2, 3}[:devices]}
		return c, planFor(t, "1f1b", c, pipeline.Options{Versions: versions, Stages: []pipeline.Stage{all}})
	}
	return c, planFor(t, name, c, pipeline.Options{Microbatches: 4})
}

// Gradients that the plan's messages add up have the bits of gradient accumulation, whatever the buckets.
// Only this test finds a sum of chimera, or of data parallelism without a flush, that the number of buckets changes.
func TestSynchronizationIsGradientAccumulation(t *testing.T) {
	t.Parallel()
	m := plainModel(t)
	w := workload(t, m)
	counts := []int{1, 2, 100}
	if testing.Short() {
		counts = counts[1:2]
	}
	for _, x := range synchronizedPlans {
		for _, buckets := range counts {
			t.Run(fmt.Sprintf("%s/%s/%d/%d", x.name, x.versions, x.devices, buckets), func(t *testing.T) {
				c, plan := synchronizedPlan(t, w, x.name, x.versions, x.devices)
				plan = summing(t, c, plan, buckets)
				n := 4 * groupOf(t, w, c, plan)
				e, got := trained(t, w, c, plan, n, host.Config{Chaos: 4})
				got.Tensors = tensors(t, e)
				same(t, reference(t, m, plan, newInstants(t, c, plan).expected(e.layout, n), n), got)
			})
		}
	}
}

// dataParallel is a plan with a flush of one stage on all devices, which take turns.
func dataParallel(c Costs, microbatches int) *pipeline.Plan {
	n, last := c.Platform.Devices, len(c.Chain.Layers)
	k := pipeline.NewCosts(c.Chain)
	plan := &pipeline.Plan{Chain: c.Chain.Name, Strategy: "data", Platform: c.Platform, Versions: pipeline.Flush, Microbatches: microbatches, Stages: []pipeline.Stage{{First: 1, Last: last}}}
	for d := range n {
		plan.Stages[0].Devices = append(plan.Stages[0].Devices, d)
	}
	for m := range microbatches {
		start := float64(m/n) * (k.Forward(1, last) + k.Backward(1, last))
		plan.Tasks = append(plan.Tasks, pipeline.Task{Kind: pipeline.F, Device: m % n, Shift: m, Start: start}, pipeline.Task{Kind: pipeline.B, Device: m % n, Shift: m, Start: start + k.Forward(1, last)})
	}
	return plan
}

// All buckets but the one of the first layers are made before the last backward of a step has ended, on every device.
func TestBucketsAreMadeWithinTheBackward(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 3, 2)
	e, err := New(w, targets(t, 3, host.Config{}), c, summing(t, c, dataParallel(c, 6), 3), Options{Feed: still{}, Rate: rate})
	must(t, err)
	for _, d := range e.drivers {
		made, within := 0, 0
		list := d.table.List(d.Device, e.group)
		for i, x := range list {
			if x.Verb != table.DoRecord || !slices.Contains(d.stages[0].sums.made, x.Event) {
				continue
			}
			made++
			if slices.ContainsFunc(list[i:], func(y table.Played) bool { return y.Verb == table.DoLaunch && y.Of == x.Of }) {
				within++
			}
		}
		if made != 3 || within < 2 {
			t.Errorf("device %d: %d buckets are made, %d of them before the backward ends", d.Number, made, within)
		}
	}
}

// Messages change nothing else of a step: statistics, deferred or not, norms, what an audit finds.
// Only this test finds that messages between replicas change a deferred statistic, a norm or an audited peak.
func TestSynchronizationKeepsTheRestOfAStep(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	counts := []int{2, 3}
	if testing.Short() {
		counts = counts[1:]
	}
	for _, devices := range counts {
		c := costs(w, devices, 3)
		plan := dataParallel(c, 6)
		for name, opt := range map[string]Options{"": {}, "deferred": {DeferredBatchNorm: true}, "clipped": {MaxNorm: 0.5}, "audited": {Audit: true}} {
			var want *pipelinetest.Outcome
			for _, buckets := range []int{0, 1, 3} {
				e, out := guarded(t, targets(t, devices, host.Config{Chaos: uint64(buckets)}), w, c, summing(t, c, plan, buckets), 3, opt)
				must(t, e.Run(t.Context(), 18))
				if out.Tensors = tensors(t, e); want == nil {
					want = out.Outcome
				}
				if d := want.FirstDifference(out.Outcome); d != "" || !slices.Equal(want.Norms, out.Norms) {
					t.Errorf("%d devices, %s, %d buckets: %s; norms %v and %v", devices, name, buckets, d, want.Norms, out.Norms)
				}
				for _, a := range e.Audited() {
					if a.PeakBytes != e.memory[a.Device].Peak {
						t.Errorf("%d devices, %d buckets: audited %+v, planned %+v", devices, buckets, a, e.memory[a.Device])
					}
				}
			}
		}
	}
}

// Replicas have the same weights, states and statistics behind every update by messages.
func TestSynchronizedReplicasAgree(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	c, plan := replicated(t, w, pipeline.Stash)
	e, _ := trained(t, w, c, summing(t, c, plan, 3), 8, host.Config{Chaos: 5})
	if compared := replicasAgree(t, e); compared < 10 {
		t.Errorf("%d tensors have replicas, want 10", compared)
	}
}

// A device has two blocks for what it adds, one where there is one bucket, each as large as the largest
// bucket, and a run writes all of them.
func TestMemoryOfSynchronization(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	for _, devices := range []int{2, 4} {
		for _, buckets := range []int{1, 2, 100} {
			c := costs(w, devices, 3)
			plan := dataParallel(c, 8)
			bare, err := Needs(w, c, plan, Options{})
			must(t, err)
			on := targets(t, devices, host.Config{})
			e, err := New(w, on, c, summing(t, c, plan, buckets), Options{Feed: feedOf(w.Model), Rate: rate})
			must(t, err)
			var slice, largest int64
			for l := range w.Layers {
				slice += kernels.Align(w.Layers[l].GradBytes)
			}
			for _, p := range e.bucketPlaces(0) {
				largest = max(largest, p.Bytes)
			}
			for i, l := range e.replicas[0].reduces {
				if got, want := e.memory[l.to].Messages, int64(len(l.blocks))*largest; got != want || l.bytes != largest {
					t.Errorf("%d buckets, device %d: %d bytes for messages, want %d blocks of %d", buckets, l.to, got, len(l.blocks), largest)
				}
				if e.memory[l.to].Peak-bare[l.to].Peak != int64(len(l.blocks))*largest-2*slice {
					t.Errorf("%d buckets, device %d: peak %d, without messages %d", buckets, l.to, e.memory[l.to].Peak, bare[l.to].Peak)
				}
				if buckets == 1 && len(l.blocks) != 1 || len(l.blocks) > 2 {
					t.Errorf("%d blocks between devices %d and %d of the line for %d buckets", len(l.blocks), i, i+1, buckets)
				}
				for _, b := range l.blocks {
					must(t, on[l.to].Device.(runtime.Inspector).Fill(b, 0xFF))
				}
			}
			must(t, e.Run(t.Context(), 8))
			for _, l := range e.replicas[0].reduces {
				for i, b := range l.blocks {
					look := make([]byte, 4)
					must(t, on[l.to].Device.(runtime.Inspector).Peek(b.Part(0, 4), look))
					if slices.Max(look) == 0xFF && slices.Min(look) == 0xFF {
						t.Errorf("%d buckets: block %d of %v was never written", buckets, i, l)
					}
				}
			}
		}
	}
}

// Every message of the plan is timed in every round, on the device that sends it.
func TestSynchronizationIsTimed(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	type key struct {
		kind                       pipeline.Kind
		device, peer, layer, round int
	}
	for _, flush := range []bool{true, false} {
		c, plan := replicated(t, w, pipeline.Stash)
		if flush {
			plan = dataParallel(c, 6)
		}
		plan = summing(t, c, plan, 3)
		n := 3 * plan.Repeats()
		e, _ := trainedWith(t, w, c, plan, n, host.Config{}, Options{Timed: &Timed{}})
		all, err := e.Timings()
		must(t, err)
		got := map[key]int{}
		for _, x := range all {
			if x.Kind != pipeline.Reducing && x.Kind != pipeline.Gathering {
				continue
			}
			if got[key{x.Kind, x.Device, x.Peer, x.Layer, x.Minibatch}]++; x.End < x.Start {
				t.Errorf("%+v", x)
			}
		}
		if len(got) != 3*len(plan.Synchronization) {
			t.Errorf("flush %v: %d messages are timed, want %d", flush, len(got), 3*len(plan.Synchronization))
		}
		for _, m := range plan.Synchronization {
			for i := range 3 {
				x := key{pipeline.Reducing, m.From, m.To, m.First, e.order.Residue(m.Shift) + i*plan.Repeats()}
				if m.Kind == pipeline.Gather {
					x.kind = pipeline.Gathering
				}
				if got[x] != 1 {
					t.Errorf("flush %v: %v, round %d: %d are timed", flush, m, i, got[x])
				}
			}
		}
	}
}

// Replicas in different processes send each other the plan's messages, to the byte, and train the bits of one process.
// Only this test finds messages between replicas of several processes with other bytes than the plan's buckets.
func TestSynchronizationBetweenProcesses(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	r := rand.New(rand.NewPCG(3, 4))
	for _, x := range synchronizedPlans {
		for _, simplex := range []bool{false, true} {
			costs, plan := synchronizedPlan(t, w, x.name, x.versions, x.devices)
			if testing.Short() && simplex {
				continue
			}
			platform := *costs.Platform
			platform.Duplex, costs.Platform = !simplex, &platform
			plan = summing(t, costs, plan, 3)
			n := 2 * groupOf(t, w, costs, plan)
			want := newWorld(t, w, costs, plan, make([]int, x.devices), cpus(t, host.Config{}), Options{}).trained(n)
			for i, process := range divisions(x.devices, r) {
				t.Run(fmt.Sprintf("%s/%s/%v/%v", x.name, x.versions, simplex, process), func(t *testing.T) {
					y := newWorld(t, w, costs, plan, process, cpus(t, host.Config{Chaos: uint64(i)}), Options{})
					same(t, want, y.trained(n))
					y.summedAsPlanned(2 * n)
				})
			}
		}
	}
}

// summedAsPlanned checks that what went between the replicas of different processes in n minibatches is what the plan sends.
func (x *processes) summedAsPlanned(n int) {
	x.t.Helper()
	var want, got int64
	e := x.all[0]
	for _, m := range e.order.Plan.Synchronization {
		places, y := e.bucketPlaces(m.Stage), e.order.Sums[m.Stage]
		for end := e.order.Residue(m.Shift); end < n; end += e.order.Repeats {
			if x.process[m.From] != x.process[m.To] && (end+1)%e.rules[m.Stage].Group == 0 {
				want += places[y.Bucket(m)].Bytes
			}
		}
	}
	for i, way := range x.ways {
		if strings.Contains(way.Name, "gradients of stage") {
			got += x.sent[i]
		}
	}
	if got != want {
		x.t.Errorf("%d bytes of gradients went between processes, the plan sends %d", got, want)
	}
}

// syncSlip is a mistake in a script.
type syncSlip struct {
	slip   string
	change func(d *driver, list []table.Played, i int) bool // makes it, if it can be made there
	names  []string                                         // of one of the two parties each
	least  int
}

func isCopyOf(c *table.Played, kind pipeline.Kind) bool {
	return c.Verb == table.DoCopy && c.Channel != nil && c.Of.Kind == kind
}

// waitSlips are waits of sums and updates that are left out.
var waitSlips = []syncSlip{
	{"no wait for what is added", func(d *driver, list []table.Played, i int) bool {
		drop := list[i].Verb == table.DoWait && list[i].On == d.adding && list[i+1].Verb == table.DoLaunch
		if drop {
			list[i].Event = list[i-1].Event // it has waited for its own already
		}
		return drop
	}, []string{"a copy in reduce", "add forward in"}, 6},
	{"no wait for its own gradients", func(d *driver, list []table.Played, i int) bool {
		drop := list[i].Verb == table.DoWait && list[i].On == d.adding && list[i+1].Verb == table.DoWait
		if drop {
			list[i].Event = list[i+1].Event
		}
		return drop
	}, []string{" in B0", "add forward in"}, 6},
	{"an update that does not wait for a sum", func(d *driver, list []table.Played, i int) bool {
		for k := i - 1; k >= 0 && list[i].Verb == table.DoWait && list[i].On == d.compute && list[i].Of.Kind == pipeline.Update; k-- {
			if list[k].Verb == table.DoWait && list[k].Of.Kind == pipeline.Update {
				list[i].Event = list[k].Event
				return true
			}
		}
		return false
	}, []string{"a copy in gather"}, 3},
}

// messageSlips are messages of other bytes, or in another order.
var messageSlips = []syncSlip{
	{"a shifted bucket", func(_ *driver, list []table.Played, i int) bool {
		if !isCopyOf(&list[i], pipeline.Reducing) || list[i].Src.Offset < list[i].Src.Bytes {
			return false
		}
		list[i].Src.Offset -= list[i].Src.Bytes
		return true
	}, []string{"a copy in reduce"}, 3},
	{"a gather in place of a reduce", func(_ *driver, list []table.Played, i int) bool {
		for k := i; k < len(list) && isCopyOf(&list[i], pipeline.Reducing); k++ {
			if isCopyOf(&list[k], pipeline.Gathering) && list[k].Of.Layer == list[i].Of.Layer {
				list[i], list[k] = list[k], list[i]
				return true
			}
		}
		return false
	}, []string{"a copy in gather"}, 3},
}

// New proves the order of messages between replicas: a slip in the script of any device is refused, and both parties are named.
func TestSlipsInSynchronizationAreFound(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 3, 2)
	e, err := New(w, targets(t, 3, host.Config{}), c, summing(t, c, dataParallel(c, 6), 3), Options{Feed: still{}, Rate: rate})
	must(t, err)
	for _, x := range slices.Concat(waitSlips, messageSlips) {
		if found := x.found(t, e); found < x.least {
			t.Errorf("%s: %d were found, want %d", x.slip, found, x.least)
		}
	}
	must(t, e.prove())
}

// found makes a slip wherever it can be made, and counts the scripts that are refused for it.
func (x *syncSlip) found(t *testing.T, e *Executor) (found int) {
	lists := e.played()
	for n, d := range e.drivers {
		whole := lists[n]
		for i := range len(whole) - 1 {
			lists[n] = nil
			for _, p := range whole {
				c := *p.Command
				lists[n] = append(lists[n], table.Played{Command: &c, Of: p.Of, By: p.By})
			}
			var race *OrderError
			if !x.change(d, lists[n], i) || !errors.As(e.proveLists(lists), &race) {
				continue
			}
			parties := race.First + "; " + race.Second
			named := party.MatchString(race.First) && party.MatchString(race.Second)
			for _, name := range x.names {
				named = named && strings.Contains(parties, name)
			}
			if found++; !named {
				t.Errorf("%s: %v", x.slip, race)
			}
		}
		lists[n] = whole
	}
	return found
}

// Devices have as many blocks for what they add as the judge counts, of random plans, whether replicas divide states or not.
func TestBlocksAreThoseOfTheJudge(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	ways, several := 0, 0
	for seed := range uint64(150) {
		c, plan := randomPlan(w, seed, 1)
		if seed%6 == 0 {
			c = costs(w, 2+int(seed%4), seed)
			plan = dataParallel(c, 8)
		}
		if !hasReplicas(plan) || c.Platform.NoBuffers || plan.Versions == pipeline.VerticalSync {
			continue
		}
		for _, zero := range []pipeline.Zero{pipeline.ZeroNothing, pipeline.ZeroShards} {
			p := *plan
			if p.Zero = zero; zero != pipeline.ZeroNothing && !p.IsFlush() {
				continue
			}
			out, err := pipeline.Synchronize(c.Chain, c.Platform, &p)
			must(t, err)
			counted := judgedBlocks(t, c, out)
			e := &layout{Workload: w, opt: Options{}}
			must(t, e.layOut(c, out, c.Platform.Devices))
			got := make([]int64, c.Platform.Devices)
			for _, l := range e.channels {
				if l.kind == pipeline.Reducing {
					got[l.to] += int64(len(l.blocks)) * largestReduce(c, out, l.from, l.to, l.boundary)
					ways, several = ways+1, several+len(l.blocks)/2
				}
			}
			if !slices.Equal(got, counted) {
				t.Errorf("seed %d, zero %d: blocks of %d bytes on the devices, the judge counts %d", seed, zero, got, counted)
			}
		}
	}
	t.Logf("%d ways, %d with several blocks", ways, several)
	if ways < 100 || several < 10 {
		t.Errorf("%d ways, %d with several blocks", ways, several)
	}
}

// judgedBlocks returns the bytes that the judge adds to the buffers of each device for messages between replicas.
func judgedBlocks(t *testing.T, c Costs, plan *pipeline.Plan) (bytes []int64) {
	t.Helper()
	free := Costs{Chain: c.Chain, Platform: c.Platform.WithMemory(pipeline.NoLimit)}
	with, err := pipeline.Check(free.Chain, free.Platform, plan)
	must(t, err)
	bare := *plan
	bare.Synchronization, bare.Zero = nil, pipeline.ZeroNothing
	without, err := pipeline.Check(free.Chain, free.Platform, &bare)
	must(t, err)
	for d, b := range with.PerDeviceBuffers {
		bytes = append(bytes, b-without.PerDeviceBuffers[d])
	}
	return bytes
}

// largestReduce returns the bytes of the largest message of a stage's gradients from one device to another.
func largestReduce(c Costs, plan *pipeline.Plan, from, to, stage int) (most int64) {
	for _, m := range plan.Synchronization {
		if m.Kind == pipeline.Reduce && m.From == from && m.To == to && m.Stage == stage {
			most = max(most, pipeline.PartBytes(pipeline.NewCosts(c.Chain).Weights(m.First, m.Last), m.Part, len(plan.Line(stage))))
		}
	}
	return most
}
