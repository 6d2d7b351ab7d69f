package executor

import (
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// static says where the memory lies that lives throughout, at the bottom of the arena.
type static struct {
	layers    []staticLayer
	labels    runtime.Span
	scalars   runtime.Span
	partials  runtime.Span // of the guard
	workspace runtime.Span // of the updates
	norm      runtime.Span // of the gradients
	palette   []float32    // of images that are bytes; nil where no batch is staged
	staged    int64        // bytes for the next batch and the palette
	bytes     int64        // of all of it
}

// resultBytes is what a step's result takes: the norm, and behind it the loss and two counts.
const (
	normBytes   = 4
	resultBytes = 28
)

// staticLayer is the memory of one layer's parameters.
type staticLayer struct {
	params, grads runtime.Span
	states        []runtime.Span
	stateAt       []map[int64]int64      // of each state: see StateLayout
	tied          map[int64]runtime.Span // of parameters of other layers, by their offset in the Params block
}

// placeStatic places the static memory; with a palette, that of the next batch, too.
func (w *Workload) placeStatic(palette []float32) static {
	m := w.Model
	s := static{palette: palette}
	take := func(bytes int64) runtime.Span {
		span := runtime.Span{Offset: s.bytes, Bytes: bytes}
		s.bytes += kernels.Align(bytes)
		return span
	}
	for i, p := range w.Layers {
		l := staticLayer{params: take(p.ParamBytes - m.Layers[i].TiedBytes()), grads: take(p.GradBytes)}
		for k := range w.Optimizer.States() {
			at, bytes := StateLayout(w.Optimizer, m.Layers[i], k)
			l.states, l.stateAt = append(l.states, take(bytes)), append(l.stateAt, at)
		}
		s.layers = append(s.layers, l)
		s.tie(i, m.Layers[i])
	}
	s.labels, s.scalars = take(m.Labels.Bytes()), take(kernels.ScalarsBytes)
	s.partials, s.workspace = take(8*partials(m)), take(slices.Max(w.UpdateWorkspaces))
	s.norm = take(resultBytes).Part(0, normBytes)
	if start := s.bytes; palette != nil {
		take(lookup(m.Input).TableBytes())
		for range m.Wiring().Inputs() {
			take(m.Input.Elements())
		}
		take(m.Labels.Bytes())
		s.staged = s.bytes - start
	}
	return s
}

// tie finds the parameters of layer i, from 0, that are those of earlier layers.
func (s *static) tie(i int, l *models.Layer) {
	for _, q := range l.Tied() {
		if s.layers[i].tied == nil {
			s.layers[i].tied = map[int64]runtime.Span{}
		}
		s.layers[i].tied[q.Value.Offset] = s.layers[q.Of.Layer-1].params.Part(q.Of.Value.Offset, q.Desc.Bytes())
	}
}

// operand returns where the ops of a layer find a parameter.
func (l *staticLayer) operand(ref models.Ref) runtime.Span {
	if span, tied := l.tied[ref.Offset]; tied {
		return span
	}
	return l.params.Part(ref.Offset, ref.Bytes)
}

// partials counts the guard's partial sums.
func partials(m *models.Model) int64 {
	n := int64(0)
	for _, p := range m.Params() {
		if p.Trained {
			n += kernels.GuardPartials(p.Desc.Elements())
		}
	}
	return n
}
