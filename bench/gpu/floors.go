package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"plimsoll/executor/estimate"
	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/kernels/cuda/resources"
)

// launcher is a library that lists the kernels of a call.
type launcher interface {
	Launches(kernels.Call) ([]resources.Launch, error)
	WarpgroupLaunches(kernels.Call) ([]resources.Launch, error)
}

// Assumptions of the estimates. A thread has one vector on its way from memory. mma.sync does not reach the peak of Hopper's tensor cores.
// Products by wgmma take a share of it that no run of them has shown yet.
const (
	vectorBytes    = 16
	memoryLatency  = 600e-9 // seconds
	mmaShare       = 0.62
	wgmmaShare     = 0.75
	multiprocessor = 132 // of an H100
)

// floors estimates the calls of training steps on an H100, from the reports of the assembler and without a GPU.
type floors struct {
	*part
	device   *estimate.Device
	kernels  launcher
	table    *resources.Table
	launched map[resources.Launch]bool
}

// estimated is a call beside its floor. Nothing of it was measured.
type estimated struct {
	opRow
	main     resources.Launch // of a product, the kernel with the most registers a thread; else the one whose threads have most together
	launches int
	async    float64 // seconds by wgmma; 0: it cannot
}

// faster is the sooner of both ways.
func (e estimated) faster() float64 {
	if e.async > 0 {
		return min(e.async, e.Seconds)
	}
	return e.Seconds
}

// printFloors writes the page of the calls of the models of the part ops.
func printFloors(p *part, out io.Writer) error {
	t, err := p.target()
	if err != nil {
		return err
	}
	defer func() { _ = t.Device.Close() }() // nothing ran on it
	lists, able := t.Library.(launcher)
	if !able {
		return fmt.Errorf("kernels %s do not list their launches: take -device cuda:0, on a GPU or the emulated driver", t.Library.Name())
	}
	f := &floors{part: p, kernels: lists, launched: map[resources.Launch]bool{}}
	if f.device, err = estimate.Open("h100"); err != nil {
		return err
	}
	if f.table, err = resources.Committed(); err != nil {
		return err
	}
	var answer strings.Builder
	for _, d := range floats {
		for _, s := range []opSizes{p.textSizes(), p.opSizes()} {
			rows, err := f.step(s, d)
			if err != nil {
				return err
			}
			took, faster, floor := total(rows)
			fmt.Fprintf(&answer, "| %s | %v | %s | %s | %.0f %% | %s | %.0f %% |\n", describeRun(s.model, s.image, s.batch), d, units.Seconds(took),
				units.Seconds(floor), 100*floor/took, units.Seconds(faster), 100*floor/faster)
			f.printCalls(s, d, rows)
		}
	}
	f.printKernels()
	_, err = fmt.Fprintf(out, floorsHead+"%s%s%s", answer.String(), floorsFormula, f.text.String())
	return err
}

const floorsHead = `# Kernels beside their floors on an H100, estimated

Question: how near to the limits of an H100 do the registers, the shared memory and the blocks of our kernels let each call come?

Answer: the table. **Every figure of this page is an estimate; nothing was measured.** [gpu-h100.md](gpu-h100.md) and
[gpu-h200.md](gpu-h200.md) have measured calls.

    make kernels-estimated

| step | type | all calls, estimated | their floors | estimated share | with wgmma, estimated | estimated share |
|---|---|--:|--:|--:|--:|--:|
`

const floorsFormula = `
- The floor is bytes / 3.35 TB/s or operations / peak, whichever is longer. Peaks are 989 TFLOP/s in bfloat16, 495 in TF32 and 67 in float32.
- The estimate is the longer one of bytes / B and operations / R, and 2 µs a launch. Its share is floor / estimate.
- B is 132 x the bytes on their way to a multiprocessor / 600 ns, 3.35 TB/s at most. Each resident thread has 16 bytes on their way; where
  asynchronous copies fill the shared memory that a launch adds, its bytes count instead. These numbers are assumptions.
- R is the peak x blocks / (132 x the blocks of the busiest multiprocessor). Kernels on tensor cores take 62 % of it, as they issue mma.sync; that
  is an assumption. Other kernels have the peak of float32.
- With wgmma, each product in bfloat16 takes the shorter one of two estimates. Kernels that issue wgmma take 75 % of the peak. That is an
  assumption: these kernels have not run on a GPU yet.
- Registers and shared memory are of ptxas 12.9 for sm_90 ([table](../../kernels/cuda/resources/resources.txt)), grids and blocks of the launches.
  Resident threads and R follow the kernel that is named: of a product the one with the most registers a thread, else the one whose threads have
  most together.
- No estimate counts bytes that a kernel reads again, conflicts of banks, instructions beside products, or vendors' libraries. So an estimate is
  nearer to the best that the shape allows than to a measurement.
`

