package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/executor/internal/order"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// skipping is a U-Net.
func skipping(t testing.TB) *models.Model {
	t.Helper()
	m, err := models.New("unet-1-4", models.Config{Batch: 2, Image: 32, Classes: 5})
	must(t, err)
	return m
}

// straightened returns a plan with the portals of its stages, and the workload for it; nil where it has none, or no room.
func straightened(t testing.TB, w *Workload, lib kernels.Library, c Costs, plan *pipeline.Plan, back pipeline.Return) (*pipeline.Plan, *Workload) {
	t.Helper()
	portals := Portals(w.Model, plan.Stages)
	if len(portals) == 0 {
		return nil, nil
	}
	straight, err := pipeline.WithPortals(c.Chain, c.Platform, plan, portals, back)
	if errors.Is(err, pipeline.ErrNoRoom) {
		return nil, nil
	}
	must(t, err)
	s, err := Straight(w, lib, straight)
	must(t, err)
	return straight, s
}

func onlyLibrary(t testing.TB) kernels.Library { return targets(t, 1, host.Config{})[0].Library }

// passing are strategies whose stages skips of a U-Net pass.
var passing = []struct {
	name     string
	devices  int
	versions pipeline.Versions
}{
	{"gpipe", 4, ""}, {"gpipe-checkpoint", 3, ""}, {"1f1b-flush", 3, ""}, {"interleaved", 2, ""}, {"chimera", 4, ""}, {"zb-h1", 4, ""}, {"zb-v", 2, ""}, {"zb-v", 3, ""},
	{"1f1b*", 4, pipeline.Stash}, {"1f1b*", 3, pipeline.DoubleBuffered}, {"1f1b", 4, pipeline.Latest}, {"list", 3, pipeline.Stash}, {"madpipe", 4, pipeline.DoubleBuffered},
}

// shown returns how many minibatches show a plan.
func shown(t testing.TB, w *Workload, c Costs, plan *pipeline.Plan) int {
	group := groupOf(t, w, c, plan)
	if plan.IsFlush() {
		return 2 * group
	}
	return (12 + group - 1) / group * group
}

// Skips that go straight are the same numbers, whatever streams are slow.
func TestPortalsChangeNoBit(t *testing.T) {
	t.Parallel()
	w, lib := workload(t, skipping(t)), onlyLibrary(t)
	for i, x := range passing {
		t.Run(fmt.Sprintf("%s/%d/%s", x.name, x.devices, x.versions), func(t *testing.T) {
			c := costs(w, x.devices, uint64(x.devices))
			plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 8, Versions: x.versions})
			n := shown(t, w, c, plan)
			e, want := trained(t, w, c, plan, n, host.Config{})
			want.Tensors = tensors(t, e)
			for back, chaos := range map[pipeline.Return]uint64{pipeline.Late: 0, pipeline.Soon: uint64(i + 1)} {
				straight, s := straightened(t, w, lib, c, plan, back)
				if straight == nil {
					t.Fatal("the plan has no portals")
				}
				f, got := trained(t, s, c, straight, n, host.Config{Chaos: chaos})
				got.Tensors = tensors(t, f)
				same(t, want, got)
				sameAnswers(t, e, f)
			}
		})
	}
}

// sameAnswers compares evaluations.
func sameAnswers(t *testing.T, e, f *Executor) {
	t.Helper()
	answers := func(x *Executor) (all []float32) {
		must(t, x.Evaluate(context.Background(), feedOf(x.Model), 3, func(_ int, logits []float32) error {
			all = append(all, logits...)
			return nil
		}))
		return all
	}
	if a, b := answers(e), answers(f); len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("logits %v, with portals %v", a, b)
	}
}

// wiring is a random model whose layers take out, hand on and make skips: in any order, one tensor several times, in sums too.
type wiring struct {
	*rand.Rand
	width int
	open  int // skips that the input has
}

