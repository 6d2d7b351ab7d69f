package pipeline

import (
	"context"
	"slices"

	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
)

// baton orders the messages of two devices whose link carries one at a time (thesis, section 6.1): a message waits for the
// one that the plan has before it, also when that goes the other way.
type baton struct {
	ends   [2]int
	turns  []turn // of the link, in the order of the plan, for one period
	passed [2]chan struct{}
	event  [2]runtime.Event // by end: its latest message before it passed the baton
	need   [2][]bool        // by end, for each of its messages of a run: the one before is the other's
	pass   [2][]bool        // likewise: the one behind is the other's
	next   [2]int           // by end: its next message
}

// newBatons returns those of the links that carry messages both ways, by the two ends in ascending order.
func newBatons(o *order, p *pipeline.Platform) map[[2]int]*baton {
	all := map[[2]int]*baton{}
	if p.Duplex {
		return all
	}
	for from, turns := range o.turns {
		for _, t := range turns {
			if !t.kind.Communication() || p.Beta(from, t.to) == pipeline.Free() {
				continue
			}
			ends := [2]int{min(from, t.to), max(from, t.to)}
			if all[ends] == nil {
				all[ends] = &baton{ends: ends, passed: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
			}
			all[ends].turns = append(all[ends].turns, t)
		}
	}
	for _, b := range all {
		o.sort(b.turns)
	}
	return all
}

// end returns the index of a device.
func (b *baton) end(device int) int { return slices.Index(b.ends[:], device) }

// begin finds, for a run of n minibatches, where the link changes its direction.
func (b *baton) begin(o *order, n int) {
	var from []int // the ends that send, message by message
	_ = o.every(b.turns, n, func(v visit) error {
		from = append(from, 1-b.end(v.to))
		return nil
	}, func() error { return nil })
	for e := range b.ends {
		b.need[e], b.pass[e], b.next[e] = b.need[e][:0], b.pass[e][:0], 0
		for len(b.passed[e]) > 0 {
			<-b.passed[e]
		}
	}
	for i, e := range from {
		b.need[e] = append(b.need[e], i > 0 && from[i-1] != e)
		b.pass[e] = append(b.pass[e], i+1 < len(from) && from[i+1] != e)
	}
}

// take waits for the baton, if the next message of a device needs it.
func (b *baton) take(ctx context.Context, device int, q queue) error {
	if b == nil {
		return nil
	}
	e := b.end(device)
	if !b.need[e][b.next[e]] {
		return nil
	}
	select {
	case <-b.passed[1-e]:
		return q.wait(b.event[1-e])
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// give passes the baton behind a message, if the next one is the other's.
func (b *baton) give(device int, q queue) error {
	if b == nil {
		return nil
	}
	e := b.end(device)
	b.next[e]++
	if !b.pass[e][b.next[e]-1] {
		return nil
	}
	if err := q.record(b.event[e]); err != nil {
		return err
	}
	b.passed[e] <- struct{}{}
	return nil
}
