package pipeline_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
)

// The host updates a layer at a time, as gradients come. Two devices have two layers each, whose copies take a second, and measure the norm of
// theirs in a second. With updates of 0.1 s the link is the longest way: 2 s for gradients, then 2 s for weights where it has one direction.
// A link of two begins to bring weights back when the first update is made.
//
//	host updates of 0.1 s, duplex   gradients 1-3, updates 2-2.1, 2.1-2.2, 3-3.1, 3.1-3.2, weights of device 1 2.2-3.2, 3.2-4.2
//	of 3 s                          updates 2-14, the last weights 14-15
func TestUpdatesOnTheHost(t *testing.T) {
	t.Parallel()
	k := threeReplicas()
	k.Chain.Layers = append(k.Chain.Layers, layer(1, 2, 1, 0))
	short, long := 0.1, 3.0
	for i := range k.Chain.Layers {
		k.Chain.Layers[i].WeightBytes = 4
		k.Chain.Layers[i].Update.DeviceS, k.Chain.Layers[i].Update.NormS = 9, 0.5
	}
	k.Platform = pipeline.NewPlatform(2, pipeline.NoLimit, 4)
	k.Platform.Host = 4
	k.Plan.Stages = []pipeline.Stage{{First: 1, Last: 2, Devices: []int{0}}, {First: 3, Last: 4, Devices: []int{1}}}
	k.Plan.HostState = true
	for _, x := range []struct {
		update  *float64
		duplex  bool
		seconds float64
	}{{&short, false, 5}, {&short, true, 4.2}, {&long, false, 15}, {&long, true, 15}} {
		k.Platform.Duplex = x.duplex
		for i := range k.Chain.Layers {
			k.Chain.Layers[i].Update.HostS = x.update
		}
		if got := pipeline.UpdateSeconds(k.Chain, k.Platform, k.Plan); math.Abs(got-x.seconds) > 1e-9 {
			t.Errorf("updates of %g s, duplex %v: %g s, want %g", *x.update, x.duplex, got, x.seconds)
		}
	}
	k.Platform.Host = 0
	if got := pipeline.UpdateSeconds(k.Chain, k.Platform, k.Plan); got != 13 {
		t.Errorf("copies in no time: %g s", got)
	}
}

// State on the host is refused where it is not updated once for all, or where the host has no time for a layer, and the error says why.
func TestRefusedHostState(t *testing.T) {
	t.Parallel()
	for reason, change := range map[string]func(*pipeline.Plan, *float64){
		`field "host_state" is true: the host updates plans with a flush, and field "weight_versions" is "stash"`: func(p *pipeline.Plan, _ *float64) {
			p.Versions, p.Period, p.MinibatchesPerPeriod = pipeline.Stash, 100, 3
		},
		`the host cannot update layer 1 (layer), which lacks field "host_update_s"`: func(_ *pipeline.Plan, device *float64) { *device = 1 },
	} {
		k := threeReplicas()
		k.Plan.HostState = true
		change(k.Plan, &k.Chain.Layers[0].Update.DeviceS)
		if _, err := pipeline.Finish("test", pipeline.Request{Chain: k.Chain, Platform: k.Platform}, k.Plan); !errors.Is(err, pipeline.ErrPlan) || strings.Contains(err.Error(), "BUG") || !strings.Contains(err.Error(), reason) {
			t.Errorf("finished: %v, want %q", err, reason)
		}
		if _, err := pipeline.Check(k.Chain, k.Platform, k.Plan); err == nil || !errors.Is(err, pipeline.ErrInvalid) && !errors.Is(err, pipeline.ErrPlan) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %q", err, reason)
		}
	}
}
