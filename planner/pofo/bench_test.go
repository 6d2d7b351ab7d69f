package pofo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// deepChain returns a chain of n-1 layers and the loss with the shape of a ResNet of three groups. Each group halves the activation and has
// layers of nearly equal time. As in measured chains, no two times are equal.
func deepChain(n int) *chain.Chain {
	c := &chain.Chain{Name: fmt.Sprintf("deep%d", n), InputBytes: 4 * 3 * 224 * 224}
	for l := 1; l < n; l++ {
		group := 3 * (l - 1) / (n - 1)
		size := int64(4*64*56*56) >> group
		jitter := float64((l*7919)%1009) * 1e-6
		c.Layers = append(c.Layers, chain.Layer{
			Name: fmt.Sprintf("block%d", l), ForwardS: 1e-3 + jitter, BackwardS: 2e-3 + 2*jitter,
			OutputBytes: size, SavedBytes: 5 * size / 2, GradientBytes: size,
			ForwardOverheadBytes: size / 4, BackwardOverheadBytes: size / 2,
		})
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss", ForwardS: 1e-4, BackwardS: 1e-4, OutputBytes: 4, SavedBytes: 4004})
	return c
}

// BenchmarkPofo plans deep chains by their length, limit, bandwidth and N. At 375 MB/s the link moves a layer's saved set
// in about the time of four layers; the chain is compute bound at 1.5 GB/s.
func BenchmarkPofo(b *testing.B) {
	for _, k := range []struct {
		n, cells int
		percents []int64
	}{
		{28, 50, []int64{25}}, {56, 50, []int64{10, 25, 50}}, {84, 50, []int64{25}}, {111, 50, []int64{10, 25, 50}},
		{56, 25, []int64{25}}, {56, 100, []int64{25}}, {56, 200, []int64{25}},
	} {
		for _, percent := range k.percents {
			for _, bandwidth := range []float64{375e6, 750e6} {
				b.Run(fmt.Sprintf("L=%d/N=%d/memory=%d%%/MBps=%d", k.n-1, k.cells, percent, int(bandwidth/1e6)), func(b *testing.B) {
					bench(b, solvePofo, deepChain(k.n), k.cells, percent, bandwidth)
				})
			}
		}
	}
}

// transformer is a chain of n-1 layers, attention and feed-forward in turn, with times that differ by up to 5 %, and the loss.
func transformer(n int) *chain.Chain {
	const hidden = 16 << 20
	rnd := rand.New(rand.NewPCG(1, 77))
	c := &chain.Chain{Name: fmt.Sprintf("transformer%d", n), InputBytes: hidden / 2}
	for l := 1; l < n; l++ {
		longer := 1 + 0.05*rnd.Float64()
		x := chain.Layer{Name: fmt.Sprintf("feedforward%d", l), ForwardS: 5e-3 * longer, BackwardS: 10e-3 * longer,
			OutputBytes: hidden, SavedBytes: 9 * hidden, GradientBytes: hidden, BackwardOverheadBytes: 4 * hidden}
		if l%2 == 1 {
			x = chain.Layer{Name: fmt.Sprintf("attention%d", l), ForwardS: 3e-3 * longer, BackwardS: 6.5e-3 * longer,
				OutputBytes: hidden, SavedBytes: 6 * hidden, GradientBytes: hidden, ForwardOverheadBytes: hidden, BackwardOverheadBytes: 2 * hidden}
		}
		c.Layers = append(c.Layers, x)
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss", ForwardS: 1e-3, BackwardS: 1e-3, OutputBytes: 4, SavedBytes: hidden})
	return c
}

// uneven is a chain of n-1 layers of which no two are alike, and the loss.
func uneven(n int) *chain.Chain {
	rnd := rand.New(rand.NewPCG(1, 99))
	c := &chain.Chain{Name: fmt.Sprintf("uneven%d", n), InputBytes: 1 << 20}
	for l := 1; l < n; l++ {
		a := int64(1<<20) + rnd.Int64N(15<<20)
		forward := 1e-3 * (0.2 + rnd.Float64())
		c.Layers = append(c.Layers, chain.Layer{
			Name: fmt.Sprintf("layer%d", l), OutputBytes: a, GradientBytes: a, SavedBytes: a + rnd.Int64N(40<<20),
			ForwardS: forward, BackwardS: forward * (1.5 + rnd.Float64()),
			ForwardOverheadBytes: rnd.Int64N(4 << 20), BackwardOverheadBytes: rnd.Int64N(8 << 20),
		})
	}
	c.Layers = append(c.Layers, chain.Layer{Name: "loss", ForwardS: 1e-4, BackwardS: 1e-4, OutputBytes: 4, SavedBytes: 4004})
	return c
}

// BenchmarkSlowLink plans the hardest chains and limits that are known for their length: little memory, and links that move a part of
// what is saved in half a step.
func BenchmarkSlowLink(b *testing.B) {
	for _, layers := range []int{110, 171} {
		for _, c := range []*chain.Chain{transformer(layers + 1), uneven(layers + 1)} {
			saved, step := 0.0, 0.0
			for l := 1; l <= c.Len(); l++ {
				saved += float64(c.Saved(l))
				step += c.Layer(l).ForwardS + c.Layer(l).BackwardS
			}
			for _, percent := range []int64{8, 11, 15} {
				for _, part := range []float64{0.1, 0.2, 0.3} {
					b.Run(fmt.Sprintf("%s/memory=%d%%/link=%g", c.Name, percent, part), func(b *testing.B) {
						bench(b, solvePofo, c, DefaultCells, percent, part*saved/(step/2))
					})
				}
			}
		}
	}
}

// BenchmarkHeuristics plans a chain of 110 layers.
func BenchmarkHeuristics(b *testing.B) {
	for _, s := range Strategies()[:3] {
		b.Run(s.Name, func(b *testing.B) { bench(b, s.Solve, deepChain(111), 0, 25, 375e6) })
	}
}

func bench(b *testing.B, solve func(context.Context, strategy.Problem) (schedule.Sequence, error), c *chain.Chain, cells int, percent int64, bandwidth float64) {
	b.Helper()
	high, err := storeAllPeak(c)
	if err != nil {
		b.Fatal(err)
	}
	p := problem(c, high*percent/100, bandwidth)
	p.PofoSlots = cells
	b.ReportAllocs()
	begin := processorTime(b)
	for b.Loop() {
		if _, err := solve(context.Background(), p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processorTime(b)-begin).Seconds()*1e9/float64(b.N), "cpu-ns/op")
}

// processorTime returns the time that the process has had on all processors: unlike the time that passes, it says
// little about what else the machine does.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
