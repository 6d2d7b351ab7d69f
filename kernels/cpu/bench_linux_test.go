package cpu

import (
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

var started = time.Now()

func wallClock() time.Duration { return time.Since(started) }

// threadClock is the processor time of this thread, which other programs on the machine do not add to.
func threadClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return wallClock()
	}
	return time.Duration(t.Nano())
}

// benchmarkCall reports the speed of a call and its share of the peak of all its threads.
func benchmarkCall(b *testing.B, path Path, threads int, c kernels.Call, operations float64) {
	l := newLibrary(b, path, threads)
	r := newRig(b, l, c, nil)
	r.fill(randomInputs(rand.New(rand.NewPCG(1, 1)), c))
	w := r.prepare(b, l)
	clock := wallClock
	if threads == 1 {
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		clock = threadClock
	}
	best := time.Duration(1 << 62)
	for b.Loop() {
		start := clock()
		if err := w.Run(); err != nil {
			b.Fatal(err)
		}
		best = min(best, clock()-start)
	}
	rate := operations / best.Seconds()
	b.ReportMetric(rate/1e9, "best-GFLOP/s")
	b.ReportMetric(100*rate/(Peak(path)*float64(threads)), "%peak")
	b.ReportMetric(float64(best.Microseconds()), "best-us")
}

// BenchmarkGEMM is a square product (a Linear without bias).
func BenchmarkGEMM(b *testing.B) {
	for _, path := range Paths() {
		for _, threads := range []int{1, 2} {
			for _, n := range []int{256, 512, 1024, 2048} {
				b.Run(fmt.Sprintf("%v/threads=%d/n=%d", path, threads, n), func(b *testing.B) {
					c := kernels.Call{Op: kernels.Linear{Out: n}, In: []kernels.Desc{kernels.F32(n, n)}}
					benchmarkCall(b, path, threads, c, 2*float64(n)*float64(n)*float64(n))
				})
			}
		}
	}
}

// resnetConvs are convolutions of ResNet-50 at 224x224, and of ResNet-20 and its like at 32x32: channels in, out, kernel, stride, image.
var resnetConvs = []struct{ in, out, kernel, stride, size int }{
	{3, 64, 7, 2, 224},
	{64, 64, 1, 1, 56}, {64, 64, 3, 1, 56}, {64, 256, 1, 1, 56}, {256, 64, 1, 1, 56},
	{256, 128, 1, 1, 56}, {128, 128, 3, 2, 56}, {128, 128, 3, 1, 28}, {128, 512, 1, 1, 28}, {512, 128, 1, 1, 28},
	{256, 512, 1, 2, 56}, {256, 256, 3, 2, 28}, {256, 256, 3, 1, 14}, {256, 1024, 1, 1, 14}, {1024, 256, 1, 1, 14},
	{512, 512, 3, 2, 14}, {512, 512, 3, 1, 7}, {512, 2048, 1, 1, 7}, {2048, 512, 1, 1, 7},
	{3, 16, 3, 1, 32}, {16, 16, 3, 1, 32}, {32, 32, 3, 1, 16}, {64, 64, 3, 1, 8},
}

// BenchmarkConv runs convolutions of ResNets, batch 8, in all passes.
func BenchmarkConv(b *testing.B) {
	for _, s := range resnetConvs {
		op := kernels.Conv2D{Out: s.out, KernelH: s.kernel, KernelW: s.kernel, StrideH: s.stride, StrideW: s.stride, PadH: s.kernel / 2, PadW: s.kernel / 2}
		in := []kernels.Desc{kernels.F32(8, s.size, s.size, s.in)}
		y, err := op.Infer(in)
		if err != nil {
			b.Fatal(err)
		}
		operations := 2 * float64(y.Elements()) * float64(s.kernel*s.kernel*s.in)
		for _, pass := range []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%dx%d/%d-%d/k%ds%d/%v/threads=%d", s.size, s.size, s.in, s.out, s.kernel, s.stride, pass, threads), func(b *testing.B) {
					benchmarkCall(b, fastest(), threads, kernels.Call{Op: op, In: in, Train: true, Pass: pass}, operations)
				})
			}
		}
	}
}

