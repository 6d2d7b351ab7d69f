package residency

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
)

// decoder is a language model of the given number of blocks, in bfloat16. It assumes a device of 400 TFLOP/s and 3 TB/s with a host of 150
// GB/s. Its sizes are the parameters of a block, the tokens of a microbatch, and the width of the residual stream. It is no measurement.
func decoder(blocks int, parameters, tokens, width float64) *chain.Chain {
	const flops, hostBytes = 400e12, 150e9
	c := &chain.Chain{Name: fmt.Sprintf("decoder-%d", blocks), InputBytes: int64(tokens * 4)}
	layer := func(name string, parameters, saved float64) chain.Layer {
		forward := 2 * parameters * tokens / flops
		host := parameters * 28 / hostBytes
		output := int64(tokens * width * 2)
		return chain.Layer{Name: name, ForwardS: forward, BackwardS: 2 * forward, OutputBytes: output, SavedBytes: int64(saved * float64(output)),
			GradientBytes: output, WeightBytes: int64(2 * parameters),
			Update: chain.Update{StateBytes: int64(12 * parameters), DeviceS: parameters * 30 / 3e12, HostS: &host}}
	}
	c.Layers = append(c.Layers, layer("embedding", 32000*width, 1))
	for b := range blocks {
		c.Layers = append(c.Layers, layer(fmt.Sprintf("block%d", b+1), parameters, 16))
	}
	head := layer("head", 32000*width, 2)
	head.GradientBytes = 0
	c.Layers = append(c.Layers, head)
	return c
}

// BenchmarkAuto plans decoders of a width of 4096 at several limits; the period is given beside that of the best named strategy.
func BenchmarkAuto(b *testing.B) {
	for _, size := range []struct{ blocks, microbatches int }{{32, 1}, {32, 8}, {98, 1}, {98, 8}, {161, 8}} {
		for _, limit := range []float64{16, 48} {
			b.Run(fmt.Sprintf("%d layers/%d microbatches/%g GB", size.blocks+2, size.microbatches, limit), func(b *testing.B) {
				r := Request{Chain: decoder(size.blocks, 200e6, 2048, 4096), Link: cycle.Link{ToDevice: 55e9, ToHost: 55e9, Duplex: true},
					Limits: cycle.Limits{Memory: int64(limit * 1e9), Host: cycle.NoLimit}, Microbatches: size.microbatches}
				var plan *Plan
				start := processorTime(b)
				for b.Loop() {
					var err error
					if plan, err = Solve(context.Background(), r); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((processorTime(b)-start).Seconds()/float64(b.N), "cpu-s")
				b.ReportMetric(plan.Result.Period, "s/period")
				b.ReportMetric(float64(plan.Evaluated), "sequences")
				b.ReportMetric(float64(len(plan.Sequence)), "items")
				low, err := Bound(r)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(100*bound.Gap(plan.Result.Period, low), "%gap")
				b.Logf("from %s; busy %.3f s; %s", plan.Strategy, plan.Result.Busy, namedPeriods(r))
			})
		}
	}
}

// BenchmarkGrowth plans decoders of more and more layers and microbatches, at 16 GB.
func BenchmarkGrowth(b *testing.B) {
	for _, layers := range []int{25, 50, 100, 163} {
		for _, microbatches := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("%d layers/%d microbatches", layers, microbatches), func(b *testing.B) {
				r := Request{Chain: decoder(layers-2, 200e6, 2048, 4096), Link: cycle.Link{ToDevice: 55e9, ToHost: 55e9, Duplex: true},
					Limits: cycle.Limits{Memory: 16e9, Host: cycle.NoLimit}, Microbatches: microbatches}
				start := processorTime(b)
				for b.Loop() {
					plan, err := Solve(context.Background(), r)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(plan.Evaluated), "sequences")
					b.ReportMetric(float64(len(plan.Sequence)), "items")
					b.ReportMetric(plan.Result.Period, "s/period")
				}
				b.ReportMetric((processorTime(b)-start).Seconds()/float64(b.N), "cpu-s")
			})
		}
	}
}

// BenchmarkContended plans 100 layers with 8 microbatches, of a chain whose ops, copies and updates on the host slow each other.
func BenchmarkContended(b *testing.B) {
	c := decoder(98, 200e6, 2048, 4096)
	ops, updates := 1.2, 1.5
	c.Bandwidth, c.OpsBesideHostUpdates, c.HostUpdatesBesideOps = 55e9, &ops, &updates
	c.CopiesBeside, c.HostUpdatesBeside, c.CopiesBesideHostUpdates = &chain.CopiesBeside{1.1, 1.1}, &chain.Beside{1.2, 1.3, 1.5}, &chain.CopiesBeside{1.3, 1.2}
	for i := range c.Layers {
		c.Layers[i].ForwardBeside, c.Layers[i].BackwardBeside = &chain.Beside{1.05, 1.1, 1.15}, &chain.Beside{1.05, 1.1, 1.15}
	}
	r := Request{Chain: c, Link: cycle.Link{ToDevice: 55e9, ToHost: 55e9, Duplex: true}, Limits: cycle.Limits{Memory: 16e9, Host: cycle.NoLimit}, Microbatches: 8}
	start := processorTime(b)
	for b.Loop() {
		plan, err := Solve(context.Background(), r)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(plan.Result.Period, "s/period")
		b.ReportMetric(float64(plan.Evaluated), "sequences")
	}
	b.ReportMetric((processorTime(b)-start).Seconds()/float64(b.N), "cpu-s")
}

// processorTime returns the time that the process has computed, which depends little on what else the machine does.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// namedPeriods lists the periods of the named strategies.
func namedPeriods(r Request) (text string) {
	for _, s := range named() {
		r.Strategy = s.Name
		if plan, err := Solve(context.Background(), r); err == nil {
			text += fmt.Sprintf("%s %.3f; ", s.Name, plan.Result.Period)
		} else {
			text += s.Name + " none; "
		}
	}
	return text
}
