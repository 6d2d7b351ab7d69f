package pipeline_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// smallChain has one layer and the loss.
func smallChain() *chain.Chain {
	return &chain.Chain{Name: "small", InputBytes: 4, Layers: []chain.Layer{
		{Name: "l1", ForwardS: 1, BackwardS: 2, OutputBytes: 3, SavedBytes: 5, GradientBytes: 3},
		{Name: "loss", ForwardS: 0.5, BackwardS: 0.25, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1},
	}}
}

const smallPlan = `{
 "format":"plimsoll.plan/v1",
 "chain":"small",
 "strategy":"by hand",
 "memory_bytes":20,
 "bandwidth_bytes_per_s":2,
 "duplex":true,
 "predicted":{"makespan_s":4.5,"peak_bytes":13,"idle_s":0.75,"confidence":"high"},
 "ops":[
  {"op":"offload","layer":1},
  {"op":"forward_all","layer":1},
  {"op":"forward_all","layer":2,"why":"the loss"},
  {"op":"prefetch","layer":1},
  {"op":"backward","layer":2},
  {"op":"backward","layer":1}
 ],
 "author":{"tool":"pen <and> paper"}
}
`

// TestSequenceSurvivesRewriting: what is read and written again is the same, byte for byte, unknown fields included.
func TestSequenceSurvivesRewriting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(path, []byte(smallPlan), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := pipeline.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := (schedule.Limits{Memory: 20, Link: schedule.Link{Bandwidth: 2, Duplex: true}}); p.Limits() != want || p.Sequence().String() != "O1 Fall1 Fall2 P1 B2 B1" || p.Peak() != 13 {
		t.Errorf("read %+v", p)
	}
	if err := p.Write(path); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != smallPlan {
		t.Errorf("rewritten:\n%s", got)
	}
	line, err := json.Marshal(*p)
	var again pipeline.Plan
	if err == nil {
		err = json.Unmarshal(line, &again)
	}
	if twice, _ := json.Marshal(again); err != nil || string(twice) != string(line) {
		t.Errorf("through one line: %s\ninstead of %s, %v", twice, line, err)
	}
}