// step estimates the calls of a model's step in a type.
func (f *floors) step(s opSizes, d kernels.DType) (rows []estimated, err error) {
	on, err := f.device.Target()
	if err != nil {
		return nil, err
	}
	w, err := workload(on.Library, s.model, s.config(d))
	if err != nil {
		return nil, err
	}
	for _, c := range calls(w) {
		row, err := f.estimate(c, d)
		if err != nil {
			return nil, fmt.Errorf("%s %v of %v: %w", c.Op.Kind(), c.Pass, c.In, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// total sums up the estimates and the floors of a step.
func total(rows []estimated) (took, faster, floor float64) {
	for _, row := range rows {
		n := float64(row.Count)
		took, faster, floor = took+n*row.Seconds, faster+n*row.faster(), floor+n*row.Floor
	}
	return took, faster, floor
}

// printCalls prints the calls of a step that are estimated to take longest.
func (f *floors) printCalls(s opSizes, d kernels.DType, rows []estimated) {
	fmt.Fprintf(&f.text, "\n## %s, %v\n\n%d different calls; the %d that are estimated to take longest:\n\n", describeRun(s.model, s.image, s.batch), d,
		len(rows), min(mostRows, len(rows)))
	f.text.WriteString("| op | pass | input | in a step | bytes | operations | kernel | launches | floor | bound by | estimated | estimated share | by wgmma, estimated |\n" +
		"|---|---|---|--:|--:|--:|---|--:|--:|---|--:|--:|--:|\n")
	slices.SortStableFunc(rows, func(a, b estimated) int { return cmp.Compare(float64(b.Count)*b.Seconds, float64(a.Count)*a.Seconds) })
	for _, r := range rows[:min(mostRows, len(rows))] {
		async := "–"
		if r.async > 0 {
			async = units.Seconds(r.async)
		}
		fmt.Fprintf(&f.text, "| %s | %s | %s | %d | %s | %.3g | %s | %d | %s | %s | %s | %.0f %% | %s |\n", r.Op, r.Pass, r.Shape, r.Count, units.Bytes(r.Bytes),
			float64(r.Operations), r.main.Kernel, r.launches, units.Seconds(r.Floor), r.Bound, units.Seconds(r.Seconds), 100*r.Floor/r.Seconds, async)
	}
}

// estimate computes the row of a call.
func (f *floors) estimate(c *call, d kernels.DType) (e estimated, err error) {
	e.opRow = opRow{DType: d.String(), Op: c.Op.Kind(), Pass: c.Pass.String(), Shape: shape(c), Count: c.count}
	if e.Bytes, e.Operations, err = c.Cost(); err != nil {
		return e, err
	}
	e.floor(f.device.Bandwidth, f.device.Rates[d.String()])
	all, err := f.kernels.Launches(c.Call)
	if err != nil || len(all) == 0 {
		return e, cmp.Or(err, fmt.Errorf("no kernel is launched"))
	}
	async, err := f.kernels.WarpgroupLaunches(c.Call)
	if err != nil {
		return e, err
	}
	if len(async) > 0 {
		e.async = f.follow(e, async, d).Seconds
	}
	return f.follow(e, all, d), nil
}

// follow returns a row with the estimate of launches.
func (f *floors) follow(e estimated, all []resources.Launch, d kernels.DType) estimated {
	weight := func(l resources.Launch) int64 {
		u, _ := f.table.Held(l, resources.Hopper)
		if e.Operations > 0 {
			return int64(u.Registers)
		}
		return l.Blocks * int64(l.Threads*u.Registers)
	}
	e.launches, e.main = len(all), slices.MaxFunc(all, func(a, b resources.Launch) int { return cmp.Compare(weight(a), weight(b)) })
	for _, l := range all {
		l.Blocks = 0
		f.launched[l] = true
	}
	e.Seconds = f.seconds(e, d)
	return e
}

// seconds is the longer one of the times of a call's bytes and operations, and its launches. Bytes arrive as fast as the resident threads
// of the kernel, or its asynchronous copies to shared memory, keep them on their way. The busiest multiprocessor decides about operations.
func (f *floors) seconds(e estimated, d kernels.DType) float64 {
	_, held := f.table.Held(e.main, resources.Hopper)
	beside := min(int64(held), (e.main.Blocks+multiprocessor-1)/multiprocessor)
	flight := float64(beside*int64(max(e.main.Threads*vectorBytes, e.main.Shared))) * multiprocessor / memoryLatency
	rate := f.device.Rates[kernels.Float32.String()]
	switch tensor := e.main.Module == "mma" || strings.HasPrefix(e.main.Module, "flash"); {
	case tensor:
		rate = mmaShare * f.device.Rates[d.String()]
	case e.main.Module == "wgmma":
		rate = wgmmaShare * f.device.Rates[d.String()]
	}
	perUnit := float64(e.main.Blocks) / multiprocessor
	rate *= perUnit / float64((e.main.Blocks+multiprocessor-1)/multiprocessor)
	return max(float64(e.Bytes)/min(f.device.Bandwidth, flight), float64(e.Operations)/rate) + float64(e.launches)*f.device.Launch
}

// printKernels prints the resources of the kernels that were launched.
func (f *floors) printKernels() {
	f.text.WriteString("\n## Kernels\n\nEvery kernel of these steps on sm_90, estimated from its registers and its shared memory:\n\n| kernel | threads of a block | registers | shared memory, declared | by the launch | blocks held | occupancy |\n|---|--:|--:|--:|--:|--:|--:|\n")
	byName := func(a, b resources.Launch) int {
		return cmp.Or(cmp.Compare(a.Module, b.Module), cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.Threads, b.Threads), cmp.Compare(a.Shared, b.Shared))
	}
	for _, l := range slices.SortedFunc(maps.Keys(f.launched), byName) {
		u, held := f.table.Held(l, resources.Hopper)
		fmt.Fprintf(&f.text, "| %s %s | %d | %d | %s | %s | %d | %.0f %% |\n", l.Module, l.Kernel, l.Threads, u.Registers, units.Bytes(int64(u.Shared)),
			units.Bytes(int64(l.Shared)), held, 100*float64(held*l.Threads)/float64(resources.Hopper.Threads))
	}
}
