package residency_test

import (
	"context"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
	"plimsoll/planner/residency"
)

// Two dense layers and a loss in 50 B.
func ExampleSolve() {
	host := 2.0
	c := &chain.Chain{InputBytes: 1}
	for _, name := range []string{"dense1", "dense2"} {
		c.Layers = append(c.Layers, chain.Layer{Name: name, ForwardS: 2, BackwardS: 4, OutputBytes: 2, SavedBytes: 2, GradientBytes: 2,
			WeightBytes: 10, Update: chain.Update{StateBytes: 20, DeviceS: 0.5, HostS: &host}})
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1})
	request := residency.Request{Chain: c, Link: cycle.Link{ToDevice: 10, ToHost: 10, Duplex: true},
		Limits: cycle.Limits{Memory: 50, Host: cycle.NoLimit}}
	plan, err := residency.Solve(context.Background(), request)
	if err != nil {
		fmt.Println(err)
		return
	}
	bound, err := residency.Bound(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%g s a step, at least %.3g s; %d B on the device, %d B on the host\n",
		plan.Result.Period, bound, plan.Result.Peak, plan.Result.HostPeak)
	// Output: 15.5 s a step, at least 14.5 s; 49 B on the device, 50 B on the host
}