// TestPlanSequencePredicts: a plan carries the simulated cost, and fields that say nothing are left out.
func TestPlanSequencePredicts(t *testing.T) {
	t.Parallel()
	seq, err := schedule.Parse("Fall1 Fall2 B2 B1")
	if err != nil {
		t.Fatal(err)
	}
	p, err := pipeline.PlanSequence(smallChain(), "store-all", seq, schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(p)
	want := `{"format":"plimsoll.plan/v1","chain":"small","strategy":"store-all",` +
		`"predicted":{"makespan_s":3.75,"peak_bytes":16,"idle_s":0},` +
		`"ops":[{"op":"forward_all","layer":1},{"op":"forward_all","layer":2},{"op":"backward","layer":2},{"op":"backward","layer":1}]}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	var memory *schedule.MemoryError
	if _, err := pipeline.PlanSequence(smallChain(), "store-all", seq, schedule.Limits{Memory: 15}); !errors.As(err, &memory) || memory.Index != 3 || memory.Needed != 16 {
		t.Errorf("15 bytes: %v", err)
	}
}

func TestSequenceIsForOneChain(t *testing.T) {
	t.Parallel()
	p, err := pipeline.Decode(strings.NewReader(smallPlan))
	if err != nil {
		t.Fatal(err)
	}
	c := smallChain()
	if err := p.For(c); err != nil {
		t.Error(err)
	}
	c.Name = "large"
	if err := p.For(c); !errors.Is(err, pipeline.ErrOtherChain) || !strings.Contains(err.Error(), `"small"`) || !strings.Contains(err.Error(), `"large"`) {
		t.Errorf("another chain: %v", err)
	}
	c = smallChain()
	p.Stages[0].Ops = p.Sequence()[:5]
	var rule *schedule.RuleError
	if err := p.For(c); !errors.As(err, &rule) {
		t.Errorf("without backward 1: %v", err)
	}
}

func TestBadSequencesNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	for change, want := range map[[2]string]string{
		{`plimsoll.plan/v1`, `plimsoll.plan/v2`}:            `field "format" is "plimsoll.plan/v2", which is not "plimsoll.plan/v1"`,
		{`"format":"plimsoll.plan/v1",`, ``}:                `field "format" is missing`,
		{`"chain":"small",`, ``}:                            `field "chain" is missing`,
		{`"chain":"small"`, `"chain":1`}:                    `field "chain" is 1, which is not a string`,
		{`"ops"`, `"opera"`}:                                `field "ops" is missing`,
		{`"memory_bytes":20`, `"memory_bytes":-1`}:          `field "memory_bytes" is -1, which is negative`,
		{`"memory_bytes":20`, `"memory_bytes":1e400`}:       `field "memory_bytes" is 1e400, which is too large`,
		{`"memory_bytes":20`, `"memory_bytes":0.5`}:         `field "memory_bytes" is 0.5, which is not a whole number`,
		{`_per_s":2`, `_per_s":-2`}:                         `field "bandwidth_bytes_per_s" is -2, which is negative`,
		{`"duplex":true`, `"duplex":1`}:                     `field "duplex" is 1, which is neither true nor false`,
		{`"peak_bytes":13`, `"peak_bytes":"13"`}:            `field "predicted": field "peak_bytes" is "13", which is not a number`,
		{`"idle_s":0.75`, `"idle_s":-1`}:                    `field "predicted": field "idle_s" is -1, which is negative`,
		{`{"op":"offload","layer":1}`, `{"op":"offload"}`}:  `op 0: field "layer" is missing`,
		{`{"op":"prefetch","layer":1}`, `{"op":"fetch"}`}:   `op 3: field "layer" is missing`,
		{`"op":"backward","layer":2`, `"op":"b","layer":2`}: `op 4: unknown op "b"`,
		{`"author"`, `"chain"`}:                             `field "chain" occurs twice`,
		{`"author"`, `"stages":[],"author"`}:                `field "tasks" is missing`,
		{`paper"}` + "\n}", `paper"}` + "\n} {}"}:           `line 18, column 3: invalid character '{' after top-level value`,
		{`"strategy":`, `"strategy"`}:                       `line 4, column 12: invalid character '"' after object key`,
	} {
		doc := strings.Replace(smallPlan, change[0], change[1], 1)
		if doc == smallPlan {
			t.Fatalf("%q is not in the plan", change[0])
		}
		path := filepath.Join(t.TempDir(), "bad.json")
		if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := pipeline.Read(path); err == nil || err.Error() != path+": "+want {
			t.Errorf("%s: %v, want %s", change[1], err, want)
		}
	}
	if _, err := pipeline.Read(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzDecodeSequence(f *testing.F) {
	f.Add([]byte(smallPlan))
	f.Add([]byte(`{"format":"plimsoll.plan/v1","chain":"","ops":[]}`))
	f.Add([]byte(`{"format":"plimsoll.plan/v1","chain":"x","stages":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := pipeline.Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := p.Encode(&out); err != nil {
			t.Fatal(err)
		}
		again, err := pipeline.Decode(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("%v in what was written:\n%s", err, out.Bytes())
		}
		var twice bytes.Buffer
		if err := again.Encode(&twice); err != nil || twice.String() != out.String() {
			t.Fatalf("written again (%v):\n%s\ninstead of\n%s", err, twice.String(), out.String())
		}
	})
}

// TestFormOfFile: a plan for one device that says more than its sequence is written with its stages, and read as it was.
func TestFormOfFile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*pipeline.Plan){
		"microbatches":  func(p *pipeline.Plan) { p.Microbatches = 2 },
		"weights":       func(p *pipeline.Plan) { p.WeightCopies = nil },
		"period":        func(p *pipeline.Plan) { p.Versions, p.Period = pipeline.Stash, 1 },
		"bandwidth":     func(p *pipeline.Plan) { p.Platform.Bandwidth = 3 },
		"batch":         func(p *pipeline.Plan) { p.Batch = 4 },
		"last ops":      func(p *pipeline.Plan) { p.Stages[0].LastOps = p.Stages[0].Ops[1:] },
		"another start": func(p *pipeline.Plan) { p.Tasks[1].Shift = 1 },
	} {
		p, err := pipeline.Decode(strings.NewReader(smallPlan))
		if err != nil {
			t.Fatal(err)
		}
		if !p.IsSequence() {
			t.Fatalf("%+v is no sequence", p)
		}
		p.Predicted, p.Winner = pipeline.Predicted{Makespan: p.Predicted.Makespan}, "another"
		change(p)
		text, err := p.MarshalJSON()
		q, failed := pipeline.Decode(bytes.NewReader(text))
		if err != nil || failed != nil || p.IsSequence() || !strings.Contains(string(text), `"stages"`) || !reflect.DeepEqual(p, q) {
			t.Errorf("%s: %s, %v\n%+v\n%+v, %v", name, text, err, p, q, failed)
		}
	}
}

