//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/runtime"
)

// hardFloats returns n values of every kind: of all magnitudes, subnormal ones, zeros, infinities, NaN.
func hardFloats(r *rand.Rand, n int64) []float32 {
	v := make([]float32, n)
	for i := range v {
		switch r.IntN(4) {
		case 0: // any bits
			v[i] = math.Float32frombits(r.Uint32())
		case 1: // subnormal, either sign
			v[i] = math.Float32frombits(r.Uint32() & 0x807fffff)
		case 2:
			v[i] = []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-19, 1e19, 1}[r.IntN(8)]
		default:
			v[i] = r.Float32()*2 - 1
		}
	}
	return v
}

// inHostSpace moves an update's operands to the same offsets of the host memory.
func inHostSpace(o kernels.UpdateOperands) kernels.UpdateOperands {
	move := func(s runtime.Span) runtime.Span { s.Space = runtime.Host; return s }
	h := o
	h.Param, h.Grad, h.Rounded, h.Scalars, h.States = move(o.Param), move(o.Grad), move(o.Rounded), move(o.Scalars), nil
	for _, s := range o.States {
		h.States = append(h.States, move(s))
	}
	return h
}

// TestHostUpdates: updates of the host's memory give the bits of the GPU's, for values of every kind, any number of elements, threads and
// earlier updates. One NaN is as good as another: a GPU has one.
func TestHostUpdates(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	compared := 0
	rules := append([]kernels.Update{kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.05}}, updates...) // of what is no matrix
	for i, u := range rules {
		for k, n := range []int64{1, 5, 16, 33, 17_000} {
			host, err := library.OpenHost(b.device, library.Options{Threads: 1 + k%2})
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			o := newOptimizer(u, n, 0)
			for _, s := range append([]runtime.Span{o.operands.Param, o.operands.Grad}, o.operands.States...) {
				o.put(s, hardFloats(r, n))
			}
			o.operands.Earlier = []uint64{0, 1, 7, 1000, 1 << 33}[(i+k)%5]
			o.scalars(kernels.Scalars{LR: 0.01, GradScale: 0.5})
			onDevice, err := l.PrepareUpdate(u, o.operands)
			if err != nil {
				t.Fatal(err)
			}
			want := b.run(t, o.memory, onDevice)
			got := updatedOnHost(t, b, host, u, o)
			what := fmt.Sprintf("%+v, %d elements", u, n)
			sameFloats(t, what, o.withoutRounded(got), o.withoutRounded(want))
			onHost, copied := o.copyOf(got), o.copyOf(want)
			for j, w := range copied {
				if onHost[j] != w && !(math.IsNaN(w) && math.IsNaN(onHost[j])) {
					t.Fatalf("%s: parameter %d in bfloat16 is %v on the host, %v on the device", what, j, onHost[j], w)
				}
			}
			compared += int(n)
		}
	}
	if want := 9 * (1 + 5 + 16 + 33 + 17_000); compared != want {
		t.Errorf("compared %d elements, want %d", compared, want)
	}
}

// updatedOnHost returns the memory behind an update in the host space.
func updatedOnHost(t *testing.T, b *bench, host kernels.Updater, u kernels.Update, o *optimizer) []byte {
	t.Helper()
	launch, err := host.PrepareUpdate(u, inHostSpace(o.operands))
	if err != nil {
		t.Fatal(err)
	}
	copy(b.host, o.memory)
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
	return b.host[:len(o.memory)]
}

// TestHostGuards: partial sums of squares of gradients in host memory have the bits of the GPU's, of more gradients than one launch has
// room for.
func TestHostGuards(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	host, err := library.OpenHost(b.device, library.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	var memory []byte
	var o kernels.GuardOperands
	for k := range 300 {
		n := []int64{1, 7, 8, 9, 257, kernels.GuardChunk, kernels.GuardChunk + 13}[k%7]
		s := runtime.Span{Offset: int64(len(memory)), Bytes: 4 * n}
		memory = append(memory, make([]byte, kernels.Align(4*n))...)
		copy(floats(memory[s.Offset:s.End()]), hardFloats(r, n))
		if k%5 > 0 { // infinities and NaN would be all that is left of most sums
			copy(floats(memory[s.Offset:s.End()]), random(r, n))
		}
		o.Grads = append(o.Grads, s)
	}
	o.Partials = runtime.Span{Offset: int64(len(memory)), Bytes: 8 * o.Parts()}
	memory = append(memory, make([]byte, o.Partials.Bytes)...)
	launch, err := l.PrepareGuard(kernels.Guard{}, o)
	if err != nil {
		t.Fatal(err)
	}
	want := b.run(t, memory, launch)[o.Partials.Offset:]
	o.Partials.Space = runtime.Host
	for i := range o.Grads {
		o.Grads[i].Space = runtime.Host
	}
	if launch, err = host.PrepareGuard(kernels.Guard{}, o); err != nil {
		t.Fatal(err)
	}
	copy(b.host, memory)
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
	got := b.host[o.Partials.Offset:o.Partials.End()]
	numbers := 0
	for i := range o.Parts() {
		g, w := math.Float64frombits(binary.LittleEndian.Uint64(got[8*i:])), math.Float64frombits(binary.LittleEndian.Uint64(want[8*i:]))
		if g != w && (g == g || w == w) {
			t.Errorf("partial sum %d is %x on the host, %x on the device", i, g, w)
		}
		if g > 0 && !math.IsInf(g, 0) {
			numbers++
		}
	}
	if numbers < 240 {
		t.Errorf("%d of %d partial sums are numbers: a poor test", numbers, o.Parts())
	}
}

func sameFloats(t *testing.T, what string, got, want []byte) {
	t.Helper()
	g, w := floats(got), floats(want)
	for i := range w {
		if math.Float32bits(g[i]) != math.Float32bits(w[i]) && (g[i] == g[i] || w[i] == w[i]) {
			t.Fatalf("%s: word %d is %x on the host, %x on the device", what, i, math.Float32bits(g[i]), math.Float32bits(w[i]))
		}
	}
}

// TestHostUpdatesRefuse: a matrix of Muon has no bits of the GPU's on the host, and operands in the arena are not the host's.
func TestHostUpdatesRefuse(t *testing.T) {
	b := newBench(t)
	host, err := library.OpenHost(b.device, library.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := kernels.Matrix{Rows: 3, Columns: 3}
	if _, err := host.UpdateWorkspace(muon, m); !errors.Is(err, kernels.ErrNoKernel) {
		t.Errorf("the workspace of a matrix of Muon: %v", err)
	}
	if _, err := host.PrepareUpdate(muon, kernels.UpdateOperands{Elements: 9, Matrix: m}); !errors.Is(err, kernels.ErrNoKernel) {
		t.Errorf("a matrix of Muon: %v", err)
	}
	if bytes, err := host.UpdateWorkspace(kernels.AdamW{}, m); bytes != 0 || err != nil {
		t.Errorf("the workspace of AdamW is %d bytes, %v", bytes, err)
	}
	o := newOptimizer(updates[0], 4, 0)
	if _, err := host.PrepareUpdate(updates[0], o.operands); !errors.As(err, new(*runtime.SpanError)) {
		t.Errorf("operands in the arena: %v", err)
	}
	if _, err := libraries(t, b)[0].PrepareUpdate(updates[0], inHostSpace(o.operands)); !errors.As(err, new(*runtime.SpanError)) {
		t.Errorf("operands in host memory, on the device: %v", err)
	}
}
