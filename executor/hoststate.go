package executor

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/internal/names"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Offloading says what of the static memory lives in page-locked host memory instead of in the arena, and visits a
// window of the arena when the step needs it. It lifts the thesis's assumption O.6, that weights are not transferred.
type Offloading uint8

const (
	// OffloadNothing keeps everything in the arena.
	OffloadNothing Offloading = iota
	// OffloadOptimizer keeps the optimizer's state on the host. After the last backward it passes through the arena, slice
	// by slice, and each slice is updated there.
	OffloadOptimizer
	// OffloadWeights keeps the weights on the host as well. A layer's weights are in the arena around its ops; its
	// gradients live from its backward to its update, which follows at once. BatchNorm's statistics stay.
	OffloadWeights
)

var offloadings = []string{"none", "optimizer", "weights"}

// String returns the name in flags and files.
func (o Offloading) String() string { return offloadings[o] }

// OffloadingNames are the names that ParseOffloading knows.
func OffloadingNames() []string { return slices.Clone(offloadings) }

// ParseOffloading is the inverse of String.
func ParseOffloading(name string) (Offloading, error) {
	if i := slices.Index(offloadings, name); i >= 0 {
		return Offloading(i), nil
	}
	return 0, names.Unknown(errors.New("unknown"), name, offloadings)
}

// Slots of the windows.
const (
	// stateSlots are those of the optimizer's state: one slice arrives while another is updated and a third leaves.
	stateSlots = 3
	// weightSlots are those of the weights: the next layer's arrive while one computes.
	weightSlots = 2
)

// Bytes of a slice of each state tensor: a share of the whole, so that the window is small beside it, within what a link
// moves at full speed.
const (
	sliceShare    = 16
	shortestSlice = 4 << 10
	longestSlice  = 4 << 20
)

// hostState says where the offloaded memory lives and through which windows it passes. Weights, gradients and each state tensor
// have the same layout: the Grads blocks of all layers, one after another, called a region here.
type hostState struct {
	mode    Offloading
	at      []int64 // per layer, where its block begins in a region
	region  int64   // bytes of a region
	bytes   int64   // of the host slab, from its start
	weights runtime.Span
	states  []runtime.Span // regions

	slice  int64            // bytes of a slice
	apart  []piece          // of a region, that no slice may cut: matrices whose updates are not made by parts
	window [][]runtime.Span // per slot of the arena, a slice of each state tensor
	loaded []runtime.Span   // per slot of the arena, a layer's weights
	grads  runtime.Span     // of the layer whose backward ran last; with weights alone
}

// newHostState lays out the host memory of a mode.
func newHostState(m *models.Model, layers []*models.Programs, opt kernels.Update, mode Offloading) hostState {
	h := hostState{mode: mode}
	if mode == OffloadNothing {
		return h
	}
	for i, p := range layers {
		h.at = append(h.at, h.region)
		for _, q := range m.Layers[i].Params() {
			if q.Matrix.Muons(opt) {
				h.apart = append(h.apart, piece{h.region + q.Grad.Offset, q.Desc.Storage()})
			}
		}
		h.region += kernels.Align(p.GradBytes - m.Layers[i].TiedBytes())
	}
	take := func() runtime.Span {
		span := runtime.Span{Space: runtime.Host, Offset: h.bytes, Bytes: h.region}
		h.bytes += h.region
		return span
	}
	if mode == OffloadWeights {
		h.weights = take()
	}
	for range opt.States() {
		h.states = append(h.states, take())
	}
	h.slice = kernels.Align(min(max(h.region/sliceShare, shortestSlice), longestSlice))
	for _, p := range h.apart {
		h.slice = max(h.slice, p.bytes)
	}
	return h
}

// open takes the windows from the arena.
func (h *hostState) open(layers []*models.Programs, take func(int64) runtime.Span) {
	if h.mode == OffloadNothing {
		return
	}
	for range stateSlots {
		var slot []runtime.Span
		for range h.states {
			slot = append(slot, take(h.slice))
		}
		h.window = append(h.window, slot)
	}
	if h.mode != OffloadWeights {
		return
	}
	largest := slices.MaxFunc(layers, func(a, b *models.Programs) int { return int(a.GradBytes - b.GradBytes) }).GradBytes
	for range weightSlots {
		h.loaded = append(h.loaded, take(largest))
	}
	h.grads = take(largest)
}

