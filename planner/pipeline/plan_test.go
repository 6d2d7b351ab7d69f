package pipeline_test

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/schedule"
)

const document = `{"format":"plimsoll.plan/v1","chain":"two","strategy":"made up","weight_versions":"stash","weight_copies":[2,2.5],
	"accounting":"saved","period_s":11.5,"minibatches_per_period":1,"microbatches":4,"platform":{"devices":2,"memory_bytes":7,"bandwidth_bytes_per_s":2},
	"predicted":{"makespan_s":3,"idle_s":1},"per_device_peak_bytes":[46,72],
	"stages":[{"first_layer":1,"last_layer":1,"devices":[0],"ops":[{"op":"forward_all","layer":1},{"op":"backward","layer":1}],
	           "last_ops":[{"op":"forward_checkpoint","layer":2}],"note":"x"},
	          {"first_layer":2,"last_layer":2,"devices":[1,0]}],
	"tasks":[{"kind":"F","stage":0,"device":1,"start_s":0.25,"shift":-3,"duration_s":2,"color":"red"},{"kind":"CB","stage":0,"start_s":1e-3,"shift":0}],
	"made_by":"hand"}`

func TestPlanIsRead(t *testing.T) {
	t.Parallel()
	p, err := pipeline.Decode(strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	two := 2.0
	pf := platform(t, `{"devices":2,"memory_bytes":7,"bandwidth_bytes_per_s":2}`)
	want := pipeline.Plan{
		Chain: "two", Strategy: "made up", Versions: pipeline.Stash, Copies: pipeline.Copies{WeightCopies: []float64{2, 2.5}, Accounting: pipeline.Saved},
		Period: 11.5, MinibatchesPerPeriod: 1, Microbatches: 4, Platform: pf, PerDevicePeak: []int64{46, 72},
		Stages: []pipeline.Stage{
			{First: 1, Last: 1, Devices: []int{0}, Ops: schedule.Sequence{{Kind: schedule.ForwardAll, Layer: 1}, {Kind: schedule.Backward, Layer: 1}},
				LastOps: schedule.Sequence{{Kind: schedule.ForwardCheckpoint, Layer: 2}}},
			{First: 2, Last: 2, Devices: []int{1, 0}}},
		Tasks: []pipeline.Task{
			{Kind: pipeline.F, Device: 1, Start: 0.25, Shift: -3, Duration: &two},
			{Kind: pipeline.CB, Device: pipeline.NoDevice, Start: 1e-3}},
	}
	extra := string(p.Extra["made_by"]) + string(p.Stages[0].Extra["note"]) + string(p.Tasks[0].Extra["color"]) + string(p.Predicted.Extra["idle_s"])
	if extra != `"hand""x""red"1` || p.Predicted.Makespan != 3 {
		t.Errorf("unknown fields: %s", extra)
	}
	got := *p
	got.Extra, got.Stages[0].Extra, got.Tasks[0].Extra, got.Predicted = nil, nil, nil, pipeline.Predicted{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// A plan comes back from its file as it was, unknown fields included.
func TestPlanRoundTrip(t *testing.T) {
	t.Parallel()
	plans := []*pipeline.Plan{staircase().Plan, messages().Plan, gpipe().Plan, replicated().Plan}
	p, err := pipeline.Decode(strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	single := *p
	single.WeightCopies = []float64{3}
	for i, p := range append(plans, p, &single) {
		path := filepath.Join(t.TempDir(), "plan.json")
		if err := p.Write(path); err != nil {
			t.Fatal(err)
		}
		q, err := pipeline.Read(path)
		if err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("plan %d: %v\n%+v\n%+v", i, err, p, q)
		}
	}
}

func TestBadPlans(t *testing.T) {
	t.Parallel()
	for change, says := range map[[2]string]string{
		{`"plimsoll.plan/v1"`, `"other"`}:                            `"format" is "other"`,
		{`"tasks"`, `"todo"`}:                                        `"tasks" is missing`,
		{`"kind":"F"`, `"kind":"G"`}:                                 `task 0: field "kind" is "G", which is none of F, B, W, CF, CB`,
		{`"start_s":0.25,`, ``}:                                      `task 0: field "start_s" is missing`,
		{`"shift":-3`, `"shift":0.5`}:                                `task 0: field "shift" is 0.5`,
		{`"device":1,`, `"device":-1,`}:                              `task 0: field "device" is -1`,
		{`"devices":[0]`, `"devices":[null]`}:                        `stage 0: field "devices[0]" is missing`,
		{`"devices":[0]`, `"devices":0`}:                             `stage 0: field "devices" is 0, which is not an array`,
		{`"last_layer":1,`, ``}:                                      `stage 0: field "last_layer" is missing`,
		{`forward_all`, `fly`}:                                       `stage 0: field "ops": op 0: unknown op "fly"`,
		{`forward_checkpoint`, `walk`}:                               `stage 0: field "last_ops": op 0: unknown op "walk"`,
		{`"weight_copies":[2,2.5]`, `"weight_copies":"two"`}:         `"weight_copies" is "two"`,
		{`"weight_copies":[2,2.5]`, `"weight_copies":[2,-2]`}:        `"weight_copies[1]" is -2`,
		{`[46,72]`, `[46,"x"]`}:                                      `"per_device_peak_bytes[1]" is "x"`,
		{`"devices":2,"memory`, `"devices":0,"memory`}:               `"platform": bad platform: field "devices" is 0`,
		{`"minibatches_per_period":1`, `"minibatches_per_period":0`}: `"minibatches_per_period" is 0, which is not at least 1`,
		{`"makespan_s":3`, `"makespan_s":-3`}:                        `"predicted": field "makespan_s" is -3`,
		{`"period_s":11.5`, `"period_s":1e999`}:                      `"period_s" is 1e999, which is too large`,
	} {
		doc := strings.Replace(document, change[0], change[1], 1)
		if p, err := pipeline.Decode(strings.NewReader(doc)); err == nil || doc == document || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, %v, want %q", change, p, err, says)
		}
	}
	if _, err := pipeline.Read(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a missing file was read")
	}
}

// FuzzPlan: nothing panics; what is read can be checked, simulated and synchronized, and is written and read again as it was.
func FuzzPlan(f *testing.F) {
	cases := []pipelinetest.Case{staircase(), messages(), gpipe(), replicated(), instant(), threeReplicas()}
	for _, k := range cases {
		data, err := k.Plan.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(document))
	f.Add([]byte(smallPlan))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := new(pipeline.Plan)
		if p.UnmarshalJSON(data) != nil {
			return
		}
		var b bytes.Buffer
		if err := p.Encode(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		q, err := pipeline.Decode(&b)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if b.Reset(); q.Encode(&b) != nil || b.String() != text {
			t.Fatalf("%s\nwritten as %s\nand then as %s", data, text, &b)
		}
		for _, k := range cases {
			report, err := pipeline.Check(k.Chain, k.Platform, p)
			o, failed := pipeline.Simulate(k.Chain, k.Platform, p, pipeline.Noise{Periods: 3})
			if (report == nil) == (err == nil) && report == nil || err == nil && failed != nil {
				t.Fatalf("%s: %v, %v; %v, %v", data, report, err, o, failed)
			}
			if err == nil {
				if s, err := pipeline.Synchronize(k.Chain, k.Platform, p); err != nil || second(pipeline.Check(k.Chain, k.Platform, s)) != nil {
					t.Fatalf("%s: %+v, %v", data, s, err)
				}
			}
		}
	})
}