// layer is one layer: it reads its own input and some skips, all of them when it is the last.
func (r *wiring) layer(g *models.Graph, last bool) models.Value {
	const side = 4
	shape := kernels.Slice{H: side, W: side, C: r.width}
	take := func(i int) models.Value {
		if r.open == 0 {
			return models.GraphInput
		}
		s := shape
		s.From = i * side * side * r.width
		return g.Op(fmt.Sprint("take", i), s, models.GraphInput)
	}
	x := take(0)
	y := g.BNReLU("bn", g.Conv("conv", x, r.width, 3, 1))
	var out []models.Value
	for i := 1; i <= r.open; i++ {
		switch use := r.IntN(5); {
		case use == 0:
			y = g.Add(fmt.Sprint("add", i), y, take(i))
		case use == 1 || last:
			y = g.Conv(fmt.Sprint("join", i), g.Concat(fmt.Sprint("concat", i), y, take(i)), r.width, 1, 1)
		default:
			out = append(out, take(i))
		}
	}
	if !last && len(out) < 4 {
		switch r.IntN(4) {
		case 0:
			out = append(out, y)
		case 1:
			out = append(out, x)
		case 2:
			out = append(out, g.ReLU("extra", g.Conv("side", y, r.width, 1, 1)), g.Conv("other", x, r.width, 1, 1))
		}
	}
	if r.open = len(out); r.open == 0 {
		return y
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return g.Op("pack", kernels.Pack{}, append([]models.Value{y}, out...)...)
}

func (r *wiring) model(layers int) (*models.Model, error) {
	b := models.NewBuilder("wired", kernels.F32(2, 4, 4, r.width), 3)
	for i := range layers {
		name := fmt.Sprint("layer", i+1)
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value { return r.layer(g, i == layers-1) })
	}
	b.Layer("head", "head", func(g *models.Graph, x models.Value) models.Value {
		return g.Linear("fc", g.GlobalAvgPool("pool", x), 3)
	})
	return b.Model()
}

// Any model, cut anywhere, is trained to the same bits with portals.
func TestPortalsOfAnyModel(t *testing.T) {
	t.Parallel()
	lib, straights := onlyLibrary(t), 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 4))
		m, err := (&wiring{Rand: r, width: 1 + r.IntN(3)}).model(4 + r.IntN(5))
		must(t, err)
		w := workload(t, m)
		const devices = 4
		c := costs(w, devices, r.Uint64())
		cuts := r.Perm(len(m.Layers) - 1)[:devices-1]
		slices.Sort(cuts)
		o := pipeline.Options{Microbatches: 4}
		first := 1
		for s := range devices {
			last := len(m.Layers)
			if s < len(cuts) {
				last = cuts[s] + 1
			}
			o.Stages = append(o.Stages, pipeline.Stage{First: first, Last: last, Devices: []int{s}})
			first = last + 1
		}
		plan := planFor(t, []string{"1f1b-flush", "gpipe-checkpoint", "zb-h1"}[r.IntN(3)], c, o)
		straight, s := straightened(t, w, lib, c, plan, pipeline.Return(r.IntN(2)))
		if straight == nil {
			continue
		}
		straights++
		e, want := trained(t, w, c, plan, 4, host.Config{})
		want.Tensors = tensors(t, e)
		f, got := trained(t, s, c, straight, 4, host.Config{})
		got.Tensors = tensors(t, f)
		if d := want.FirstDifference(got); d != "" {
			t.Fatalf("seed %d, %s, %v: %s", seed, plan.Strategy, straight.Portals, d)
		}
	}
	if straights < 15 {
		t.Errorf("only %d models have portals", straights)
	}
}

