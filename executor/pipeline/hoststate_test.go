package pipeline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/pipeline/pipelinetest"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// onHostState returns a plan whose optimizer's state the host has.
func onHostState(plan *pipeline.Plan) *pipeline.Plan {
	p := *plan
	p.HostState = true
	return &p
}

// A run whose state the host has is the run on devices to the last bit: losses, norms, weights and states, clipped or not, divided among
// replicas or not.
func TestHostStateTrainsTheSameBits(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*models.Model{"norm": testModel(t), "wide": wideModel(t), "bfloat16": builtModel(t, true, kernels.BFloat16)} {
		for _, rule := range []kernels.Update{kernels.SGD{Momentum: 0.9, WeightDecay: 1e-3}, kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}, muon} {
			if name == "bfloat16" && rule != kernels.Update(muon) {
				continue
			}
			w := workloadOf(t, m, rule)
			for _, devices := range []int{2, 4} {
				if testing.Short() && (devices == 4) != (name == "wide") {
					continue
				}
				c := costs(w, devices, 3)
				c.Platform.Duplex = devices == 2
				plans := sharedPlans(t, c)
				plans["1f1b"] = planFor(t, "1f1b-flush", c, pipeline.Options{Microbatches: 2 * devices})
				if rule != kernels.Update(muon) {
					plans["zero"], _ = sharing(t, c, plans["data"])
				}
				for plan, p := range plans {
					t.Run(fmt.Sprintf("%s/%T/%d/%s", name, rule, devices, plan), func(t *testing.T) {
						for _, opt := range []Options{{}, {MaxNorm: 0.05}} {
							steps := 3
							want, out := guarded(t, targets(t, devices, host.Config{}), w, c, p, steps, opt)
							must(t, want.Run(t.Context(), steps*p.Repeats()))
							out.Tensors = tensors(t, want)
							got, hosted := guarded(t, targets(t, devices, host.Config{Chaos: 3}), w, c, onHostState(p), steps, opt)
							must(t, got.Run(t.Context(), steps*p.Repeats()))
							hosted.Tensors = tensors(t, got)
							if d := out.FirstDifference(hosted.Outcome); d != "" || !slices.Equal(out.Norms, hosted.Norms) {
								t.Fatalf("%s; norms %v, on devices %v", d, hosted.Norms, out.Norms)
							}
						}
					})
				}
			}
		}
	}
}

// Devices have less memory by the states and their workspace, to the byte, and the host has them. An audit finds the planned peak.
func TestMemoryOfHostState(t *testing.T) {
	t.Parallel()
	w := *workload(t, wideModel(t))
	w.Optimizer = kernels.Adam{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	c := costs(&w, 2, 3)
	for name, plan := range sharedPlans(t, c) {
		on, err := Needs(&w, c, plan, Options{})
		must(t, err)
		needs, err := Needs(&w, c, onHostState(plan), Options{})
		must(t, err)
		e, _ := guarded(t, targets(t, 2, host.Config{}), &w, c, onHostState(plan), 1, Options{Audit: true})
		for _, a := range e.Audited() {
			n, states := needs[a.Device], int64(0)
			for _, s := range e.driver(a.Device).stages {
				if s == nil {
					continue
				}
				for _, x := range s.states {
					states += kernels.Align(x.Bytes)
				}
			}
			if a.PeakBytes != n.Peak || n.Peak > on[a.Device].Peak-states || states == 0 || n.Offloaded < states {
				t.Errorf("%s: audited %+v, planned %+v, on the device %+v, %d bytes of states", name, a, n, on[a.Device], states)
			}
		}
	}
}

// After each segment, a run with state on the host saves what a run on devices saves, and either goes on from the other's.
func TestHostStateCheckpoints(t *testing.T) {
	t.Parallel()
	w := workload(t, wideModel(t))
	c := costs(w, 4, 3)
	for name, p := range sharedPlans(t, c) {
		t.Run(name, func(t *testing.T) { savesLike(t, w, c, p, onHostState(p)) })
	}
}

// Devices in several processes have their states on the host, too, and train the bits of one process.
func TestHostStateBetweenProcesses(t *testing.T) {
	t.Parallel()
	w := workload(t, testModel(t))
	r := rand.New(rand.NewPCG(45, 5))
	costs := costs(w, 4, 3)
	for name, p := range sharedPlans(t, costs) {
		n := 2 * p.Repeats()
		want := newWorld(t, w, costs, p, make([]int, 4), cpus(t, host.Config{}), Options{}).trained(n)
		for i, process := range divisions(4, r) {
			t.Run(fmt.Sprintf("%s/%v", name, process), func(t *testing.T) {
				same(t, want, newWorld(t, w, costs, onHostState(p), process, cpus(t, host.Config{Chaos: uint64(i)}), Options{}).trained(n))
			})
		}
	}
}

// The host updates plans with a flush alone.
func TestRefusedHostState(t *testing.T) {
	t.Parallel()
	w := *workload(t, testModel(t))
	c := costs(&w, 2, 3)
	async := onHostState(planFor(t, "1f1b", c, pipeline.Options{}))
	if _, err := Needs(&w, c, async, Options{}); err == nil || !strings.Contains(err.Error(), "the host updates plans with a flush") {
		t.Error(err)
	}
}

// savesLike runs two plans, of which the second is another form of the first, and compares what they save, and how each goes on from that.
func savesLike(t *testing.T, w *Workload, c Costs, whole, other *pipeline.Plan) {
	t.Helper()
	g := whole.Repeats()
	var end [][]pipelinetest.Tensor
	var books []*album
	for _, plan := range []*pipeline.Plan{whole, other} {
		book := &album{all: map[[2]int][]pipelinetest.Tensor{}}
		e, _ := guarded(t, targets(t, c.Platform.Devices, host.Config{Chaos: 5}), w, c, plan, 4, Options{Save: book.save})
		must(t, e.RunUntil(t.Context(), nil, Segment{2 * g, true}, Segment{g, true}, Segment{g, false}))
		e.Saved()
		must(t, book.err)
		books, end = append(books, book), append(end, tensors(t, e))
	}
	for _, done := range []int{2 * g, 3 * g} {
		if d := pipelinetest.FirstDifference(books[0].state(len(whole.Stages), done), books[1].state(len(whole.Stages), done)); d != "" {
			t.Errorf("behind %d: %s", done, d)
		}
	}
	for i, plan := range []*pipeline.Plan{other, whole} { // from the other's
		e, _ := guarded(t, targets(t, c.Platform.Devices, host.Config{}), w, c, plan, 2, Options{Past: Past{Minibatches: 2 * g}})
		for _, x := range books[i].state(len(whole.Stages), 2*g) {
			k := slices.IndexFunc(e.tensors.all, func(p placed) bool { return p.Role == x.Role && p.Name == x.Name })
			must(t, e.Write(e.tensors.all[k].Tensor, x.Values))
		}
		must(t, e.Run(t.Context(), 2*g))
		if d := pipelinetest.FirstDifference(end[0], tensors(t, e)); d != "" {
			t.Errorf("resumed: %s", d)
		}
	}
	if d := pipelinetest.FirstDifference(end[0], end[1]); d != "" {
		t.Error(d)
	}
}