// BenchmarkStream runs the ops that are bound by memory; operations are bytes read and written, so GFLOP/s is GB/s.
func BenchmarkStream(b *testing.B) {
	x := kernels.F32(8, 56, 56, 256)
	bytes := float64(x.Bytes())
	calls := []struct {
		name string
		call kernels.Call
		runs float64 // tensors read and written
	}{
		{"relu", kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{x}}, 2},
		{"batchnorm+relu", kernels.Call{Op: kernels.BatchNorm{ReLU: true}, In: []kernels.Desc{x}, Train: true}, 3},
		{"batchnorm+add+relu", kernels.Call{Op: kernels.BatchNorm{ReLU: true, Residual: true}, In: []kernels.Desc{x, x}, Train: true}, 4},
		{"batchnorm+relu backward", kernels.Call{Op: kernels.BatchNorm{ReLU: true}, In: []kernels.Desc{x}, Train: true, Pass: kernels.Backward}, 7},
		{"maxpool", kernels.Call{Op: kernels.MaxPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, In: []kernels.Desc{x}, Train: true}, 1.5},
		{"maxpool backward", kernels.Call{Op: kernels.MaxPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, In: []kernels.Desc{x}, Train: true, Pass: kernels.Backward}, 1.5},
		{"dropout", kernels.Call{Op: kernels.Dropout{P: 0.5}, In: []kernels.Desc{x}, Train: true}, 2},
		{"gelu", kernels.Call{Op: kernels.GELU{}, In: []kernels.Desc{x}}, 2},
		{"gelu backward", kernels.Call{Op: kernels.GELU{}, In: []kernels.Desc{x}, Pass: kernels.Backward}, 3},
		{"gelu tanh", kernels.Call{Op: kernels.GELU{Tanh: true}, In: []kernels.Desc{x}}, 2},
		{"gelu tanh backward", kernels.Call{Op: kernels.GELU{Tanh: true}, In: []kernels.Desc{x}, Pass: kernels.Backward}, 3},
		{"layernorm", kernels.Call{Op: kernels.LayerNorm{}, In: []kernels.Desc{x}, Train: true}, 2},
		{"layernorm backward", kernels.Call{Op: kernels.LayerNorm{}, In: []kernels.Desc{x}, Train: true, Pass: kernels.Backward}, 3},
		{"rotary", kernels.Call{Op: kernels.Rotary{Heads: 4, Dim: 64}, In: []kernels.Desc{kernels.F32(8, 56*56, 256)}}, 2},
		{"softmax cross entropy", kernels.Call{
			Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(128, 50257), {Shape: kernels.Shape{128}, DType: kernels.Int32}}, Train: true,
		}, 1},
		{"softmax cross entropy backward", kernels.Call{
			Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(128, 50257), {Shape: kernels.Shape{128}, DType: kernels.Int32}}, Train: true, Pass: kernels.Backward,
		}, 2},
	}
	for _, c := range calls {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", c.name, threads), func(b *testing.B) {
				benchmarkCall(b, fastest(), threads, c.call, bytes*c.runs)
			})
		}
	}
}

