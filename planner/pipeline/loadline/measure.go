package loadline

import (
	"errors"
	"fmt"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
)

// ErrOps: the ops of a stage are not what a stage can run; the message names the stage and the op.
var ErrOps = errors.New("bad ops of a stage")

// Cost is what the ops of a stage cost one minibatch.
type Cost struct {
	Forward, Backward float64 // seconds
	Kept              int64   // K: bytes between the two parts, the input of the stage included, if nothing were offloaded
	Peak              int64   // R: most bytes inside a part, the input included, if nothing were offloaded

	changes []change // of memory, in the order of the ops, if nothing were offloaded
	moves   []move   // what is offloaded and prefetched, in the order of the offloads
	fetches []int    // the moves, in the order of the prefetches
	floor   int64    // of sequences that are candidates: bytes that they need whatever the rhythm
}

// change is bytes that a minibatch takes, or frees if negative, so many seconds after its F or B has begun.
type change struct {
	at    float64
	back  bool
	bytes int64
}

// Measure replays the ops of a stage. Errors: ErrOps.
func Measure(c *chain.Chain, st pipeline.Stage) (Cost, error) {
	turn, err := legal(c, st)
	if err != nil {
		return Cost{}, err
	}
	m := &meter{c: c, holds: map[int]activation{}}
	m.put(st.First-1, activation{bytes: c.Activation(st.First - 1)})
	m.change(m.holds[st.First-1].bytes)
	for p, op := range st.Ops {
		if p == turn {
			m.turn(st.Last)
		}
		if err := m.run(p, op); err != nil {
			return Cost{}, err
		}
	}
	m.change(-m.used) // δ_{i-1}, and what nobody needs, go when B ends
	return Cost{Forward: m.forward, Backward: m.seconds, Kept: m.kept, Peak: m.peak, changes: m.changes, moves: m.moves, fetches: m.fetched()}, nil
}

// legal verifies the ops as a sequence of the stage's layers and one layer more, which costs nothing and stands for the rest of
// the pipeline: it runs when F has ended. It returns the position of the first op of B.
func legal(c *chain.Chain, st pipeline.Stage) (turn int, err error) {
	part := &chain.Chain{Name: c.Name, InputBytes: c.Activation(st.First - 1)}
	part.Layers = append(append(part.Layers, c.Layers[st.First-1:st.Last]...), chain.Layer{Name: "turn"})
	rest := part.Len()
	seq := make(schedule.Sequence, 0, len(st.Ops)+2)
	turn = -1
	for p, op := range st.Ops {
		if op.Layer < st.First || op.Layer > st.Last {
			return 0, fmt.Errorf("%w: op %d (%v): the stage has layers %d to %d", ErrOps, p, op, st.First, st.Last)
		}
		seq = append(seq, schedule.Op{Kind: op.Kind, Layer: op.Layer - st.First + 1})
		if op.Layer == st.Last && turn < 0 && !op.Kind.Transfer() {
			turn = p + 1
			seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: rest}, schedule.Op{Kind: schedule.Backward, Layer: rest})
		}
	}
	if err := schedule.Verify(part, seq); err != nil {
		return 0, fmt.Errorf("%w: layers %d to %d, counted from 1, the last one the rest of the pipeline: %w", ErrOps, st.First, st.Last, err)
	}
	return turn, nil
}

// meter is the memory of one minibatch in a stage while its ops run, as if nothing were offloaded. The ops are legal.
type meter struct {
	c          *chain.Chain
	holds      map[int]activation // by activation
	used, peak int64
	changes    []change
	kept       int64
	back       bool // B runs
	forward    float64
	seconds    float64 // of the part that runs
	moves      []move
}

// activation is a_i, or ā_i.
type activation struct {
	bytes int64
	saved bool
}

// change adds bytes to what is used, now.
func (m *meter) change(bytes int64) {
	m.used += bytes
	m.peak = max(m.peak, m.used)
	if bytes != 0 {
		m.changes = append(m.changes, change{m.seconds, m.back, bytes})
	}
}

// put stores an activation whose bytes have been taken.
func (m *meter) put(i int, x activation) { m.holds[i] = x }

// drop frees an activation.
func (m *meter) drop(i int) {
	m.change(-m.holds[i].bytes)
	delete(m.holds, i)
}

// turn ends F, when a plain output of the last layer goes, and begins B, when its gradient comes.
func (m *meter) turn(last int) {
	if !m.holds[last].saved {
		m.drop(last)
	}
	m.kept, m.forward, m.seconds, m.back = m.used, m.seconds, 0, true
	m.change(m.c.Gradient(last))
}

func (m *meter) run(p int, op schedule.Op) error {
	if op.Kind.Transfer() {
		return m.transfer(p, op)
	}
	begin := m.seconds
	if op.Kind == schedule.Backward {
		m.backward(op.Layer)
		m.read(op.Layer, begin)
	} else {
		if i, is := m.away(op); is {
			return fmt.Errorf("%w: op %d (%v): it makes or drops activation %d, which is offloaded and has not been read again", ErrOps, p, op, i)
		}
		m.compute(op)
	}
	m.read(op.Layer-1, begin)
	return nil
}

// compute runs a forward.
func (m *meter) compute(op schedule.Op) {
	layer := m.c.Layer(op.Layer)
	made, overhead, seconds := activation{bytes: layer.OutputBytes}, layer.DiscardOverhead(), layer.DiscardSeconds()
	if op.Kind == schedule.ForwardAll {
		made, overhead, seconds = activation{layer.SavedBytes, true}, layer.ForwardOverheadBytes, layer.ForwardS
	}
	m.change(made.bytes + overhead)
	m.seconds += seconds
	m.change(-overhead)
	if op.Kind == schedule.ForwardDiscard {
		m.drop(op.Layer - 1)
	}
	have, there := m.holds[op.Layer]
	if have.saved && !made.saved {
		m.change(-made.bytes) // it is there already
		return
	}
	if there {
		m.drop(op.Layer)
	}
	m.put(op.Layer, made)
}

func (m *meter) backward(l int) {
	layer := m.c.Layer(l)
	m.change(m.c.Gradient(l-1) + layer.BackwardOverheadBytes)
	m.seconds += layer.BackwardS
	m.change(-layer.BackwardOverheadBytes)
	m.change(-m.c.Gradient(l))
	m.drop(l)
	if !m.holds[l-1].saved {
		m.drop(l - 1)
	}
}