// A file whose stage has other layers than its ops is no sequence: it is judged as stages, and written as it was read.
func TestStagesThatAreNoSequence(t *testing.T) {
	t.Parallel()
	const text = `{"format":"plimsoll.plan/v1","chain":"c","strategy":"x","platform":{"devices":1,"bandwidth_bytes_per_s":0},"weight_versions":"flush",` +
		`"weight_copies":0,"microbatches":1,"stages":[{"first_layer":1,"last_layer":7,"devices":[0],"ops":[{"op":"forward_all","layer":1},{"op":"backward","layer":1}]}],` +
		`"tasks":[{"kind":"F","stage":0,"device":0,"start_s":0,"shift":0},{"kind":"B","stage":0,"device":0,"start_s":0,"shift":0}]}`
	p, err := pipeline.Decode(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := &chain.Chain{Name: "c", Layers: []chain.Layer{{Name: "l", ForwardS: 1, BackwardS: 1}}}
	if _, err := pipeline.Check(c, p.Platform, p); p.IsSequence() || !errors.Is(err, pipeline.ErrInvalid) {
		t.Errorf("a sequence: %v; %v", p.IsSequence(), err)
	}
}

// An accumulated sequence is n sequences one after the other: it is judged, simulated and written like every plan, and its file reads as it
// is.
func TestAccumulatedSequences(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "two", InputBytes: 8, Layers: []chain.Layer{
		{Name: "a", ForwardS: 1, BackwardS: 2, OutputBytes: 4, SavedBytes: 6, GradientBytes: 4},
		{Name: "loss", ForwardS: 3, BackwardS: 4, OutputBytes: 2, SavedBytes: 2, GradientBytes: 2},
	}}
	seq := schedule.Sequence{{Kind: schedule.ForwardAll, Layer: 1}, {Kind: schedule.ForwardAll, Layer: 2}, {Kind: schedule.Backward, Layer: 2}, {Kind: schedule.Backward, Layer: 1}}
	one, err := pipeline.PlanSequence(c, "store-all", seq, schedule.Limits{Memory: 100})
	if err != nil {
		t.Fatal(err)
	}
	plan := one.Accumulated(3)
	if plan.IsSequence() || !plan.RunsSequence() || !one.IsSequence() || len(one.Tasks) != 2 {
		t.Fatalf("%+v", plan)
	}
	report, err := pipeline.Check(c, plan.Platform, plan)
	if err != nil {
		t.Fatal(err)
	}
	if report.Makespan != 30 || report.PerMinibatch != 10 || report.PerDeviceBusy[0] != 30 || !slices.Equal(report.PerDevicePeak, one.PerDevicePeak) || len(report.Warnings) > 0 {
		t.Errorf("%+v", report)
	}
	ran, err := pipeline.Simulate(c, plan.Platform, plan, pipeline.Noise{})
	if err != nil {
		t.Fatal(err)
	}
	if ran.Makespan != 30 || len(ran.Spans) != 6 || ran.Spans[5] != (pipeline.Span{Task: 5, Minibatch: 2, Start: 24, End: 30}) {
		t.Errorf("%+v", ran)
	}
	var file bytes.Buffer
	if err := plan.Encode(&file); err != nil {
		t.Fatal(err)
	}
	var read pipeline.Plan
	if err := json.Unmarshal(file.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if !read.RunsSequence() || read.Microbatches != 3 || !slices.Equal(read.Sequence(), seq) || read.Limits() != plan.Limits() {
		t.Errorf("%s", file.String())
	}
	for i := range c.Layers { // of unknown times microbatches follow each other, too
		c.Layers[i].ForwardS, c.Layers[i].BackwardS = 0, 0
	}
	for _, p := range []*pipeline.Plan{plan, &read} {
		order, err := pipeline.Order(c, p.Platform, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range order.Devices[0][:6] {
			if w.Kind != pipeline.F+pipeline.Kind(i%2) || w.Shift != i/2 {
				t.Errorf("work %d is %+v", i, w)
			}
		}
	}
}
