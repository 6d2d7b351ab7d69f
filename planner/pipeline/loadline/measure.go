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
	Kept              int64   // K: bytes between the two parts, the input of the stage included
	Peak              int64   // R: most bytes inside a part, the input included
}

// Measure replays the ops of a stage. Errors: ErrOps.
func Measure(c *chain.Chain, st pipeline.Stage) (Cost, error) {
	turn, err := legal(c, st)
	if err != nil {
		return Cost{}, err
	}
	m := &meter{c: c, holds: map[int]content{}}
	m.put(st.First-1, content{bytes: c.Activation(st.First - 1)})
	m.take(m.holds[st.First-1].bytes)
	for p, op := range st.Ops {
		if p == turn {
			m.turn(st.Last)
		}
		m.run(op)
	}
	return Cost{Forward: m.forward, Backward: m.seconds, Kept: m.kept, Peak: m.peak}, nil
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
		if op.Kind.Transfer() {
			return 0, fmt.Errorf("%w: op %d (%v): a stage of a pipeline has no transfers of its own", ErrOps, p, op)
		}
		if op.Layer < st.First || op.Layer > st.Last {
			return 0, fmt.Errorf("%w: op %d (%v): the stage has layers %d to %d", ErrOps, p, op, st.First, st.Last)
		}
		seq = append(seq, schedule.Op{Kind: op.Kind, Layer: op.Layer - st.First + 1})
		if op.Layer == st.Last && turn < 0 {
			turn = p + 1
			seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: rest}, schedule.Op{Kind: schedule.Backward, Layer: rest})
		}
	}
	if err := schedule.Verify(part, seq); err != nil {
		return 0, fmt.Errorf("%w: layers %d to %d, counted from 1, the last one the rest of the pipeline: %w", ErrOps, st.First, st.Last, err)
	}
	return turn, nil
}

// meter is the memory of one minibatch in a stage while its ops run. The ops are legal.
type meter struct {
	c          *chain.Chain
	holds      map[int]content // by activation
	used, peak int64
	kept       int64
	forward    float64
	seconds    float64 // of the part that runs
}

// content is a_i, or ā_i.
type content struct {
	bytes int64
	saved bool
}

// take adds bytes to what is used.
func (m *meter) take(bytes int64) {
	m.used += bytes
	m.peak = max(m.peak, m.used)
}

// put stores an activation whose bytes have been taken.
func (m *meter) put(i int, x content) { m.holds[i] = x }

// drop frees an activation.
func (m *meter) drop(i int) {
	m.used -= m.holds[i].bytes
	delete(m.holds, i)
}

// turn ends F, when a plain output of the last layer goes, and begins B, when its gradient comes.
func (m *meter) turn(last int) {
	if !m.holds[last].saved {
		m.drop(last)
	}
	m.kept, m.forward, m.seconds = m.used, m.seconds, 0
	m.take(m.c.Gradient(last))
}

func (m *meter) run(op schedule.Op) {
	layer := m.c.Layer(op.Layer)
	if op.Kind == schedule.Backward {
		m.backward(op.Layer)
		return
	}
	made, overhead, seconds := content{bytes: layer.OutputBytes}, layer.DiscardOverhead(), layer.DiscardSeconds()
	if op.Kind == schedule.ForwardAll {
		made, overhead, seconds = content{layer.SavedBytes, true}, layer.ForwardOverheadBytes, layer.ForwardS
	}
	m.seconds += seconds
	m.take(made.bytes + overhead)
	m.used -= overhead
	if op.Kind == schedule.ForwardDiscard {
		m.drop(op.Layer - 1)
	}
	have, there := m.holds[op.Layer]
	if have.saved && !made.saved {
		m.used -= made.bytes // it is there already
		return
	}
	if there {
		m.drop(op.Layer)
	}
	m.put(op.Layer, made)
}

func (m *meter) backward(l int) {
	layer := m.c.Layer(l)
	m.seconds += layer.BackwardS
	m.take(m.c.Gradient(l-1) + layer.BackwardOverheadBytes)
	m.used -= layer.BackwardOverheadBytes + m.c.Gradient(l)
	m.drop(l)
	if !m.holds[l-1].saved {
		m.drop(l - 1)
	}
}
