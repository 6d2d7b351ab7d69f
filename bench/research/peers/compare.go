//go:build cgo

package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"plimsoll/internal/stats"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// peak gives the seconds of one operation at the FMA peak of one core, on the fastest path.
func peak() (float64, error) {
	best := 0.0
	for _, p := range cpu.Paths() {
		best = max(best, cpu.Peak(p))
	}
	return 1 / best, nil
}

// row is one call timed beside a peer, the FMA peak and, on several threads, itself on one.
type row struct {
	speed, share, peer, ratio float64
	gain                      string // of all threads over one
}

func (r row) String() string {
	return fmt.Sprintf("%.1f | %.0f %% | %.1f | %.2f | %s |", r.speed, 100*r.share, r.peer, r.ratio, r.gain)
}

// compare times a call of so many operations on so many threads in turns with theirs.
func compare(o options, c kernels.Call, operations float64, threads int, theirs stopwatch) (row, error) {
	ours, err := timeCall(c, threads)
	if err != nil {
		return row{}, err
	}
	all := []stopwatch{ours, theirs, peak}
	if threads > 1 {
		one, err := timeCall(c, 1)
		if err != nil {
			return row{}, err
		}
		all = append(all, one)
	}
	t, err := inTurns(o.rounds, all...)
	if err != nil {
		return row{}, err
	}
	r := row{
		speed: operations / stats.Median(t[0]) / 1e9,
		share: over(t[2], t[0]) * operations / float64(threads),
		peer:  operations / stats.Median(t[1]) / 1e9,
		ratio: over(t[1], t[0]),
	}
	if threads > 1 {
		r.gain = fmt.Sprintf("%.2f", over(t[3], t[0]))
	}
	return r, nil
}

func compareSGEMM(o options) error {
	fmt.Println("\n| SGEMM n | threads | ours GFLOP/s | share of FMA peak | OpenBLAS GFLOP/s | ratio | over one thread |\n|---|---|---|---|---|---|---|")
	for _, threads := range o.threads {
		p, err := startPeer(threads, o.sgemm)
		if err != nil {
			return err
		}
		for _, n := range []int{512, 1024, 2048} {
			c := kernels.Call{Op: kernels.Linear{Out: n}, In: []kernels.Desc{kernels.F32(n, n)}}
			r, err := compare(o, c, 2*math.Pow(float64(n), 3), threads, func() (float64, error) { return p.ask(fmt.Sprintf("%d %v %v", n, warm.Seconds(), timed.Seconds())) })
			if err != nil {
				return err
			}
			fmt.Printf("| %d | %d | %v\n", n, threads, r)
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

const convBatch = 8

var convPasses = []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams}

func compareConv(o options) error {
	fmt.Printf("\n| conv (batch %d) | pass | threads | ours GFLOP/s | share of FMA peak | oneDNN GFLOP/s | ratio | over one thread |\n|---|---|---|---|---|---|---|---|\n", convBatch)
	for _, threads := range o.threads {
		p, err := startPeer(threads, o.onednn)
		if err != nil {
			return err
		}
		logs := map[kernels.Pass]float64{}
		for _, s := range shapes {
			if err := s.compare(o, p, threads, logs); err != nil {
				return err
			}
		}
		for _, pass := range convPasses {
			fmt.Printf("| geometric mean | %v | %d | | | | %.2f | |\n", pass, threads, math.Exp(logs[pass]/float64(len(shapes))))
		}
		if err := p.close(); err != nil {
			return err
		}
	}
	return nil
}

func (s shape) String() string {
	return fmt.Sprintf("%dx%d %d-%d k%d s%d", s.size, s.size, s.in, s.out, s.kernel, s.stride)
}

func (s shape) op() kernels.Conv2D {
	return kernels.Conv2D{Out: s.out, KernelH: s.kernel, KernelW: s.kernel, StrideH: s.stride, StrideW: s.stride, PadH: s.kernel / 2, PadW: s.kernel / 2}
}

func (s shape) images() kernels.Desc { return kernels.F32(convBatch, s.size, s.size, s.in) }

// operations of a pass.
func (s shape) operations() float64 {
	side := (s.size-1)/s.stride + 1
	return 2 * float64(convBatch*side*side*s.out) * float64(s.kernel*s.kernel*s.in)
}

// compare prints a row for every pass and adds the logarithms of the ratios to logs.
func (s shape) compare(o options, p *peer, threads int, logs map[kernels.Pass]float64) error {
	for _, pass := range convPasses {
		question := fmt.Sprintf("%d %d %d %d %d %d %v %v %v", convBatch, s.size, s.in, s.out, s.kernel, s.stride, pass, warm.Seconds(), timed.Seconds())
		c := kernels.Call{Op: s.op(), In: []kernels.Desc{s.images()}, Train: true, Pass: pass}
		r, err := compare(o, c, s.operations(), threads, func() (float64, error) { return p.ask(question) })
		if err != nil {
			return err
		}
		logs[pass] += math.Log(r.ratio)
		fmt.Printf("| %v | %v | %d | %v\n", s, pass, threads, r)
	}
	return nil
}

// timeCall prepares a call on a device of its own and returns a function that gives the median seconds of five runs.
func timeCall(c kernels.Call, threads int) (stopwatch, error) {
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
		if _, err := runFor(work, warm); err != nil {
			return 0, err
		}
		times, err := runFor(work, timed)
		return stats.Median(times), err
	}, nil
}

// The runs that every peer makes for one answer. The first runs do not count: in them sleeping threads and clocks wake up,
// as they would be awake in a training run. Of the next runs the median counts.
const (
	warm   = 30 * time.Millisecond
	timed  = 60 * time.Millisecond
	fewest = 5 // runs
)

// runFor runs again and again for so long and returns the seconds of each run.
func runFor(work host.Launch, long time.Duration) ([]float64, error) {
	var times []float64
	for begin := time.Now(); len(times) < fewest || time.Since(begin) < long; {
		start := time.Now()
		if err := work.Run(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start).Seconds())
	}
	return times, nil
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
	for _, d := range c.Op.Saved(c.In) {
		o.Saved = append(o.Saved, take(d.Bytes()))
	}
	for _, p := range c.Op.Params(c.In) {
		o.Params, o.DParams = append(o.Params, take(p.Desc.Bytes())), append(o.DParams, take(p.Desc.Bytes()))
	}
	workspace, err := lib.Workspace(c)
	if err != nil {
		return o, err
	}
	b, err := dev.Bytes(runtime.Span{Bytes: at})
	for i := 0; i+2 <= len(b); i += 2 {
		// A number in [0.5, 1), as a bfloat16 and, with its neighbour, as a float32: exponent 126, some mantissa.
		b[i], b[i+1] = byte(i>>1^i>>8)&0x7f, 0x3f
	}
	o.Workspace = take(workspace)
	return o, err
}

