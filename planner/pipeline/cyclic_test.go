package pipeline_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/pipeline"
)

// streamed is two layers whose weights come to the device for each pass, and whose state is with the host.
const streamed = "Pw1 Fall1 Pw2 Fall2 B2 Og2 Dw2 H2 B1 Og1 Dw1 H1"

func stateful() *chain.Chain {
	c := &chain.Chain{Name: "two", InputBytes: 10}
	for range 2 {
		host := 1.0
		l := chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 10, SavedBytes: 20, WeightBytes: 100}
		l.Update.StateBytes, l.Update.DeviceS, l.Update.HostS = 200, 0.5, &host
		c.Layers = append(c.Layers, l)
	}
	return c
}

func parsed(t *testing.T, text string) cycle.Sequence {
	t.Helper()
	seq, err := cycle.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// A cyclic plan goes through its file and back, and costs as much as its simulation says. Its ops are the work of its device; an op with a
// prime is for the step before.
func TestCyclicPlan(t *testing.T) {
	c := stateful()
	p := &pipeline.Platform{Devices: 1, Memory: []int64{1000}, Host: 100, Duplex: true, HostMemory: 2000}
	plan, err := pipeline.PlanCycle(c, "streamed", parsed(t, streamed), p)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := plan.Encode(&file); err != nil {
		t.Fatal(err)
	}
	read, err := pipeline.Decode(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got := read.Cycle.String(); got != streamed || !read.IsCycle() || read.IsSequence() || read.Microbatches != 1 {
		t.Errorf("read %q", got)
	}
	link, limits := read.Platform.CycleLimits()
	want, err := cycle.Simulate(c, plan.Cycle, link, limits)
	if err != nil {
		t.Fatal(err)
	}
	report, err := pipeline.Check(c, read.Platform, read)
	if err != nil || report.Makespan != want.Period || report.PerDevicePeak[0] != max(want.Peak, want.InOrderPeak) || len(report.Warnings) > 0 {
		t.Errorf("%+v, %v; the simulation says %+v", report, err, want)
	}
	plan.Waits = make([][]int, len(plan.Cycle))
	plan.Waits[8], plan.Waits[0] = []int{7}, []int{0, 11}
	file.Reset()
	if err := plan.Encode(&file); err != nil {
		t.Fatal(err)
	}
	laid, err := pipeline.Decode(bytes.NewReader(file.Bytes()))
	if err != nil || !reflect.DeepEqual(laid.Waits, plan.Waits) {
		t.Errorf("read waits %v, %v; want %v", laid.Waits, err, plan.Waits)
	}
	limits.Waits = plan.Waits
	if want, err = cycle.Simulate(c, plan.Cycle, link, limits); err != nil {
		t.Fatal(err)
	}
	if waiting, err := pipeline.Check(c, laid.Platform, laid); err != nil || waiting.Makespan != want.Period || waiting.Makespan <= report.Makespan {
		t.Errorf("with waits %+v, %v; the simulation says %+v, and without %v", waiting, err, want, report.Makespan)
	}
	primed := pipeline.NewCycle("two", "", parsed(t, "H2' Pw1 Fall1.1 Fall1.2 Dw1 Pw2 Fall2.1 Fall2.2 B2.1 B2.2 Og2 Dw2 Pw1 B1.1 B1.2 Og1 Dw1 H1"), p)
	order, err := pipeline.Order(c, p, primed, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, w := range order.Devices[0] {
		all = append(all, w.Op.String()+[]string{"-", "", "+"}[w.Shift+1])
	}
	if got := strings.Join(all, " "); got != "H2'- Pw1+ Fall1.1 Fall1.2+ Pw2+ Fall2.1 Fall2.2+ B2.1 B2.2+ Og2+ Pw1+ B1.1 B1.2+ Og1+ H1+" {
		t.Error(got)
	}
}

// Each violation by a cyclic plan is named: a rule with its op, memory with its numbers.
func TestBadCyclicPlans(t *testing.T) {
	c, p := stateful(), &pipeline.Platform{Devices: 1, Memory: []int64{1000}, Host: 100, Duplex: true, HostMemory: 2000}
	if _, err := pipeline.PlanCycle(c, "", parsed(t, "Pw1 "+streamed), p); !errors.As(err, new(*cycle.RuleError)) {
		t.Error(err)
	}
	small := *p
	small.Memory = []int64{150}
	if _, err := pipeline.PlanCycle(c, "", parsed(t, streamed), &small); !errors.As(err, new(*cycle.MemoryError)) {
		t.Error(err)
	}
	small = *p
	small.HostMemory = 100
	if _, err := pipeline.PlanCycle(c, "", parsed(t, streamed), &small); !errors.As(err, new(*cycle.HostMemoryError)) {
		t.Error(err)
	}
	for op, want := range map[string]string{
		`"layer": 0`:                      "op 1: ",
		`"layer": 1, "waits_for": [0, 2]`: `op 1: field "waits_for" is 2`,
		`"layer": 1, "waits_for": [-1]`:   `op 1: field "waits_for" is -1`,
		`"layer": 1, "waits_for": ["x"]`:  `op 1: field "waits_for" is "x"`,
		`"layer": 1, "waits_for": 1`:      `op 1: field "waits_for" is 1`,
	} {
		file := `{"format": "plimsoll.plan/v1", "chain": "two", "ops": [{"op": "fetch_weights", "layer": 1}, {"op": "forward_all", ` + op + `}]}`
		if _, err := pipeline.Decode(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", op, err, want)
		}
	}
}

// A plan says that its updates wait for all gradients, in its file too. It is refused by the op where one does not.
func TestPlansThatUpdateLast(t *testing.T) {
	t.Parallel()
	c, p := stateful(), &pipeline.Platform{Devices: 1, Memory: []int64{1000}, Host: 100, Duplex: true, HostMemory: 2000}
	const last = "Pw1 Fall1 Pw2 Fall2 B2 Og2 Dw2 B1 Og1 Dw1 H2 H1"
	const primed = "H2' Pw1 Fall1 Pw2 Fall2 B2 Og2 Dw2 B1 Og1 Dw1 H1"
	for text, breaks := range map[string]string{last: "", primed: "", streamed: "op 7 (H2): an update needs all gradients of its step"} {
		plan := pipeline.NewCycle(c.Name, "", parsed(t, text), p)
		plan.UpdatesLast = true
		err := plan.PredictCycle(c)
		broken, refused := errors.AsType[*cycle.RuleError](err)
		if refused != (breaks != "") || refused && !strings.Contains(broken.Error(), breaks) || !refused && err != nil {
			t.Errorf("%s: %v", text, err)
		}
		var file bytes.Buffer
		if err := plan.Encode(&file); err != nil {
			t.Fatal(err)
		}
		read, err := pipeline.Decode(&file)
		if err != nil || !read.UpdatesLast {
			t.Fatalf("%s: read %+v, %v", text, read, err)
		}
		_, failure := pipeline.Check(c, p, read)
		_, unordered := pipeline.Order(c, p, read, 0)
		if (failure != nil) != refused || (unordered != nil) != refused {
			t.Errorf("%s: checked %v, ordered %v", text, failure, unordered)
		}
	}
}
