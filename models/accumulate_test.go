package models_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/modeltest"
)

// whole fills memory with whole numbers, small enough that every sum of a layer is exact in float32, in whatever order a library takes.
func whole(r *rand.Rand, b []byte) {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = float32(r.IntN(7) - 3)
	}
	modeltest.Put(b, v)
}

// microbatch gives a layer an input and a gradient of whole numbers and runs its forward.
func (h *halved) microbatch(t testing.TB, r *rand.Rand) {
	t.Helper()
	whole(r, h.Bytes(models.Input))
	must(t, h.Run(&h.Programs.Save))
	h.saved = slices.Clone(h.Bytes(models.Output))
	h.gradient = make([]byte, len(h.gradient))
	whole(r, h.gradient)
}

// Two microbatches accumulated are their two gradients added in float32, bit for bit, where the arithmetic is exact: with
// Back and with its halves, on every library.
func TestAccumulatedBits(t *testing.T) {
	t.Parallel()
	b := models.NewBuilder("exact", kernels.F32(2, 8, 8, 3), 5)
	b.Layer("conv", "conv", func(g *models.Graph, x models.Value) models.Value {
		x = g.Op("bias", kernels.Conv2D{Out: 4, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, x)
		return g.MaxPool("pool", g.ReLU("relu", x), 2, 2, 0)
	})
	b.Layer("dense", "dense", func(g *models.Graph, x models.Value) models.Value {
		return g.Concat("cat", x, g.Add("add", g.Conv("left", x, 4, 3, 1), g.Conv("right", x, 4, 1, 1)))
	})
	b.Layer("fc", "fc", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 5) })
	m, err := b.Model()
	must(t, err)
	sums := 0
	for _, lib := range []func(modeltest.Memory) kernels.Library{reference, onCPU} {
		programs, err := m.Compile(models.Accumulation(lib(nil)))
		must(t, err)
		for l := 1; l < len(m.Layers); l++ {
			h := newHalved(t, m, programs, l, lib)
			r := rand.New(rand.NewPCG(uint64(l), 4))
			whole(r, h.Bytes(models.Params))
			h.microbatch(t, r)
			first := h.whole(t, false).grads
			h.microbatch(t, r)
			second := h.whole(t, false).grads
			h.before = first
			want := added(first, second)
			halves, err := h.parts(t, true, func() {})
			if must(t, err); !bytes.Equal(halves.grads, want) || !bytes.Equal(h.whole(t, true).grads, want) {
				t.Errorf("%s, %s: the accumulated gradients are not the sum", lib(nil).Name(), h.Layer.Name)
			}
			sums += len(h.Layer.Params())
		}
	}
	if sums != 2*6 {
		t.Errorf("%d parameters summed", sums)
	}
}

// added adds in float32; what nothing writes stays as it is.
func added(v, w []byte) []byte {
	sum := slices.Clone(v)
	x, y := modeltest.Floats(v), modeltest.Floats(w)
	for i := range x {
		if x[i] == x[i] {
			modeltest.Put(sum[4*i:], []float32{x[i] + y[i]})
		}
	}
	return sum
}

// hungry wants another workspace for what adds to its result.
type hungry struct {
	kernels.Library
	write, add int64
}

func (h hungry) Workspace(c kernels.Call) (int64, error) {
	if c.AddParams {
		return h.add, nil
	}
	return h.write, nil
}

// A program compiled for accumulation has workspaces for both calls; only steps that write gradients of parameters have two calls.
func TestAccumulationWorkspaces(t *testing.T) {
	t.Parallel()
	m := build(t, "tiny", models.Config{Batch: 2, Image: 16, Classes: 5})
	both := 0
	for _, lib := range []hungry{{write: 1000, add: 3000}, {write: 3000, add: 1000}} {
		programs, err := m.Compile(models.Accumulation(lib))
		must(t, err)
		for _, p := range programs {
			for _, s := range slices.Concat(p.Save.Steps, p.Back.Steps, p.BackInput.Steps, p.BackParams.Steps) {
				want, writes := lib.write, slices.ContainsFunc(s.Refs.DParams, func(r models.Ref) bool { return r.Bytes > 0 })
				if writes {
					want = 3000
					both++
				}
				if s.Refs.Workspace.Bytes != want || s.Accumulating().AddParams != writes || s.Call.AddParams {
					t.Errorf("%s %v: a workspace of %d bytes, want %d; it adds %v", s.Name, s.Call.Pass, s.Refs.Workspace.Bytes, want, s.Accumulating().AddParams)
				}
			}
		}
	}
	if both < 40 {
		t.Errorf("%d steps write gradients", both)
	}
}
