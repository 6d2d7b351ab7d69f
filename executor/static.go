package executor

import (
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// static says where the memory lies that lives as long as the executor, at the bottom of the arena.
type static struct {
	layers    []staticLayer
	labels    runtime.Span
	scalars   runtime.Span
	partials  runtime.Span // of the guard
	workspace runtime.Span // of the updates
	result    runtime.Span // the loss at lossAt, the norm of the gradients at normAt
	staged    staging      // of the batch of the next step
	bytes     int64
	hostState hostState // what lives in host memory instead
}

// Where a step's result holds what: float32 loss, number of correct predictions and that of labels that count; float32 norm.
const (
	normAt    = 0
	normBytes = 4
	lossAt    = 16
	lossBytes = 12
)

// resultBytes is the size of a step's result. With offloaded weights each layer has a norm.
func resultBytes(layers int, mode Offloading) int64 {
	if mode == OffloadWeights {
		return max(layerNormAt(layers)+normBytes, lossAt+lossBytes)
	}
	return lossAt + lossBytes
}

// staticLayer is the memory of one layer's parameters.
type staticLayer struct {
	params, grads runtime.Span
	states        []runtime.Span
	stateAt       []map[int64]int64      // of each state, see StateLayout; nil: states lie as gradients do
	places        map[int64]place        // of the parameters, by their offset in the Params block; none where that is params itself
	tied          map[int64]runtime.Span // of those of other layers, likewise
}

func (w *Workload) placeStatic(mode Offloading, palette []float32) static {
	m, layers, opt := w.Model, w.Layers, w.Optimizer
	s := static{hostState: newHostState(m, layers, opt, mode), staged: staging{palette: palette}}
	take := func(bytes int64) runtime.Span {
		span := runtime.Span{Offset: s.bytes, Bytes: bytes}
		s.bytes += kernels.Align(bytes)
		return span
	}
	s.hostState.open(layers, take)
	for i, p := range layers {
		if mode != OffloadNothing {
			s.layers = append(s.layers, s.hostState.layer(i, p, m.Layers[i], take))
		} else {
			tied := m.Layers[i].TiedBytes()
			l := staticLayer{params: take(p.ParamBytes - tied), grads: take(p.GradBytes)}
			for k := range opt.States() {
				at, bytes := StateLayout(opt, m.Layers[i], k)
				l.states, l.stateAt = append(l.states, take(bytes)), append(l.stateAt, at)
			}
			s.layers = append(s.layers, l)
		}
		s.tie(i, m.Layers[i])
	}
	s.labels = take(m.Labels.Bytes())
	s.scalars = take(kernels.ScalarsBytes)
	s.partials = take(8 * partials(m))
	s.workspace = take(slices.Max(w.UpdateWorkspaces))
	s.result = take(resultBytes(len(layers), mode))
	s.staged.open(m.Input, m.Wiring().Inputs(), s.labels.Bytes, take)
	return s
}

// tie finds the parameters of layer i, from 0, that are those of earlier layers.
func (s *static) tie(i int, l *models.Layer) {
	for _, q := range l.Tied() {
		if s.layers[i].tied == nil {
			s.layers[i].tied = map[int64]runtime.Span{}
		}
		s.layers[i].tied[q.Value.Offset] = s.value(q.Of.Layer, *q.Of)
	}
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
