package remat

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"plimsoll/internal/shared"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// deepChain is a chain of n-1 layers and the loss with the shape of a ResNet of three groups. Each group halves the activation and has
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

// storeAllPeak returns the largest limit that is of use.
func storeAllPeak(tb testing.TB, c *chain.Chain) int64 {
	tb.Helper()
	r, err := schedule.Simulate(c, StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		tb.Fatal(err)
	}
	return r.Peak
}

// BenchmarkRotor plans with 500 slots: L = 339 is ResNet-1001 as a chain, the longest of the thesis.
func BenchmarkRotor(b *testing.B) {
	for _, n := range []int{56, 340} {
		c := deepChain(n)
		peak := storeAllPeak(b, c)
		for _, percent := range []int64{10, 25, 50, 75, 100} {
			b.Run(fmt.Sprintf("L=%d/memory=%d%%", n-1, percent), func(b *testing.B) {
				p := strategy.Problem{Chain: c, Memory: peak * percent / 100}
				measure(b, func() error {
					_, err := solveRotor(context.Background(), p)
					return err
				})
			})
		}
	}
}

// BenchmarkFrontier computes whole frontiers, all limits at once, of the real chains and of deep ones.
func BenchmarkFrontier(b *testing.B) {
	type frontier func(context.Context, *chain.Chain) (*Frontier, error)
	for _, k := range []struct {
		strategy string
		of       frontier
		chains   []*chain.Chain
	}{
		{"rotor-exact", Exact, append(profiles(b), deepChain(30), deepChain(56), deepChain(110), deepChain(340))},
		{"rotor-floating", Floating, append(profiles(b), deepChain(30), deepChain(maxFloating))},
		{"revolve", Revolve, append(profiles(b), deepChain(56))},
	} {
		for _, c := range k.chains {
			b.Run(k.strategy+"/"+c.Name, func(b *testing.B) {
				var f *Frontier
				measure(b, func() (err error) {
					f, err = k.of(context.Background(), c)
					return err
				})
				b.ReportMetric(float64(len(f.Breakpoints())), "steps")
			})
		}
	}
}

// measure runs a benchmark's loop and adds the processor time to its report.
func measure(b *testing.B, run func() error) {
	b.Helper()
	b.ReportAllocs()
	begin := processorTime(b)
	for b.Loop() {
		if err := run(); err != nil {
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

// profiles returns the chains of docs.
func profiles(tb testing.TB) (chains []*chain.Chain) {
	tb.Helper()
	for _, name := range []string{"resnet50", "vgg16", "resnext50", "gnmt"} {
		c, err := chain.Read(shared.Chains(tb, name+".json"))
		if err != nil {
			tb.Fatal(err)
		}
		chains = append(chains, c)
	}
	return chains
}
