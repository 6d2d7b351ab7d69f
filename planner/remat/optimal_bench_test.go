package remat

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/strategy"
)

// limitsOf returns limits from the smallest of rotor-exact to just below store-all's peak.
func limitsOf(b *testing.B, c *chain.Chain) (limits []int64) {
	b.Helper()
	exact, _ := frontiers(b, c)
	least, all := exact.Breakpoints()[0].Memory, storeAllPeak(b, c)
	for _, percent := range []int64{0, 10, 25, 50, 75} {
		limits = append(limits, least+(all-least)*percent/100)
	}
	return limits
}

// BenchmarkBranchAndBound proves optima of chains of 5 to 14 layers and the loss, at five limits each, beside rotor-exact at the same
// limits. States are those that the search keeps, the most and the mean of the limits.
func BenchmarkBranchAndBound(b *testing.B) {
	for _, kind := range []struct {
		name string
		of   func(n int) *chain.Chain
	}{
		{"deep", deepChain},
		{"random", func(n int) *chain.Chain { return anyChain(rand.New(rand.NewPCG(uint64(n), 49)), n, 2) }},
	} {
		for n := 6; n <= 15; n++ {
			c := kind.of(n)
			limits := limitsOf(b, c)
			b.Run(fmt.Sprintf("%s/L=%d", kind.name, n-1), func(b *testing.B) {
				sum, most := 0, 0
				for b.Loop() {
					sum, most = 0, 0
					for _, memory := range limits {
						if _, f := wholeSearch(b, c, memory, 1<<23); !f.optimal() {
							b.Fatalf("at %d: not proved with %d states", memory, f.nodes)
						} else {
							sum, most = sum+f.nodes, max(most, f.nodes)
						}
					}
				}
				b.ReportMetric(float64(sum)/float64(len(limits)), "states")
				b.ReportMetric(float64(most), "most-states")
			})
			b.Run(fmt.Sprintf("%s/L=%d/rotor-exact", kind.name, n-1), func(b *testing.B) {
				for b.Loop() {
					for _, memory := range limits {
						if _, err := rotorExact.solve(b.Context(), strategy.Problem{Chain: c, Memory: memory}); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// BenchmarkGeneralOptimum reports by how much, in per cent, the optimum of all sequences is faster than the optima of persistent and of
// floating ones. The chains are random, or real ones in groups of layers and cut after their first layers.
func BenchmarkGeneralOptimum(b *testing.B) {
	rng := rand.New(rand.NewPCG(50, 51))
	var theorems, wild, real []*chain.Chain
	for i := range 500 {
		theorems = append(theorems, randomChain(rng, 4+rng.IntN(7), i%2 == 1))
		wild = append(wild, anyChain(rng, 4+rng.IntN(7), 2))
	}
	for _, c := range profiles(b) {
		for n := 6; n <= min(13, c.Len()); n++ {
			grouped, err := chain.GroupEvery(c, (c.Len()+n-3)/(n-2))
			if err != nil {
				b.Fatal(err)
			}
			cut := *c
			cut.Layers = append(append([]chain.Layer{}, c.Layers[:n-1]...), c.Layers[c.Len()-1])
			real = append(real, grouped, &cut)
		}
	}
	for _, k := range []struct {
		name   string
		chains []*chain.Chain
	}{{"random, gradients as outputs", theorems}, {"random, any gradients", wild}, {"real", real}} {
		b.Run(k.name, func(b *testing.B) {
			var g gains
			for b.Loop() {
				g = gains{}
				for _, c := range k.chains {
					g.add(b, c)
				}
			}
			g.report(b)
		})
	}
}

// gains counts limits, those at which the general optimum is faster than others, and by how much, in per cent.
type gains struct {
	limits            int
	faster, sum, most [2]float64 // than rotor-exact and rotor-floating
	proved            int
}

func (g *gains) add(b *testing.B, c *chain.Chain) {
	exact, floating := frontiers(b, c)
	for _, memory := range limitsOf(b, c) {
		_, best, bound := proved(b, strategy.Problem{Chain: c, Memory: memory})
		g.limits++
		if best <= bound*(1+1e-9) {
			g.proved++
		}
		for i, f := range []*Frontier{exact, floating} {
			other, err := f.makespan(memory)
			if err != nil {
				b.Fatal(err)
			}
			if best < other*(1-1e-9) {
				gain := 100 * (other/best - 1)
				g.faster[i]++
				g.sum[i] += gain
				g.most[i] = max(g.most[i], gain)
			}
		}
	}
}

func (g *gains) report(b *testing.B) {
	b.ReportMetric(float64(g.limits), "limits")
	b.ReportMetric(float64(g.proved), "proved")
	for i, name := range []string{"exact", "floating"} {
		b.ReportMetric(g.faster[i], "faster-than-"+name)
		b.ReportMetric(g.sum[i]/float64(g.limits), "mean-%-"+name)
		b.ReportMetric(g.most[i], "most-%-"+name)
	}
}
