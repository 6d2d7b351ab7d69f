package pipeline

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
)

// findTies finds the messages of weights that stages of a plan with a flush share and train. It refuses replicas that would divide their
// gradients, and devices that no link joins.
func (a *arranger) findTies() {
	a.ties = nil
	if !a.plan.IsFlush() {
		return
	}
	for _, x := range trainedTies(a.layout) {
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
					x.owner, x.reader, x.layer, a.chain.Layer(x.layer).Name, min(ends[0], ends[1]), max(ends[0], ends[1]))
				return
			}
		}
		a.ties = append(a.ties, x)
	}
}

// trainedTies returns the weights that two layers share and train, in the order of the layers that read them, without messages.
func trainedTies(l *layout) (all []tie) {
	for i := range l.chain.Len() {
		if bytes := l.chain.SummedWeights(i + 1); l.chain.Shares(i+1) && bytes > 0 {
			o := l.chain.Owner(i + 1)
			all = append(all, tie{owner: stageWith(l.plan, o), reader: stageWith(l.plan, i+1), layer: o, bytes: bytes})
		}
	}
	return all
}

// warnOfTies says which stages of a plan without a flush share weights: a run refuses that.
func warnOfTies(l *layout) (warnings []string) {
	for _, x := range trainedTies(l) {
		if x.owner != x.reader && !l.plan.IsFlush() {
			warnings = append(warnings, fmt.Sprintf("stages %d and %d share weights and update them at different times, which train refuses: give a plan with a flush", x.owner, x.reader))
		}
	}
	return warnings
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

// exchangeTied returns when the messages of all weights that stages share have ended. A device sends what belongs to a tie behind its messages
// of the tie before, and each message follows all others on its link.
func exchangeTied[T any](l *layout, span T, t tieTimes[T]) T {
	e := &tieExchange[T]{l, t, map[int]T{}, map[resource]T{}}
	judged := span
	for _, x := range l.ties {
		judged = t.laterOf(judged, e.send(x.bytes, x.sums, func(device int) T { return t.sumsEnd(l, x.reader, device) }))
	}
	end := judged
	for _, x := range l.ties {
		end = t.laterOf(end, e.send(x.bytes, x.renewals, func(int) T { return judged }))
	}
	return end
}

// tieExchange has the times at which devices and links have ended their messages.
type tieExchange[T any] struct {
	*layout
	tieTimes[T]
	devices map[int]T
	links   map[resource]T
}

// send returns when some messages have ended, each of which a device may send from some time on.
func (e *tieExchange[T]) send(bytes int64, messages [][2]int, ready func(device int) T) T {
	last, ends := e.zero, map[int]T{}
	for _, m := range messages {
		on := e.resource(&job{kind: CF, from: m[0], to: m[1]})
		start := e.laterOf(ready(m[0]), e.linkEnd(on))
		if sent, known := e.devices[m[0]]; known {
			start = e.laterOf(start, sent)
		}
		end := e.add(start, e.length(bytes, m[0], m[1]))
		e.links[on], last = end, e.laterOf(last, end)
		if before, known := ends[m[0]]; !known || e.less(before, end) {
			ends[m[0]] = end
		}
	}
	maps.Copy(e.devices, ends)
	return last
}

// linkEnd returns when the latest message on a link has ended.
func (e *tieExchange[T]) linkEnd(on resource) T {
	if end, known := e.links[on]; known {
		return end
	}
	end := e.zero
	for _, j := range e.jobs {
		if j.onLink() && e.resource(j) == on {
			end = e.laterOf(end, e.end(j))
		}
	}
	return end
}

// laterOf returns the later one of two times.
func (t tieTimes[T]) laterOf(x, y T) T {
	if t.less(x, y) {
		return y
	}
	return x
}

// sumsEnd returns when a device has done its tasks, and the sums of a stage over its replicas are there.
func (t tieTimes[T]) sumsEnd(l *layout, stage, device int) T {
	end := t.zero
	for _, j := range l.jobs {
		if own := !j.onLink() && j.device == device; own || j.bucket != nil && j.stage == stage {
			end = t.laterOf(end, t.end(j))
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