// BenchmarkAttention is causal attention of GPT-2's heads, of larger and of smaller ones. It counts the products that the mask leaves. Each score
// has two products of a row and a column forward, and five backward.
func BenchmarkAttention(b *testing.B) {
	for _, s := range []struct{ batch, length, heads, kv, dim int }{
		{4, 64, 12, 12, 64}, {4, 1024, 12, 12, 64}, {1, 2048, 8, 2, 128}, {4, 64, 12, 12, 32}, {4, 1024, 12, 12, 32},
	} {
		c := kernels.Call{
			Op: kernels.Attention{Heads: s.heads, KVHeads: s.kv}, Train: true,
			In: []kernels.Desc{kernels.F32(s.batch, s.length, (s.heads+2*s.kv)*s.dim)},
		}
		product := float64(s.batch*s.heads*s.dim) * float64(s.length) * float64(s.length+1)
		for _, path := range Paths() {
			for _, threads := range []int{1, 2} {
				name := fmt.Sprintf("%v/%dx%d/heads=%d,%d/dim=%d", path, s.batch, s.length, s.heads, s.kv, s.dim)
				c.Pass = kernels.Forward
				b.Run(fmt.Sprintf("%s/forward/threads=%d", name, threads), func(b *testing.B) {
					benchmarkCall(b, path, threads, c, 2*product)
				})
				c.Pass = kernels.Backward
				b.Run(fmt.Sprintf("%s/backward/threads=%d", name, threads), func(b *testing.B) {
					benchmarkCall(b, path, threads, c, 5*product)
				})
			}
		}
	}
}

// BenchmarkHostUpdates runs updates of host memory and STREAM's triad by turns, over the same GiB. GB/s are medians of what each reads and
// writes; ratio is the median of the pairs. The processor moves a third more for the triad than STREAM counts, as it reads what the triad
// is about to overwrite.
func BenchmarkHostUpdates(b *testing.B) {
	const bytes = 1 << 30
	dev, err := host.New(host.Config{HostMemory: bytes})
	if err == nil {
		err = dev.Reserve(0, bytes)
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = dev.Close() }()
	memory, err := dev.HostBytes(runtime.Span{Space: runtime.Host, Bytes: bytes})
	if err != nil {
		b.Fatal(err)
	}
	rules := []kernels.Update{
		kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1}, kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
		kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4}, kernels.SGD{},
	}
	for _, u := range rules {
		for _, path := range Paths() {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s-%d/%v/threads=%d", u.Kind(), u.States(), path, threads), func(b *testing.B) {
					l, err := New(dev, Options{Threads: threads, Path: path.String(), Apart: true})
					if err != nil {
						b.Fatal(err)
					}
					benchmarkHostUpdate(b, l, u, memory)
				})
			}
		}
	}
}

// benchmarkHostUpdate measures one rule on a memory that begins at the host space's beginning.
func benchmarkHostUpdate(b *testing.B, l *Library, u kernels.Update, memory []byte) {
	tensors := int64(2 + u.States())
	size := (int64(len(memory)) - kernels.ScalarsBytes) / tensors / kernels.Alignment * kernels.Alignment
	span := func(i int64) runtime.Span { return runtime.Span{Space: runtime.Host, Offset: i * size, Bytes: size} }
	o := kernels.UpdateOperands{Elements: size / 4, Param: span(0), Grad: span(1), Scalars: span(tensors)}
	o.Scalars.Bytes = kernels.ScalarsBytes
	for i := range u.States() {
		o.States = append(o.States, span(int64(2+i)))
	}
	launch, err := l.PrepareUpdate(u, o)
	if err != nil {
		b.Fatal(err)
	}
	triad, elements := l.triad(memory[:tensors*size])
	timed := func(run func() error) float64 {
		start := time.Now()
		if err := run(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start).Seconds()
	}
	var streams, updates, ratios []float64
	for b.Loop() {
		for at := range memory { // 0.75 everywhere, which no update of a rate of 0 changes much
			memory[at] = 0x3f
		}
		kernels.Scalars{GradScale: 1, Update: 10}.Put(memory[o.Scalars.Offset:])
		updates = append(updates, float64((tensors+int64(1+u.States()))*size)/timed(launch.(interface{ Run() error }).Run)/1e9)
		streams = append(streams, float64(triadBytes*elements)/timed(triad.Run)/1e9)
		ratios = append(ratios, updates[len(updates)-1]/streams[len(streams)-1])
	}
	b.ReportMetric(stats.Median(streams), "triad-GB/s")
	b.ReportMetric(stats.Median(updates), "update-GB/s")
	b.ReportMetric(stats.Median(ratios), "ratio")
}
