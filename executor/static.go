package executor

import (
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Static says where the memory lies that lives throughout, at the bottom of the arena.
type Static struct {
	Layers    []StaticLayer
	Labels    runtime.Span
	Scalars   runtime.Span
	Partials  runtime.Span // of the guard
	Workspace runtime.Span // of the updates
	Norm      runtime.Span // of the gradients
	palette   []float32    // of images that are bytes; nil where no batch is staged
	staged    int64        // bytes for the next batch and the palette
	bytes     int64        // of all of it
}

// resultBytes is the size of a step's result: the norm, and after it the loss and two counts.
const (
	normBytes   = 4
	resultBytes = 28
)

// StaticLayer is the memory of one layer's parameters.
type StaticLayer struct {
	Params, Grads runtime.Span
	States        []runtime.Span
	stateAt       []map[int64]int64      // of each state: see StateLayout
	tied          map[int64]runtime.Span // of parameters of other layers, by their offset in the Params block
}

// placeStatic places the static memory of a compiled model whose updates take some workspaces, by layer; with a palette, that of the next
// batch, too.
func placeStatic(m *models.Model, layers []*models.Programs, opt kernels.Update, workspaces []int64, palette []float32) Static {
	s := Static{palette: palette}
	take := func(bytes int64) runtime.Span {
		span := runtime.Span{Offset: s.bytes, Bytes: bytes}
		s.bytes += kernels.Align(bytes)
		return span
	}
	for i, p := range layers {
		tied, _ := m.Layers[i].TiedBytes()
		l := StaticLayer{Params: take(p.ParamBytes - tied), Grads: take(p.GradBytes)}
		for k := range opt.States() {
			at, bytes := StateLayout(opt, m.Layers[i], k)
			l.States, l.stateAt = append(l.States, take(bytes)), append(l.stateAt, at)
		}
		s.Layers = append(s.Layers, l)
		s.tie(i, m.Layers[i])
	}
	s.Labels, s.Scalars = take(m.Labels.Bytes()), take(kernels.ScalarsBytes)
	s.Partials, s.Workspace = take(8*partials(m)), take(slices.Max(workspaces))
	s.Norm = take(resultBytes).Part(0, normBytes)
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
func (s *Static) tie(i int, l *models.Layer) {
	for _, q := range l.Tied() {
		if s.Layers[i].tied == nil {
			s.Layers[i].tied = map[int64]runtime.Span{}
		}
		s.Layers[i].tied[q.Value.Offset] = s.Layers[q.Of.Layer-1].Params.Part(q.Of.Value.Offset, q.Desc.Bytes())
	}
}

// operand returns where the ops of a layer find a parameter.
func (l *StaticLayer) operand(ref models.Ref) runtime.Span {
	if span, tied := l.tied[ref.Offset]; tied {
		return span
	}
	return l.Params.Part(ref.Offset, ref.Bytes)
}

// State returns where state k of a parameter lies.
func (l *StaticLayer) State(k int, q models.Parameter) runtime.Span {
	return l.States[k].Part(l.stateAt[k][q.Grad.Offset], q.Desc.Bytes())
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

func lookup(input kernels.Desc) kernels.Lookup {
	return kernels.Lookup{Elements: input.Elements(), Channels: input.Shape[len(input.Shape)-1]}
}
