package cycle

import (
	"fmt"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// streamed returns a chain of equal layers with a plan of the given number of microbatches. The plan keeps the weights of two layers on the
// device at a time. The host updates every second layer. The device updates the others, whose state comes and goes.
func streamed(layers, microbatches int) (*chain.Chain, Sequence) {
	c := &chain.Chain{Name: "bench", InputBytes: 100}
	host := 1.5
	for range layers {
		c.Layers = append(c.Layers, chain.Layer{ForwardS: 1, BackwardS: 2, OutputBytes: 100, SavedBytes: 250, GradientBytes: 100,
			WeightBytes: 400, Update: chain.Update{StateBytes: 800, DeviceS: 0.25, HostS: &host}})
	}
	var seq Sequence
	add := func(kind schedule.Kind, layer int) { seq = append(seq, Op{Kind: kind, Layer: layer}) }
	for m := 1; m <= microbatches; m++ {
		for l := 1; l <= layers; l++ {
			add(schedule.FetchWeights, l)
			seq = append(seq, Op{Kind: schedule.ForwardAll, Layer: l, Microbatch: m})
			add(schedule.DropWeights, l)
		}
		for l := layers; l >= 1; l-- {
			add(schedule.FetchWeights, l)
			seq = append(seq, Op{Kind: schedule.Backward, Layer: l, Microbatch: m})
			if m == microbatches {
				seq = append(seq, lastOps(l)...)
			} else {
				add(schedule.DropWeights, l)
			}
		}
	}
	return c, seq
}

// lastOps updates a layer behind its last backward.
func lastOps(l int) (seq Sequence) {
	kinds := []schedule.Kind{schedule.DropWeights, schedule.OffloadGradient, schedule.HostUpdate}
	if l%2 == 0 {
		kinds = []schedule.Kind{schedule.FetchState, schedule.Update, schedule.WriteState, schedule.DropState, schedule.WriteWeights, schedule.DropWeights}
	}
	for _, kind := range kinds {
		seq = append(seq, Op{Kind: kind, Layer: l})
	}
	return seq
}

// BenchmarkSimulate runs a Simulator as the search loops do; ns/op is also given per op of the sequence, and grows by little with it.
func BenchmarkSimulate(b *testing.B) {
	for _, size := range [][2]int{{10, 1}, {100, 1}, {100, 8}, {163, 8}} {
		c, seq := streamed(size[0], size[1])
		s, err := NewSimulator(c, Link{ToDevice: 500, ToHost: 500, Duplex: true})
		if err != nil {
			b.Fatal(err)
		}
		free, err := s.Run(seq, Limits{Memory: NoLimit, Host: NoLimit})
		if err != nil {
			b.Fatal(err)
		}
		for name, memory := range map[string]int64{"no limit": NoLimit, "limit": free.InOrderPeak} {
			b.Run(fmt.Sprintf("%d layers/%d microbatches/%s", size[0], size[1], name), func(b *testing.B) {
				steps := 0
				for b.Loop() {
					r, err := s.Run(seq, Limits{Memory: memory, Host: NoLimit})
					if err != nil {
						b.Fatal(err)
					}
					steps = r.WarmUp + r.Repeats
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(seq)), "ns/item")
				b.ReportMetric(float64(len(seq)), "items")
				b.ReportMetric(float64(steps), "steps")
			})
		}
	}
}

// BenchmarkNewSimulator prepares the times of a chain.
func BenchmarkNewSimulator(b *testing.B) {
	c, _ := streamed(100, 1)
	for b.Loop() {
		if _, err := NewSimulator(c, Link{ToDevice: 3e9, ToHost: 7e9, Duplex: true}); err != nil {
			b.Fatal(err)
		}
	}
}