func compareStep(o options) error {
	fmt.Println("\n| training step | threads | ours s | PyTorch channels_last s | ratio | PyTorch NCHW s | ratio |\n|---|---|---|---|---|---|---|")
	for _, s := range steps {
		for _, threads := range o.threads {
			if err := s.compare(o, threads); err != nil {
				return err
			}
		}
	}
	return nil
}

// trainingStep is one of a model, ours and torchvision's, whose name is the same, in batches of 8.
type trainingStep struct {
	model string
	image int
}

var steps = []trainingStep{{"resnet50", 224}, {"densenet121", 224}, {"inception_v3", 299}}

// compare prints a row.
func (s trainingStep) compare(o options, threads int) (err error) {
	const batch = 8
	m, err := models.New(s.model, models.Config{Batch: batch, Image: s.image, Classes: classes})
	if err != nil {
		return err
	}
	ours, closed, err := timeSteps(m, stepUpdate, threads)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	var mine, theirs, ratio [2]float64
	for k, layout := range []string{"channels_last", "nchw"} {
		p, err := o.startPython(threads, "torch_step.py", s.model, fmt.Sprint(batch), fmt.Sprint(s.image), fmt.Sprint(threads), layout)
		if err != nil {
			return err
		}
		if _, err := p.line(); err != nil { // its version
			return err
		}
		t, err := inTurns(o.rounds, ours, func() (float64, error) { return p.ask("1") })
		if err != nil {
			return err
		}
		mine[k], theirs[k], ratio[k] = stats.Median(t[0]), stats.Median(t[1]), over(t[1], t[0])
		if err := p.close(); err != nil {
			return err
		}
	}
	fmt.Printf("| %s, batch %d, %dx%d | %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", s.model, batch, s.image, s.image, threads, (mine[0]+mine[1])/2, theirs[0], ratio[0], theirs[1], ratio[1])
	return nil
}

const classes = 1000 // as ImageNet has them

// stepUpdate is the update of pictures' models.
var stepUpdate = kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4}
