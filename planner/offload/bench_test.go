package offload

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
)

// deepChain is a chain of n-1 layers and the loss with the shape of a ResNet of three groups. Each group halves the
// activation. Its layers have nearly equal times and sizes, as measured: no two are equal.
func deepChain(n int) *chain.Chain {
	c := &chain.Chain{Name: fmt.Sprintf("deep%d", n), InputBytes: 4 * 3 * 224 * 224}
	for l := 1; l < n; l++ {
		group := 3 * (l - 1) / (n - 1)
		size := int64(4*64*56*56) >> group
		jitter := float64((l*7919)%1009) * 1e-6
		c.Layers = append(c.Layers, chain.Layer{
			Name: fmt.Sprintf("block%d", l), ForwardS: 1e-3 + jitter, BackwardS: 2e-3 + 2*jitter,
			OutputBytes: size, SavedBytes: 5*size/2 + size*int64((l*104729)%211)/400, GradientBytes: size,
			ForwardOverheadBytes: size / 4, BackwardOverheadBytes: size / 2,
		})
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss", ForwardS: 1e-4, BackwardS: 1e-4, OutputBytes: 4, SavedBytes: 4004})
	return c
}

// benchShares are parts of the way from the smallest limit of a chain to its peak, in per cent. The bandwidths are
// benchRatios: a link of 1 just carries every activation out and back while the step computes.
var (
	benchShares = []int64{0, 25, 50, 75}
	benchRatios = []float64{0.5, 1, 2}
)

// BenchmarkDynprog shows how offload-dynprog grows with the chain and with N. Each op of the benchmark plans for all
// limits and bandwidths. The metrics are the slowest of these plans, in time and in processor time. Processor time
// depends little on the machine's other work.
func BenchmarkDynprog(b *testing.B) {
	for _, n := range []int{28, 56, 111, 221, 340} {
		for _, cells := range []int{50, 500, 2000} {
			if cells > DefaultCells && n > 111 {
				continue
			}
			b.Run(fmt.Sprintf("L=%d/N=%d", n-1, cells), func(b *testing.B) { worst(b, deepChain(n), "offload-dynprog", cells) })
		}
	}
}

// BenchmarkHeuristics does the same for the others.
func BenchmarkHeuristics(b *testing.B) {
	for _, n := range []int{56, 111, 340} {
		for _, s := range Strategies() {
			if s.Name != "offload-dynprog" {
				b.Run(fmt.Sprintf("%s/L=%d", s.Name, n-1), func(b *testing.B) { worst(b, deepChain(n), s.Name, 0) })
			}
		}
	}
}

// BenchmarkProfiles plans the real chains of the shared folder.
func BenchmarkProfiles(b *testing.B) {
	for _, name := range []string{"resnet50", "vgg16", "resnext50", "gnmt"} {
		c, err := chain.Read(shared.Chains(b, name+".json"))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) { worst(b, c, "offload-dynprog", 0) })
	}
}

// worst runs a strategy over limits and bandwidths; limits that tflms refuses count as well.
func worst(b *testing.B, c *chain.Chain, name string, cells int) {
	smallest, peak := limitsOf(b, c)
	k, err := newCosts(problem(c, 0, 1, false))
	if err != nil {
		b.Fatal(err)
	}
	step := 2 * k.below[k.n] / k.busy() // the bandwidth that just carries everything out and back
	slowest, busiest := 0.0, time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		for _, share := range benchShares {
			for _, ratio := range benchRatios {
				p := problem(c, smallest+(peak-smallest)*share/100, ratio*step, false)
				p.Slots = cells
				begin, cpu := b.Elapsed(), processorTime(b)
				if _, err := named(b, name).Solve(context.Background(), p); err != nil && name != "tflms" {
					b.Fatal(err)
				}
				slowest, busiest = max(slowest, (b.Elapsed()-begin).Seconds()), max(busiest, processorTime(b)-cpu)
			}
		}
	}
	b.ReportMetric(slowest*1e3, "slowest-ms")
	b.ReportMetric(busiest.Seconds()*1e3, "slowest-cpu-ms")
}

// processorTime returns the time that the process has had on all processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
