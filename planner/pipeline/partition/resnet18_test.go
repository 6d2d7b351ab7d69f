package partition

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
	"plimsoll/planner/profiles"
)

// PipeDream's program counts the output that two branches read until the branches meet. Here it is counted until both have read it. So the cuts
// of ResNet-18 are those of the program, and some pass fewer bytes. On 8 devices the optimizer finds a shorter period for that reason alone:
// with the bytes of the program it finds the program's.
func TestPipeDreamCutsOfResNet18(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "profiles", "testdata", "pipedream", "resnet18.graph.txt")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := profiles.ParseGraph(file, data)
	if err != nil {
		t.Fatal(err)
	}
	var program struct {
		Seconds float64      `json:"time_per_minibatch_s"`
		Stages  [][2]float64 `json:"stages"` // seconds, replicas
		States  [][3]float64 `json:"states"` // seconds, bytes of weights, bytes that pass to the states behind
	}
	if data, err = os.ReadFile(filepath.Join("testdata", "resnet18.json")); err == nil {
		err = json.Unmarshal(data, &program)
	}
	if err != nil {
		t.Fatal(err)
	}
	on := pipelinetest.WithLevels(pipeline.NoLimit, pipeline.Level{Devices: 8, Bandwidth: 3.125e9})
	states := g.States(mostStates)
	h := graphHierarchy(states)
	h.levels = levels(on)
	if own := h.solve(); !near(own, 0.03473944631111111) || own >= program.Seconds {
		t.Errorf("%v s, the program %v s", own, program.Seconds)
	}
	fewer := 0
	for i, s := range states {
		at := slices.IndexFunc(program.States, func(p [3]float64) bool {
			return near(p[0], s.Compute) && p[1] == float64(s.Weights) && p[2] >= h.output[i]
		})
		if at < 0 {
			t.Fatalf("the program has no state of %v s with %d bytes of weights and at least %d that pass", s.Compute, s.Weights, s.Output)
		}
		if program.States[at][2] > h.output[i] {
			fewer++
		}
		h.output[i] = program.States[at][2]
	}
	if len(states) != len(program.States) || fewer == 0 {
		t.Errorf("%d states, the program has %d; fewer bytes pass %d of them", len(states), len(program.States), fewer)
	}
	if got := h.solve(); math.Abs(got-program.Seconds) > 1e-9 {
		t.Errorf("with the program's bytes %v s, the program %v s", got, program.Seconds)
	}
	before := 0.0
	for i, s := range h.stages() {
		compute := h.compute[s.Last-1]
		if want := program.Stages[i]; math.Abs(compute-before-want[0]) > 1e-9 || len(s.Devices) != int(want[1]) {
			t.Errorf("stage %d takes %v s on %d devices, the program's %v", i, compute-before, len(s.Devices), want)
		}
		before = compute
	}
}
