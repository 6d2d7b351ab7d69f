package partition

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

// heavy returns a layer of one second with weights that are not worth another replica.
func heavy() chain.Layer {
	return chain.Layer{Name: "heavy", ForwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1, WeightBytes: 1e12}
}

// The chain has layers of 2, 3, 5, ... seconds between heavy ones of one second. PipeDream gives each light layer as many replicas as it
// takes seconds. All replicas would have had their turns only after 223 million minibatches.
func TestPipeDreamWithTooManyTurns(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "primes"}
	devices := -1
	for _, seconds := range []int{2, 3, 5, 7, 11, 13, 17, 19, 23} {
		if devices++; devices > 0 {
			c.Layers = append(c.Layers, heavy())
		}
		c.Layers = append(c.Layers, chain.Layer{Name: "light", ForwardS: float64(seconds)})
		devices += seconds
	}
	r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(devices, pipeline.NoLimit, 1e9)}
	if _, err := solve("pipedream", r); !errors.Is(err, periodic.ErrStages) || !strings.Contains(err.Error(), "[1 2 3 5 7 11 13 17 19 23]") {
		t.Errorf("%v", err)
	}
}

// Devices 0 and 1 are joined only through device 2: those who look at links avoid the pair, the others name it.
func TestNoLinkBetweenNeighbours(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "3", Layers: []chain.Layer{heavy(), heavy(), heavy()}}
	p := pipeline.NewPlatform(3, pipeline.NoLimit, 0)
	p.Pairs = map[[2]int]float64{{0, 2}: 1e9, {1, 2}: 1e9}
	for _, s := range Strategies() {
		plan, err := s.Solve(context.Background(), pipeline.Request{Chain: c, Platform: p})
		if s.Name == "contiguous" {
			if err != nil || len(plan.Stages) != 2 {
				t.Errorf("contiguous: %v, %v", plan, err)
			}
		} else if !errors.Is(err, pipeline.ErrPlatform) || !strings.Contains(err.Error(), "devices 0 and 1") {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

// The number of devices that contiguous asks for is the first at which it has a plan.
func TestEnoughDevices(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(31, 5))
	named, none := 0, 0
	for range 1500 {
		r := request(rng)
		var small *pipeline.InfeasibleError
		if _, err := solve("contiguous", r); !r.Platform.Uniform() || !errors.As(err, &small) {
			continue
		}
		want := 0
		for devices := r.Platform.Devices + 1; devices <= r.Chain.Len() && want == 0; devices++ {
			more := r
			more.Platform = pipeline.NewPlatform(devices, r.Platform.Smallest(), pipeline.Free())
			more.Platform.NoBuffers = r.Platform.NoBuffers
			if _, err := solve("contiguous", more); err == nil {
				want = devices
			}
		}
		if small.Devices != want {
			t.Errorf("%v: want %d devices", small, want)
		}
		if want > 0 {
			named++
		} else {
			none++
		}
	}
	if named < 20 || none < 20 {
		t.Fatalf("%d refusals named a number, %d did not", named, none)
	}
}

// A long chain of which every layer needs a device of its own; and a search that is cancelled among so many devices.
func TestEnoughDevicesOfLongChain(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "long"}
	for range 300 {
		c.Layers = append(c.Layers, chain.Layer{Name: "layer", ForwardS: 1, WeightBytes: 1})
	}
	r := pipeline.Request{Chain: c, Platform: pipeline.NewPlatform(2, 3, pipeline.Free())}
	var small *pipeline.InfeasibleError
	if _, err := solve("contiguous", r); !errors.As(err, &small) || small.Devices != 300 || small.Smallest != 450 {
		t.Errorf("%v; want 300 devices", err)
	}
	ctx := &cancelling{Context: context.Background(), left: 100}
	if _, err := solveContiguous(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// cancelling is a context that is cancelled after it was looked at so often.
type cancelling struct {
	context.Context
	left int
}

func (c *cancelling) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}