// Events order everything with portals, too.
func TestEventsOrderPortals(t *testing.T) {
	t.Parallel()
	w, lib := workload(t, skipping(t)), onlyLibrary(t)
	seen := 0
	for _, x := range passing {
		c := costs(w, x.devices, 2)
		plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 4, Versions: x.versions})
		straight, s := straightened(t, w, lib, c, plan, pipeline.Late)
		if straight == nil {
			continue
		}
		n := shown(t, s, c, straight)
		h := idleRun(t, s, lib, c, straight, n, none)
		if race := h.race(); race != nil {
			t.Errorf("%s: %v", x.name, race)
		}
		for drop := 0; drop < h.waits/2; drop += 1 + h.waits/4 {
			if idleRun(t, s, lib, c, straight, n, drop).race() != nil {
				seen++
			}
		}
	}
	if seen == 0 {
		t.Error("no missing wait is seen")
	}
}

// The links carry each skip once, there and back.
func TestPortalsCarrySkipsOnce(t *testing.T) {
	t.Parallel()
	w, lib := workload(t, skipping(t)), onlyLibrary(t)
	checked := 0
	for _, x := range passing {
		if x.name == "chimera" { // its replicas send gradients, too
			continue
		}
		c := costs(w, x.devices, 2)
		plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 4, Versions: x.versions})
		straight, s := straightened(t, w, lib, c, plan, pipeline.Soon)
		if straight == nil {
			continue
		}
		n := shown(t, s, c, straight)
		var want int64
		stage := func(layer int) int {
			return slices.IndexFunc(plan.Stages, func(st pipeline.Stage) bool { return layer <= st.Last })
		}
		device := func(stage int) int { return plan.Stages[stage].Devices[0] }
		for b := range len(plan.Stages) - 1 {
			if device(b) == device(b+1) {
				continue
			}
			bytes := w.Layers[plan.Stages[b].Last-1].OutputBytes
			for _, k := range w.Model.Skips() {
				if from, to := stage(k.From), stage(k.To); from <= b && b < to && to-from > 1 {
					bytes -= k.Bytes
				}
			}
			want += bytes
		}
		for _, k := range w.Model.Skips() {
			if from, to := stage(k.From), stage(k.To); to-from > 1 && device(from) != device(to) {
				want += k.Bytes
			}
		}
		times := 2 * 2 * int64(n) // there and back, in two runs
		norms := int64(0)         // partial sums of each step's gradients, from each device to all others, in two runs
		if plan.IsFlush() {
			norms = 2 * int64(n/plan.Microbatches*(x.devices-1)) * squaresOf(w.Model)
		}
		got, carried := sentBy(idleRun(t, s, lib, c, straight, n, none))-norms, sentBy(idleRun(t, w, lib, c, plan, n, none))-norms
		if got != times*want || got > carried {
			t.Errorf("%s on %d devices: %d bytes over all links, want %d, carried %d", x.name, x.devices, got, times*want, carried)
		}
		t.Logf("%s, %d stages on %d devices: %d bytes of a minibatch over all links, each way; carried %d", x.name, len(plan.Stages), x.devices, got/times, carried/times)
		checked++
	}
	if checked < 8 {
		t.Errorf("%d plans have portals", checked)
	}
}

// squaresOf returns the bytes of the partial sums of all gradients.
func squaresOf(m *models.Model) (bytes int64) {
	for _, q := range m.Params() {
		if q.Trained {
			bytes += 8 * kernels.GuardPartials(q.Desc.Elements())
		}
	}
	return bytes
}

// sentBy returns the bytes that devices have sent to each other.
func sentBy(h *history) (bytes int64) {
	for _, d := range h.deeds {
		if len(d.reads) == 1 && len(d.writes) == 1 && d.reads[0].Offset/apart != d.writes[0].Offset/apart {
			bytes += d.reads[0].Bytes
		}
	}
	return bytes
}