// windowBytes returns what the windows take of the arena.
func (h *hostState) windowBytes() (bytes int64) {
	for _, slot := range append(h.window, h.loaded, []runtime.Span{h.grads}) {
		for _, s := range slot {
			bytes += kernels.Align(s.Bytes)
		}
	}
	return bytes
}

// piece is a slice of a region: what passes through one slot of the window at a time.
type piece struct{ at, bytes int64 }

// cut cuts a part of a region into slices.
func (h *hostState) cut(at, bytes int64) (list []piece) {
	for end := at + bytes; at < end; {
		to := min(at+h.slice, end)
		for _, p := range h.apart {
			if p.at < to && to < p.at+p.bytes {
				to = p.at
			}
		}
		list = append(list, piece{at, to - at})
		at = to
	}
	return list
}

// Offload returns the workload with what mode says kept in host memory. Errors: ErrNoState, ErrAtOnce.
func (w *Workload) Offload(mode Offloading) (*Workload, error) {
	if mode == OffloadOptimizer && w.Optimizer.States() == 0 {
		return nil, fmt.Errorf("%w: %s without momentum keeps none", ErrNoState, w.Optimizer.Kind())
	}
	if tied := w.Model.Tied(); mode == OffloadWeights && len(tied) > 0 {
		return nil, fmt.Errorf("%w, and layer %s shares its weights with another: offload the optimizer's state alone", ErrAtOnce, w.Model.Layers[tied[0].Layer-1].Name)
	}
	out := *w
	out.static = w.placeStatic(mode, w.static.staged.palette)
	return &out, nil
}

// HostStateBytes returns the host memory that offloaded state lives in.
func (w *Workload) HostStateBytes() int64 { return w.static.hostState.bytes }

// Offloading returns what lives in host memory.
func (w *Workload) Offloading() Offloading { return w.static.hostState.mode }

// place is where a parameter of a layer lies: a trained one at an offset of the layer's block of the weights' region, and
// of the slot that it visits; a buffer at an offset of the layer's buffers in the arena.
type place struct {
	trained bool
	offset  int64
}

// layer places the memory of layer i, from 0.
func (h *hostState) layer(i int, p *models.Programs, of *models.Layer, take func(int64) runtime.Span) staticLayer {
	var l staticLayer
	tied := of.TiedBytes()
	for _, region := range h.states {
		l.states = append(l.states, region.Part(h.at[i], p.GradBytes-tied))
	}
	if h.mode != OffloadWeights {
		l.params, l.grads = take(p.ParamBytes-tied), take(p.GradBytes)
		return l
	}
	l.grads, l.places = h.grads.Part(0, p.GradBytes), map[int64]place{}
	var buffers int64
	for _, q := range of.Params() {
		l.places[q.Value.Offset] = place{q.Trained, q.Grad.Offset}
		if !q.Trained {
			l.places[q.Value.Offset] = place{offset: buffers}
			buffers += kernels.Align(q.Desc.Bytes())
		}
	}
	l.params = take(buffers)
	return l
}

// value returns where a parameter lives, trained ones in host memory when weights are offloaded.
func (s *static) value(layer int, q models.Parameter) runtime.Span {
	l := &s.layers[layer-1]
	at, moved := l.places[q.Value.Offset]
	switch {
	case !moved:
		return l.params.Part(q.Value.Offset, q.Desc.Bytes())
	case at.trained:
		return s.hostState.weights.Part(s.hostState.at[layer-1]+at.offset, q.Desc.Bytes())
	}
	return l.params.Part(at.offset, q.Desc.Bytes())
}

// operand returns where the ops of a layer find a parameter, when its weights are in a slot.
func (s *static) operand(layer, slot int, ref models.Ref) runtime.Span {
	l := &s.layers[layer-1]
	if span, tied := l.tied[ref.Offset]; tied {
		return span
	}
	at, moved := l.places[ref.Offset]
	switch {
	case !moved:
		return l.params.Part(ref.Offset, ref.Bytes)
	case at.trained:
		return s.hostState.loaded[slot].Part(at.offset, ref.Bytes)
	}
	return l.params.Part(at.offset, ref.Bytes)
}
