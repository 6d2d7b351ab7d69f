package cycle_test

import (
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
)

// A layer of 4 bytes of weights that are on the device for a part of each step, and updated by the host.
func ExampleSimulate() {
	host := 2.0
	c := &chain.Chain{InputBytes: 1, Layers: []chain.Layer{
		{Name: "dense", ForwardS: 2, BackwardS: 3, OutputBytes: 2, SavedBytes: 2, GradientBytes: 2, WeightBytes: 4,
			Update: chain.Update{StateBytes: 6, HostS: &host}},
		{Name: "loss", ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1},
	}}
	seq, err := cycle.Parse("Pw1 Fall1 Fall2 B2 B1 Dw1 Og1 H1")
	if err != nil {
		fmt.Println(err)
		return
	}
	link := cycle.Link{ToDevice: 1, ToHost: 1, Duplex: true}
	r, err := cycle.Simulate(c, seq, link, cycle.Limits{Memory: cycle.NoLimit, Host: cycle.NoLimit})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%g s a step, %d B on the device, %d B on the host\n", r.Period, r.Peak, r.HostPeak)
	_, err = cycle.Simulate(c, seq, link, cycle.Limits{Memory: 13, Host: cycle.NoLimit})
	fmt.Println(err)
	// Output:
	// 17 s a step, 14 B on the device, 14 B on the host
	// op 4 (B1) of step 0 can never start: it needs 5 B with 9 B in use, 14 B together, and the limit is 13 B
}