// With portals every device writes up to the last byte that it was said to need, and none beyond; and stages that skips pass
// need less.
func TestMemoryWithPortals(t *testing.T) {
	t.Parallel()
	w, lib := workload(t, skipping(t)), onlyLibrary(t)
	for _, x := range passing {
		t.Run(fmt.Sprintf("%s/%d/%s", x.name, x.devices, x.versions), func(t *testing.T) {
			c := costs(w, x.devices, uint64(x.devices))
			plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 8, Versions: x.versions})
			straight, s := straightened(t, w, lib, c, plan, pipeline.Late)
			if straight == nil {
				t.Fatal("the plan has no portals")
			}
			touches(t, s, c, straight, shown(t, s, c, straight))
			before, err := Needs(w, c, plan, Options{})
			must(t, err)
			after, err := Needs(s, c, straight, Options{})
			must(t, err)
			for _, p := range straight.Portals {
				for _, st := range straight.Stages[p.From+1 : p.To] {
					if d := st.Devices[0]; after[d].Peak >= before[d].Peak {
						t.Errorf("device %d: peak %d with portals, %d without", d, after[d].Peak, before[d].Peak)
					}
				}
			}
		})
	}
}

// touches checks the end of what a run writes on each device.
func touches(t *testing.T, w *Workload, c Costs, plan *pipeline.Plan, n int) {
	t.Helper()
	const beyond = 1 << 12
	needs, err := Needs(w, c, plan, Options{})
	must(t, err)
	on, opt := targets(t, c.Platform.Devices, host.Config{}), Options{Feed: feedOf(w.Model), Rate: rate}
	for _, m := range needs {
		opt.Limits = append(opt.Limits, m.Extent+beyond)
	}
	e, err := New(w, on, c, plan, opt)
	must(t, err)
	for _, d := range e.drivers {
		must(t, on[d.Number].Device.(runtime.Inspector).Fill(runtime.Span{Offset: e.memory[d.Number].Static, Bytes: opt.Limits[d.Number] - e.memory[d.Number].Static}, 0xFF))
	}
	must(t, e.Run(context.Background(), n))
	for _, d := range e.drivers {
		look := make([]byte, beyond)
		must(t, on[d.Number].Device.(runtime.Inspector).Peek(runtime.Span{Offset: needs[d.Number].Extent, Bytes: beyond}, look))
		if i := slices.IndexFunc(look, func(b byte) bool { return b != 0xFF }); i >= 0 {
			t.Errorf("device %d wrote byte %d behind the last", d.Number, i)
		}
	}
}

func TestAWorkloadMustBeForThePortals(t *testing.T) {
	t.Parallel()
	w, lib := workload(t, skipping(t)), onlyLibrary(t)
	c := costs(w, 4, 4)
	plan := planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 4})
	straight, s := straightened(t, w, lib, c, plan, pipeline.Late)
	if _, err := Needs(w, c, straight, Options{}); !errors.Is(err, order.ErrPlan) {
		t.Errorf("a workload without portals: %v", err)
	}
	if _, err := Needs(s, c, plan, Options{}); !errors.Is(err, order.ErrPlan) {
		t.Errorf("a plan without portals: %v", err)
	}
}

// Drivers with portals never wait for each other in a circle, whatever the times are.
// If measured times are not round, only this test finds drivers with portals that wait for each other.
func TestPortalsNeverStick(t *testing.T) {
	t.Parallel()
	w, lib, tried := workload(t, skipping(t)), onlyLibrary(t), 0
	for seed := range uint64(2) {
		for _, x := range passing {
			r := rand.New(rand.NewPCG(seed, 3))
			c := costs(w, x.devices, seed)
			for i := range c.Chain.Layers {
				l := &c.Chain.Layers[i]
				x, y := r.Float64()/3, r.Float64()/7
				l.ForwardS, l.BackwardS, l.BackwardInputS, l.BackwardWeightS = r.Float64()/9, x+y, &x, &y
			}
			c.Platform.Bandwidth = 1e5 * float64(1+r.IntN(9))
			plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 8, Versions: x.versions})
			for _, back := range []pipeline.Return{pipeline.Late, pipeline.Soon} {
				if straight, s := straightened(t, w, lib, c, plan, back); straight != nil {
					idleNew(t, s, lib, c, straight, &history{drop: none})
					tried++
				}
			}
		}
	}
	if tried < 40 {
		t.Errorf("%d plans have portals", tried)
	}
}
