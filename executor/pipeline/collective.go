package pipeline

import (
	"context"
	"fmt"
	"slices"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/world"
)

// joint is a set of buckets of a stage that a device adds up at once.
type joint struct {
	slot    int
	number  int // the same on all devices
	buckets []int
}

// newCollectives finds the stages whose gradients a library adds up: those whose replicas are in different processes. Errors: ErrPlan.
func (lay *layout) newCollectives(c *chain.Chain) error {
	lay.collectives = make([]*collective, len(lay.order.On))
	if !lay.opt.AllReduce {
		return nil
	}
	if lay.opt.World == nil || lay.order.Plan.Zero != pipeline.ZeroNothing {
		return fmt.Errorf("%w: its sums cannot be made by a library: that is for several processes, of plans without \"zero\"", order.ErrPlan)
	}
	count := 0
	for s := range lay.order.On {
		line, processes := lay.order.Hosts(s), map[int]bool{}
		for _, d := range line {
			processes[lay.opt.World.Ranks[d]] = true
		}
		switch len(processes) {
		case 1:
			continue
		case len(line):
		default:
			return fmt.Errorf("%w: stage %d: some of the devices %v share a process, but the library that adds up gradients needs one each: start one for each, or use --option world.allreduce=ordered", order.ErrPlan, s, line)
		}
		lay.collectives[s] = newCollective(line, count)
		count++
		if x := lay.order.Sums[s]; x != nil {
			lay.order.SumAtOnce(s, x.MadeBehind(lay.order.Plan.Stages[s], c, lay.order.Split[s]))
		}
	}
	return nil
}

func newCollective(line []int, number int) *collective {
	c := &collective{line: line, number: number, launches: map[[3]int]table.Prepared{}}
	for range line {
		c.come, c.gone = append(c.come, make(chan int, 1)), append(c.gone, make(chan int, 1))
		for i := range c.turns {
			c.turns[i] = append(c.turns[i], make(chan struct{}, 1))
		}
	}
	return c
}

// SumsAtOnce reports whether the World adds up gradients of some stages.
func (e *Executor) SumsAtOnce() bool {
	return slices.ContainsFunc(e.collectives, func(c *collective) bool { return c != nil })
}

// sumBuckets adds up the buckets of an instruction.
func (d sumCompiler) sumBuckets(ctx context.Context, t *localStage, v order.Instance) error {
	x, n := t.sums, len(t.sums.Buckets)
	slot, fresh := t.stash.Sum(v.Minibatch / t.stash.Group)
	if fresh {
		return fmt.Errorf("BUG: %v of minibatch %d comes before its gradients", v.Instruction, v.Minibatch)
	}
	j := joint{slot, x.Number(v), x.Together[order.ArrivalOf{Residue: d.lay.order.Residue(v.Minibatch), Bucket: v.Bucket, Device: none}]}
	for _, b := range j.buckets {
		d.adding.Wait(x.made[slot*n+b])
	}
	return d.sumAtOnce(ctx, t, j, x.added[slot*n+v.Bucket])
}

// collectSums waits for the sums of an update of which a minibatch is the last.
func (d sumCompiler) collectSums(t *localStage, minibatch, slot int) {
	x, r := t.sums, d.lay.order.Residue(minibatch)
	for b := range x.Buckets {
		if x.Together[order.ArrivalOf{Residue: r, Bucket: b, Device: none}] == nil {
			continue
		}
		d.compute.Wait(x.added[slot*len(x.Buckets)+b])
	}
}

// sumAll adds up all gradients in a slot, of a plan that does not say when, behind what has been issued to the compute stream.
func (d sumCompiler) sumAll(ctx context.Context, t *localStage, slot int) error {
	d.compute.Record(t.summed)
	d.adding.Wait(t.summed)
	if err := d.sumAtOnce(ctx, t, joint{slot: slot, number: t.rounds}, t.summedAll); err != nil {
		return err
	}
	t.rounds++
	d.compute.Wait(t.summedAll)
	return nil
}

// sumAtOnce issues this device's part of a sum to the stream of sums, and records an event behind it.
func (d sumCompiler) sumAtOnce(ctx context.Context, t *localStage, j joint, done runtime.Event) error {
	c := d.lay.collectives[t.stage]
	if err := d.meet(ctx, c, t.stage, j.number); err != nil {
		return err
	}
	d.adding.Launch(d.jointLaunch(c, t, j))
	d.adding.Record(done)
	return nil
}

// jointLaunch returns the launch of a sum: one that stands for it until the lines are open.
func (d sumCompiler) jointLaunch(c *collective, t *localStage, j joint) table.Prepared {
	key := [3]int{d.Number, j.slot, none}
	if len(j.buckets) > 0 {
		key[2] = j.buckets[0]
	}
	if l, ok := c.launches[key]; ok {
		return l
	}
	u := &unopened{of: c}
	if len(j.buckets) == 0 {
		u.parts = []runtime.Span{t.grads[j.slot]}
	}
	for _, b := range j.buckets {
		if p := t.gradientsOf(j.slot, b); p.Bytes > 0 {
			u.parts = append(u.parts, p)
		}
	}
	l := table.Prepared{Launch: u}
	for _, p := range u.parts {
		l.Accesses = append(l.Accesses, hazard.Access{Device: d.Number, Span: p, Write: true})
	}
	c.launches[key] = l
	return l
}

// unopened stands for a sum until the lines are open.
type unopened struct {
	of    *collective
	parts []runtime.Span
}

// Kernel implements runtime.Launch.
func (*unopened) Kernel() string { return "sum over replicas" }

// open returns the launch that another one stands for.
func (comp *compilation) open(u *unopened) (runtime.Launch, error) {
	return comp.opt.World.Transport.Sum(u.of.number, u.parts)
}

// openSums opens the lines of all collectives.
func (comp *compilation) openSums() error {
	var lines []world.Line
	for s, c := range comp.collectives {
		if c == nil {
			continue
		}
		l := world.Line{Name: fmt.Sprintf("gradients of stage %d", s)}
		for _, d := range c.line {
			if l.Ranks = append(l.Ranks, comp.opt.World.Ranks[d]); comp.opt.World.has(d) {
				l.Device = comp.driver(d).Dev
			}
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil
	}
	return comp.opt.World.Transport.OpenSums(lines)
}

// meet lets a driver go on, in a dry run, when all others of a line are about to issue their parts of the same sum, too.
func (d sumCompiler) meet(ctx context.Context, c *collective, stage, number int) error {
	at := slices.Index(c.line, d.Number)
	if at > 0 {
		c.come[at] <- number
		d.noteTurn(table.DoGive, c.turns[0][at])
		_, err := receive(ctx, c.gone[at])
		d.noteTurn(table.DoTake, c.turns[1][at])
		return err
	}
	for i := 1; i < len(c.line); i++ {
		other, err := receive(ctx, c.come[i])
		if err != nil {
			return err
		}
		if d.noteTurn(table.DoTake, c.turns[0][i]); other != number {
			return fmt.Errorf("%w: devices %d and %d add up other gradients of stage %d at one time", order.ErrPlan, c.line[0], c.line[i], stage)
		}
	}
	for i := 1; i < len(c.line); i++ {
		c.gone[i] <- number
		d.noteTurn(table.DoGive, c.turns[1][i])
	}
	return nil
}
