package main

import (
	"fmt"
	"math"
	"time"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// peak returns the FMA peak of one core on the fastest path, operations a second.
func peak() float64 {
	paths := cpu.Paths()
	best := 0.0
	for _, p := range paths {
		best = max(best, cpu.Peak(p))
	}
	return best
}

func compareSGEMM(o options) error {
	fmt.Println("\n| SGEMM n | threads | ours GFLOP/s | share of FMA peak | OpenBLAS GFLOP/s | ratio |\n|---|---|---|---|---|---|")
	for _, threads := range o.threads {
		p, err := startPeer(threads, o.sgemm)
		if err != nil {
			return err
		}
		for _, n := range []int{512, 1024, 2048} {
			operations := 2 * math.Pow(float64(n), 3)
			ours, err := timeCall(kernels.Call{Op: kernels.Linear{Out: n}, In: []kernels.Desc{kernels.F32(n, n)}}, threads)
			if err != nil {
				return err
			}
			a, b, err := inTurns(o.rounds, ours, func() (float64, error) { return p.ask(fmt.Sprintf("%d 5", n)) })
			if err != nil {
				return err
			}
			fmt.Printf("| %d | %d | %.1f | %.0f %% | %.1f | %.2f |\n", n, threads, operations/a/1e9, 100*operations/a/peak()/float64(threads), operations/b/1e9, b/a)
		}
		if err := p.close(); err != nil {
			return err
		}
	}
	return nil
}

// shape is a convolution of ResNet-50.
type shape struct{ size, in, out, kernel, stride int }

var shapes = []shape{
	{224, 3, 64, 7, 2},
	{56, 64, 64, 1, 1}, {56, 64, 64, 3, 1}, {56, 64, 256, 1, 1}, {56, 256, 64, 1, 1},
	{56, 128, 128, 3, 2}, {28, 128, 128, 3, 1}, {28, 128, 512, 1, 1}, {28, 512, 128, 1, 1},
	{28, 256, 256, 3, 2}, {14, 256, 256, 3, 1}, {14, 256, 1024, 1, 1}, {14, 1024, 256, 1, 1},
	{14, 512, 512, 3, 2}, {7, 512, 512, 3, 1}, {7, 512, 2048, 1, 1}, {7, 2048, 512, 1, 1},
}

func compareConv(o options) error {
	const batch = 8
	fmt.Println("\n| conv (batch 8) | pass | threads | ours GFLOP/s | share of FMA peak | oneDNN GFLOP/s | ratio |\n|---|---|---|---|---|---|---|")
	for _, threads := range o.threads {
		p, err := startPeer(threads, o.onednn)
		if err != nil {
			return err
		}
		logs, count := map[kernels.Pass]float64{}, 0
		for _, s := range shapes {
			op := kernels.Conv2D{Out: s.out, KernelH: s.kernel, KernelW: s.kernel, StrideH: s.stride, StrideW: s.stride, PadH: s.kernel / 2, PadW: s.kernel / 2}
			in := []kernels.Desc{kernels.F32(batch, s.size, s.size, s.in)}
			y, err := op.Infer(in)
			if err != nil {
				return err
			}
			operations := 2 * float64(y.Elements()) * float64(s.kernel*s.kernel*s.in)
			count++
			for _, pass := range []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams} {
				ours, err := timeCall(kernels.Call{Op: op, In: in, Train: true, Pass: pass}, threads)
				if err != nil {
					return err
				}
				question := fmt.Sprintf("%d %d %d %d %d %d %v 5", batch, s.size, s.in, s.out, s.kernel, s.stride, pass)
				a, b, err := inTurns(o.rounds, ours, func() (float64, error) { return p.ask(question) })
				if err != nil {
					return err
				}
				logs[pass] += math.Log(b / a)
				fmt.Printf("| %dx%d %d-%d k%d s%d | %v | %d | %.1f | %.0f %% | %.1f | %.2f |\n", s.size, s.size, s.in, s.out, s.kernel, s.stride,
					pass, threads, operations/a/1e9, 100*operations/a/peak()/float64(threads), operations/b/1e9, b/a)
			}
		}
		for pass, sum := range logs {
			fmt.Printf("| geometric mean | %v | %d | | | | %.2f |\n", pass, threads, math.Exp(sum/float64(count)))
		}
		if err := p.close(); err != nil {
			return err
		}
	}
	return nil
}

