//go:build cgo

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// tally holds the times of all calls of a library, by op, pass and shapes.
type tally struct {
	calls map[string]*called
	steps int
}

// called is the launches of equal calls.
type called struct {
	name       string
	seconds    float64
	processor  float64 // seconds, of all threads
	count      int
	operations float64 // of the products of one; 0: it has none
}

// clear forgets what was measured.
func (t *tally) clear() {
	for _, c := range t.calls {
		c.seconds, c.processor, c.count = 0, 0, 0
	}
}

// watched is a library whose launches are timed.
type watched struct {
	kernels.Library
	tally *tally
}

func (t *tally) watch(lib kernels.Library) kernels.Library { return watched{lib, t} }

// Prepare implements kernels.Library.
func (w watched) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	l, err := w.Library.Prepare(c, o)
	if err != nil {
		return nil, err
	}
	y, err := c.Op.Infer(c.In)
	return w.tally.timed(l, fmt.Sprintf("%s %v | %v to %v", c.Op.Kind(), c.Pass, c.In[0].Shape, y.Shape), operations(c, y)), err
}

// PrepareUpdate implements kernels.Library.
func (w watched) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	l, err := w.Library.PrepareUpdate(u, all...)
	if err != nil {
		return nil, err
	}
	return w.tally.timed(l, u.Kind()+" | all weights", 0), nil
}

// operations is the number of operations in the matrix products of a call.
func operations(c kernels.Call, y kernels.Desc) float64 {
	x := c.In[0].Shape
	switch op := c.Op.(type) {
	case kernels.Linear:
		return 2 * float64(y.Elements()) * float64(op.Features(c.In[0]))
	case kernels.Attention:
		if op.Bidirectional {
			_, n, _ := c.Cost()
			return float64(n)
		}
		return causal(x[0], x[1], op.Heads, op.Dim(c.In[0]), c.Pass)
	}
	return 0
}

// causal is the operations of attention's products that the mask leaves: forward has two of a row and a column for each score,
// backward five.
func causal(batch, length, heads, dim int, pass kernels.Pass) float64 {
	products := map[kernels.Pass]float64{kernels.Forward: 2, kernels.Backward: 5}[pass]
	return products * float64(batch*heads*dim) * float64(length) * float64(length+1)
}

func (t *tally) timed(l runtime.Launch, name string, operations float64) runtime.Launch {
	if t.calls[name] == nil {
		t.calls[name] = &called{name: name, operations: operations}
	}
	return stopped{l.(host.Launch), t.calls[name]}
}

// stopped is a launch that is timed.
type stopped struct {
	host.Launch
	called *called
}

// Run implements host.Launch.
func (s stopped) Run() error {
	start, busy := time.Now(), processorSeconds()
	err := s.Launch.Run()
	s.called.seconds += time.Since(start).Seconds()
	s.called.processor += processorSeconds() - busy
	s.called.count++
	return err
}

// processorSeconds is the processor time of this process so far, which other programs on the machine do not add to.
func processorSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("BUG: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// print prints a row for each kind of call, the longest first.
func (t *tally) print(batch string, threads int) {
	fmt.Printf("\nOur ops of a step of %s tokens on %d threads, means of %d steps; speeds are by processor time:\n\n", batch, threads, t.steps)
	fmt.Println("| op | shapes | calls | ms of a step | processor ms / threads | share of all | GFLOP/s | share of FMA peak |\n|---|---|---|---|---|---|---|---|")
	all, sum := []*called{}, 0.0
	for _, c := range t.calls {
		if c.count > 0 {
			all, sum = append(all, c), sum+c.processor
		}
	}
	slices.SortFunc(all, func(a, b *called) int {
		return cmp.Or(cmp.Compare(b.processor, a.processor), strings.Compare(a.name, b.name))
	})
	limit := highestPeak() * float64(threads)
	for _, c := range all {
		speed := "|"
		if c.operations > 0 {
			rate := c.operations * float64(c.count) / c.processor * float64(threads)
			speed = fmt.Sprintf("%.1f | %.0f %%", rate/1e9, 100*rate/limit)
		}
		ms := 1e3 / float64(t.steps)
		fmt.Printf("| %s | %d | %.2f | %.2f | %.1f %% | %s |\n", c.name, c.count/t.steps, c.seconds*ms, c.processor*ms/float64(threads), 100*c.processor/sum, speed)
	}
}

// highestPeak is the FMA peak of one core that undisturbed runs show: the highest of several.
func highestPeak() float64 {
	best := 0.0
	for range 9 {
		best = max(best, cpu.Peak(fastestPath()))
	}
	return best
}

func fastestPath() cpu.Path {
	paths := cpu.Paths()
	return paths[len(paths)-1]
}
