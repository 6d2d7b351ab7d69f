package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"plimsoll/executor/internal/order"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
	"plimsoll/runtime/world"
)

// sums are the lines of a hub, which adds up in the order of the line: as Plimsoll does itself, so the bits are the same.
type sums struct {
	mu    sync.Mutex
	lines []*lineOfHub
	bytes int64 // that were added up, of one device
}

type lineOfHub struct {
	world.Line
	moved *sync.Cond
	parts [][]float32 // of the sum that is being made, by place in the line
	came  int
	round int
}

func (m *member) OpenSums(lines []world.Line) error {
	m.sums.mu.Lock()
	defer m.sums.mu.Unlock()
	m.lineDevices = nil
	for i, l := range lines {
		m.lineDevices = append(m.lineDevices, l.Device)
		l.Device = nil
		if i == len(m.sums.lines) {
			m.sums.lines = append(m.sums.lines, &lineOfHub{Line: l, moved: sync.NewCond(&m.sums.mu), parts: make([][]float32, len(l.Ranks))})
		}
		if !slices.Equal(l.Ranks, m.sums.lines[i].Ranks) || len(lines) < len(m.sums.lines) {
			return fmt.Errorf("process %d opens other lines: %v", m.self, lines)
		}
	}
	return nil
}

func (m *member) Sum(line int, parts []runtime.Span) (runtime.Launch, error) {
	l := m.sums.lines[line]
	at := slices.Index(l.Ranks, m.self)
	if at < 0 || len(parts) == 0 {
		return nil, fmt.Errorf("process %d adds up %v on line %v", m.self, parts, l.Line)
	}
	var own [][]float32
	for _, p := range parts {
		b, err := m.lineDevices[line].(*host.Device).Bytes(p)
		if err != nil {
			return nil, err
		}
		own = append(own, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4))
	}
	return host.Func{Name: "sum", Do: func() error {
		for _, p := range own {
			if err := m.join(l, at, p); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// join adds up a part with the others of a line: the last one to come does it for all.
func (m *member) join(l *lineOfHub, at int, own []float32) error {
	m.sums.mu.Lock()
	defer m.sums.mu.Unlock()
	l.parts[at], l.came = own, l.came+1
	if l.came < len(l.parts) {
		for round := l.round; l.round == round && m.err == nil; {
			l.moved.Wait()
		}
		return m.err
	}
	for i, v := range l.parts[0] {
		for _, p := range l.parts[1:] {
			if len(p) != len(own) {
				return fmt.Errorf("%s: %d numbers and %d", l.Name, len(p), len(own))
			}
			v += p[i]
		}
		for _, p := range l.parts {
			p[i] = v
		}
	}
	m.sums.bytes += int64(4 * len(own))
	l.came, l.round = 0, l.round+1
	l.moved.Broadcast()
	return nil
}

// If a library sums the gradients in the order of the group, replicas in separate processes train the same bits as one process. No gradient
// messages are left, and every gradient of every update is summed once.
func TestSumsByLibrary(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	for i, x := range synchronizedPlans {
		for _, buckets := range []int{0, 3} {
			if testing.Short() && i%3 != buckets {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%d/%d", x.name, x.versions, x.devices, buckets), func(t *testing.T) {
				costs, plan := synchronizedPlan(t, w, x.name, x.versions, x.devices)
				sumsByLibrary(t, w, costs, summing(t, costs, plan, buckets))
			})
		}
	}
}

// A library adds up parts, too, whoever would own them, and where stages that recompute share devices.
func TestPartsByLibrary(t *testing.T) {
	t.Parallel()
	for _, m := range []*models.Model{testModel(t), wideModel(t)} {
		w := workload(t, m)
		c := costs(w, 4, 3)
		for _, plan := range sharedPlans(t, c) {
			divided, _ := sharing(t, c, plan)
			sumsByLibrary(t, w, c, inParts(t, c, divided))
		}
		free := planFor(t, "chimera", c, pipeline.Options{Microbatches: 8, Accounting: pipeline.Saved})
		c.Platform.Duplex = false
		sumsByLibrary(t, w, c, tightened(t, "chimera", c, free))
	}
}

// Buckets that are made at once are added up at once, others by themselves.
func TestSumsInGroups(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	costs := costs(w, 3, 2)
	layers := costs.Chain.Layers
	for i := range layers[:len(layers)/2] { // whose gradients are made behind the same part of the backward
		layers[i].BackwardS = 0
	}
	e := sumsByLibrary(t, w, costs, summing(t, costs, dataParallel(costs, 6), 100))
	var sizes []int
	for _, buckets := range e.order.Sums[0].Together {
		sizes = append(sizes, len(buckets))
	}
	slices.Sort(sizes)
	if n := len(sizes); n < 2 || sizes[0] != 1 || sizes[n-1] < 2 {
		t.Errorf("groups of %v buckets", sizes)
	}
}

func sumsByLibrary(t *testing.T, w *Workload, costs Costs, plan *pipeline.Plan) *Executor {
	devices, o := costs.Platform.Devices, Options{}
	if plan.IsFlush() {
		o.MaxNorm, o.DeferredBatchNorm = 1, true
	}
	n := 2 * groupOf(t, w, costs, plan)
	want := newWorld(t, w, costs, plan, make([]int, devices), cpus(t, host.Config{}), o).trained(n)
	o.AllReduce = true
	y := newWorld(t, w, costs, plan, aDeviceEach(devices), cpus(t, host.Config{Chaos: 5}), o)
	same(t, want, y.trained(n))
	e, expected := y.all[0], int64(0)
	for s, c := range e.collectives {
		if line := e.order.Hosts(s); (c != nil) != (len(line) > 1) {
			t.Errorf("stage %d on devices %v: %v", s, line, c)
		}
		if c != nil {
			expected += int64(2*n/e.rules[s].Group) * e.driver(c.line[0]).stages[s].grads[0].Bytes
		}
	}
	if y.sums.bytes != expected {
		t.Errorf("%d bytes are added up, expected %d", y.sums.bytes, expected)
	}
	for _, way := range y.ways {
		if strings.Contains(way.Name, "gradients of stage") {
			t.Errorf("there is a way of %s", way.Name)
		}
	}
	return e
}

// Sums that no library can make are refused: in one process, of replicas of which some share a process, and with a divided state.
func TestSumsThatNoLibraryMakes(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	costs, plan := synchronizedPlan(t, w, "data", pipeline.Stash, 4)
	for name, o := range map[string]Options{
		"several processes":      {AllReduce: true},
		"share a process":        {AllReduce: true, World: &World{Ranks: []int{0, 0, 1, 2}}},
		"plans without \"zero\"": {AllReduce: true, World: &World{Ranks: []int{0, 1, 2, 3}}},
	} {
		costs, p := costs, plan
		if strings.Contains(name, "zero") {
			costs = Costs{costs.Chain, costs.Platform}
			p = planFor(t, "chimera", costs, pipeline.Options{Microbatches: 4, Zero: pipeline.ZeroShards})
		}
		if _, err := Needs(w, costs, p, o); !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Drivers that would not add up in one order are found before anything runs, and so are those that wait for each other.
func TestSumsInAnotherOrder(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	costs, plan := synchronizedPlan(t, w, "chimera", "", 2)
	plan = summing(t, costs, plan, 3)
	for name, spoil := range map[string]func(own []order.Instruction, joins []int){
		"at one time": func(own []order.Instruction, joins []int) { // another bucket, of the same stage
			own[joins[0]].Bucket, own[joins[1]].Bucket = own[joins[1]].Bucket, own[joins[0]].Bucket
		},
		"wait for each other": func(own []order.Instruction, joins []int) { // another stage first
			own[joins[0]], own[joins[len(joins)-1]] = own[joins[len(joins)-1]], own[joins[0]]
		},
	} {
		e := &compilation{layout: &layout{Workload: w, opt: Options{Feed: feedOf(w.Model), AllReduce: true, World: &World{Ranks: []int{0, 1}}}}}
		must(t, e.layOut(costs, plan, 2))
		own, joins := e.order.Instructions[1], []int{}
		for i, v := range own {
			if v.Kind == pipeline.Joining {
				joins = append(joins, i)
			}
		}
		spoil(own, joins)
		on, err := e.places(cpus(t, host.Config{})(1), 2)
		must(t, err)
		must(t, e.openDrivers(on))
		must(t, e.openChannels())
		if err := e.compile(); !errors.Is(err, order.ErrPlan) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// aDeviceEach is a process for each of n devices.
func aDeviceEach(n int) (process []int) {
	for d := range n {
		process = append(process, d)
	}
	return process
}