// timeCall prepares a call on a device of its own and returns a function that gives the median seconds of five runs.
func timeCall(c kernels.Call, threads int) (func() (float64, error), error) {
	dev, err := host.New(host.Config{Memory: 1 << 30, HostMemory: 1 << 20})
	if err != nil {
		return nil, err
	}
	if err := dev.Reserve(1<<30, 0); err != nil {
		return nil, err
	}
	lib, err := cpu.New(dev, cpu.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	o, err := place(lib, dev, c)
	if err != nil {
		return nil, err
	}
	launch, err := lib.Prepare(c, o)
	if err != nil {
		return nil, err
	}
	work := launch.(host.Launch)
	return func() (float64, error) {
		var times []float64
		for i := range 6 {
			start := time.Now()
			if err := work.Run(); err != nil {
				return 0, err
			}
			if i > 0 {
				times = append(times, time.Since(start).Seconds())
			}
		}
		return median(times), nil
	}, nil
}

// place gives the operands of a call memory one behind the other, filled with numbers.
func place(lib kernels.Library, dev *host.Device, c kernels.Call) (kernels.Operands, error) {
	var at int64
	take := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: at, Bytes: bytes}
		at += kernels.Align(bytes)
		return s
	}
	y, err := c.Op.Infer(c.In)
	if err != nil {
		return kernels.Operands{}, err
	}
	o := kernels.Operands{Scalars: take(kernels.ScalarsBytes), Y: take(y.Bytes()), DY: take(y.Bytes())}
	for _, d := range c.In {
		o.X, o.DX = append(o.X, take(d.Bytes())), append(o.DX, take(d.Bytes()))
	}
	for _, p := range c.Op.Params(c.In) {
		o.Params, o.DParams = append(o.Params, take(p.Desc.Bytes())), append(o.DParams, take(p.Desc.Bytes()))
	}
	workspace, err := lib.Workspace(c)
	if err != nil {
		return o, err
	}
	b, err := dev.Bytes(runtime.Span{Bytes: at})
	for i := 0; i+4 <= len(b); i += 4 {
		// A float32 in [0.5, 1): exponent 126, some mantissa.
		b[i], b[i+1], b[i+2], b[i+3] = byte(i>>2), byte(i>>5), byte(i>>9)&0x7f, 0x3f
	}
	o.Workspace = take(workspace)
	return o, err
}

func compareStep(o options) error {
	fmt.Println("\n| training step | threads | ours s | PyTorch channels_last s | ratio | PyTorch NCHW s | ratio |\n|---|---|---|---|---|---|---|")
	for _, threads := range o.threads {
		ours, err := timeStep("resnet50", 8, 224, threads)
		if err != nil {
			return err
		}
		var a, b [2]float64
		for k, layout := range []string{"channels_last", "nchw"} {
			p, err := startPeer(threads, o.python, o.step, "resnet50", "8", "224", fmt.Sprint(threads), layout)
			if err != nil {
				return err
			}
			if _, err := p.line(); err != nil { // its version
				return err
			}
			if a[k], b[k], err = inTurns(o.rounds, ours, func() (float64, error) { return p.ask("1") }); err != nil {
				return err
			}
			if err := p.close(); err != nil {
				return err
			}
		}
		fmt.Printf("| resnet50, batch 8, 224x224 | %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", threads, (a[0]+a[1])/2, b[0], b[0]/a[0], b[1], b[1]/a[1])
	}
	return nil
}

// timeStep returns a function that gives the seconds of one training step that recomputes nothing.
func timeStep(name string, batch, image, threads int) (func() (float64, error), error) {
	m, err := models.New(name, models.Config{Batch: batch, Image: image, Classes: 1000})
	if err != nil {
		return nil, err
	}
	dev, err := host.New(host.Config{Memory: 8 << 30, HostMemory: 1 << 30})
	if err != nil {
		return nil, err
	}
	lib, err := cpu.New(dev, cpu.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	w, err := executor.Compile(m, lib, kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4})
	if err != nil {
		return nil, err
	}
	limit, err := w.Extent(w.StoreAll())
	if err != nil {
		return nil, err
	}
	e, err := executor.New(w, executor.Target{Device: dev, Library: lib}, w.StoreAll(), executor.Options{Limit: limit, Seed: 1})
	if err != nil {
		return nil, err
	}
	images, err := e.Images()
	if err != nil {
		return nil, err
	}
	for i := range images {
		images[i] = float32(i%97) / 97
	}
	step := uint64(0)
	next := func() (float64, error) {
		r, err := e.Step(step, 0.01)
		if err != nil {
			return 0, err
		}
		step++
		return r.Seconds, nil
	}
	_, err = next() // does not count
	return next, err
}
