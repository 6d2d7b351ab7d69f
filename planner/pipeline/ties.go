package pipeline

import (
	"fmt"
	"math/big"
	"slices"
)

// tied finds what the stages of a plan with a flush share and train. It refuses replicas that would divide the gradients of shared weights, and
// devices that no link joins.
func (a *arranger) tied() {
	a.ties = nil
	for i := range a.chain.Len() {
		bytes := a.chain.SummedWeights(i + 1)
		if !a.plan.IsFlush() || !a.chain.Shares(i+1) || bytes == 0 {
			continue
		}
		o := a.chain.Owner(i + 1)
		x := tie{owner: stageWith(a.plan, o), reader: stageWith(a.plan, i+1), bytes: bytes}
		if a.unfit = undividedTie(a.layout, x); a.unfit != nil {
			return
		}
		if x.owner == x.reader {
			continue
		}
		owners, readers := a.plan.Line(x.owner), a.plan.Line(x.reader)
		x.sums, x.renewals = messagesTo(owners, readers), messagesTo(readers, owners)
		for _, ends := range x.messages() {
			if a.platform.Beta(ends[0], ends[1]) == 0 {
				a.unfit = fmt.Errorf("%w: stages %d and %d share weights of layer %d (%s), and no link joins their devices %d and %d", ErrPlatform,
					x.owner, x.reader, o, a.chain.Layer(o).Name, min(ends[0], ends[1]), max(ends[0], ends[1]))
				return
			}
		}
		a.ties = append(a.ties, x)
	}
}

// undividedTie refuses, with ErrPlan, replicas that have parts of the gradients of shared weights.
func undividedTie(l *layout, x tie) error {
	for _, s := range []int{x.owner, x.reader} {
		if n := len(l.plan.Line(s)); l.sharded() && n > 1 {
			return fmt.Errorf("%w: field \"zero\" is %d: its %d replicas would have parts of the gradients of weights that layers share, in stage %d: leave \"zero\" out", ErrPlan, l.plan.Zero, n, s)
		}
	}
	return nil
}

// stageWith returns the stage of a layer.
func stageWith(p *Plan, layer int) int {
	return slices.IndexFunc(p.Stages, func(st Stage) bool { return st.First <= layer && layer <= st.Last })
}

// messagesTo returns the messages by which each device gets what all of others have, unless it is one of these.
func messagesTo(devices, others []int) (all [][2]int) {
	for i, d := range devices {
		if !slices.Contains(others, d) && len(others) > 0 {
			all = append(all, [2]int{others[i%len(others)], d})
		}
	}
	return all
}

// withTies returns the makespan of a plan with the messages of weights that stages share; span is that without.
func withTies(l *layout, span ticks) ticks {
	if len(l.ties) == 0 {
		return span
	}
	a := &arranger{l}
	return exchangeTied(l, span, tieTimes[ticks]{
		end:    func(j *job) ticks { return j.end() },
		length: func(bytes int64, from, to int) ticks { return a.message(bytes, l.platform.Beta(from, to)) },
		add:    add, less: less, zero: new(big.Int),
	})
}

// tieTimes are the times of a layout, exact or simulated.
type tieTimes[T any] struct {
	end    func(j *job) T
	length func(bytes int64, from, to int) T
	add    func(x, y T) T
	less   func(x, y T) bool
	zero   T
}

// exchangeTied returns when the messages of all weights that stages share have ended. A device sends what belongs to one tie to all devices at
// once, and what belongs to the next one behind it.
func exchangeTied[T any](l *layout, span T, t tieTimes[T]) T {
	sent, renewed := map[int]T{}, map[int]T{}
	for _, x := range l.ties {
		t.send(x.bytes, x.sums, sent, func(device int) T { return t.summed(l, x.reader, device) })
	}
	judged := t.latest(span, sent)
	for _, x := range l.ties {
		t.send(x.bytes, x.renewals, renewed, func(int) T { return judged })
	}
	return t.latest(judged, renewed)
}

// later returns the later one of two times.
func (t tieTimes[T]) later(x, y T) T {
	if t.less(x, y) {
		return y
	}
	return x
}

func (t tieTimes[T]) latest(at T, all map[int]T) T {
	for _, x := range all {
		at = t.later(at, x)
	}
	return at
}

// send lets devices send, each when it is free: from when it begins, unless it has sent before.
func (t tieTimes[T]) send(bytes int64, messages [][2]int, free map[int]T, begin func(device int) T) {
	ends := map[int]T{}
	for _, m := range messages {
		from := m[0]
		if _, known := free[from]; !known {
			free[from] = begin(from)
		}
		if _, known := ends[from]; !known {
			ends[from] = free[from]
		}
		ends[from] = t.later(ends[from], t.add(free[from], t.length(bytes, from, m[1])))
	}
	for from, at := range ends {
		free[from] = at
	}
}

// summed returns when a device has done its tasks, and the sums of a stage over its replicas are there.
func (t tieTimes[T]) summed(l *layout, stage, device int) T {
	end := t.zero
	for _, j := range l.jobs {
		if own := !j.onLink() && j.device == device; own || j.bucket != nil && j.stage == stage {
			end = t.later(end, t.end(j))
		}
	}
	return end
}

// receivesTied returns the bytes of the blocks of a device for gradients of weights that stages share.
func (c account) receivesTied(device int) (bytes int64) {
	for _, x := range c.ties {
		for _, ends := range x.sums {
			if ends[1] == device && !c.platform.NoBuffers {
				bytes += x.bytes
			}
		}
	}
	return bytes
}
