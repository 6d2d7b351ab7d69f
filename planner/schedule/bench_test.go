package schedule

import (
	"fmt"
	"testing"

	"plimsoll/planner/chain"
)

// benchChain has n layers with the loss, all alike.
func benchChain(n int) *chain.Chain {
	c := &chain.Chain{Name: "bench", InputBytes: 100}
	for range n {
		c.Layers = append(c.Layers, chain.Layer{
			ForwardS: 1, BackwardS: 2, OutputBytes: 100, SavedBytes: 250, GradientBytes: 100,
			ForwardOverheadBytes: 10, BackwardOverheadBytes: 20,
		})
	}
	return c
}

// storeAll is every forward_all, then every backward; with transfers every second input goes to the host and back.
func storeAll(n int, transfers bool) (seq Sequence) {
	for l := 1; l <= n; l++ {
		if transfers && l%2 == 1 {
			seq = append(seq, Op{Offload, l})
		}
		seq = append(seq, Op{ForwardAll, l})
	}
	for l := n; l >= 1; l-- {
		if transfers && l%2 == 1 {
			seq = append(seq, Op{Prefetch, l})
		}
		seq = append(seq, Op{Backward, l})
	}
	return seq
}

// BenchmarkSimulate runs a Simulator, as the search loops do; ns/op is also given per op of the sequence.
func BenchmarkSimulate(b *testing.B) {
	for _, n := range []int{20, 340} {
		for _, link := range []Link{{}, {Bandwidth: 50}, {Bandwidth: 50, Duplex: true}} {
			name := "compute"
			if link.Bandwidth > 0 {
				name = map[bool]string{false: "transfers", true: "duplex"}[link.Duplex]
			}
			c, seq := benchChain(n), storeAll(n, link.Bandwidth > 0)
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) { benchmarkSimulate(b, c, seq, link) })
			if link.Duplex {
				contend(c)
				b.Run(fmt.Sprintf("contended/n=%d", n), func(b *testing.B) { benchmarkSimulate(b, c, seq, link) })
			}
		}
	}
}

func benchmarkSimulate(b *testing.B, c *chain.Chain, seq Sequence, link Link) {
	s, err := NewSimulator(c)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(seq, Limits{Memory: NoLimit, Link: link}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(seq)), "ns/seqop")
}

// contend makes ops and copies slow each other, as measured over a link twice as fast.
func contend(c *chain.Chain) {
	c.Bandwidth, c.CopiesBeside = 100, &chain.CopiesBeside{2.5, 3}
	for i := range c.Layers {
		c.Layers[i].ForwardBeside, c.Layers[i].BackwardBeside = &chain.Beside{1.1, 1.2, 1.3}, &chain.Beside{1.2, 1.3, 1.4}
	}
}

// BenchmarkVerify replays the rules alone.
func BenchmarkVerify(b *testing.B) {
	c, seq := benchChain(340), storeAll(340, true)
	b.ReportAllocs()
	for b.Loop() {
		if err := Verify(c, seq); err != nil {
			b.Fatal(err)
		}
	}
}
