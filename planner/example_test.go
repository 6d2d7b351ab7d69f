package planner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plimsoll/planner"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// example is the chain of docs/chain.json: three layers and a loss.
func example() *chain.Chain {
	layer := chain.Layer{
		ForwardS: 1, BackwardS: 2, OutputBytes: 100, SavedBytes: 300, GradientBytes: 100,
		ForwardOverheadBytes: 20, BackwardOverheadBytes: 40,
	}
	loss := chain.Layer{Name: "loss", ForwardS: 0.5, BackwardS: 0.5, OutputBytes: 10, SavedBytes: 60, GradientBytes: 10}
	return &chain.Chain{Name: "example", InputBytes: 100, Layers: []chain.Layer{layer, layer, layer, loss}}
}

// The planner takes costs and returns a plan: no model, no device. The plan shows the ops that the fastest step within 744 bytes computes
// again.
func Example() {
	s, err := planner.Lookup("rotor-exact")
	if err != nil {
		panic(err)
	}
	p, err := s.Solve(context.Background(), strategy.Problem{Chain: example(), Memory: 744}.Request())
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Sequence())
	fmt.Println(p.Predicted.Makespan, "s,", p.Peak(), "bytes")
	for _, op := range p.Sequence()[:2] {
		fmt.Println(op.Kind, op.Layer)
	}
	// Output:
	// Fck1 F2 Fall3 Fall4 B4 B3 Fck1 Fall2 B2 Fall1 B1
	// 13 s, 740 bytes
	// forward_checkpoint 1
	// forward_discard 2
}

// A limit that is too small is an error that knows the smallest one that works, and what needs it.
func Example_tooSmall() {
	s, err := planner.Lookup("rotor-exact")
	if err != nil {
		panic(err)
	}
	_, err = s.Solve(context.Background(), strategy.Problem{Chain: example(), Memory: 500}.Request())
	var small *pipeline.InfeasibleError
	if errors.As(err, &small) {
		fmt.Println("give", small.Smallest, "bytes, for", small.Op)
	}
	// Output: give 740 bytes, for B3
}

// A chain file is read with the defaults of docs/formats.md filled in; with a link, plans may move activations to host memory, too.
func Example_link() {
	c, err := chain.Decode(strings.NewReader(`{"format":"plimsoll.chain/v1","name":"two","input_bytes":100,"layers":[
		{"forward_s":1,"backward_s":2,"output_bytes":100,"saved_bytes":300},
		{"forward_s":1,"backward_s":2,"output_bytes":100,"saved_bytes":300},
		{"forward_s":0.5,"backward_s":0.5,"output_bytes":10}]}`))
	if err != nil {
		panic(err)
	}
	s, err := planner.Lookup("pofo")
	if err != nil {
		panic(err)
	}
	p, err := s.Solve(context.Background(), strategy.Problem{Chain: c, Memory: 600, Link: schedule.Link{Bandwidth: 200}}.Request())
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Sequence())
	fmt.Printf("%g s\n", p.Predicted.Makespan)
	// Output:
	// O1 Fck1 Fall2 Fall3 B3 B2 P1 Fall1 B1
	// 8.5 s
}

// Several devices: a strategy cuts the chain into stages and says when every task runs; pipeline.Check judges any such plan.
func ExampleLookupPipeline() {
	s, err := planner.LookupPipeline("1f1b-flush")
	if err != nil {
		panic(err)
	}
	r := pipeline.Request{Chain: example(), Platform: pipeline.NewPlatform(2, pipeline.NoLimit, 1000)}
	r.Microbatches = 4
	plan, err := s.Solve(context.Background(), r)
	if err != nil {
		panic(err)
	}
	report, err := pipeline.Check(r.Chain, r.Platform, plan)
	if err != nil {
		panic(err)
	}
	for i, st := range plan.Stages {
		fmt.Printf("stage %d: layers %d to %d on device %d, busy %g s\n", i, st.First, st.Last, st.Devices[0], report.PerDeviceBusy[st.Devices[0]])
	}
	fmt.Printf("%.1f s, %d tasks\n", report.Makespan, len(plan.Tasks))
	// Output:
	// stage 0: layers 1 to 2 on device 0, busy 24 s
	// stage 1: layers 3 to 4 on device 1, busy 16 s
	// 26.4 s, 24 tasks
}
