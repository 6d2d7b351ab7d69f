//go:build cuda && linux && amd64

package cuda

import (
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
)

// TestLaunchesFitTheirKernels: every argument that the library launches with has the size of the kernel's parameter in the PTX. The test
// covers all kernels but the ones for proofs, which launch one by one. A driver copies as many bytes as the kernel takes, whatever there
// is.
func TestLaunchesFitTheirKernels(t *testing.T) {
	l := libraries(t, newBench(t))[0]
	j := &launchJudge{T: t, library: l, sizes: map[[2]string]int{}, launched: map[string]bool{}}
	for _, e := range ptxText().entries {
		j.sizes[[2]string{e.module, e.name}] = e.bytes
	}
	j.randomCalls()
	j.vendorCalls()
	j.updates()
	if len(j.launched) < 130 {
		t.Errorf("%d kernels were judged", len(j.launched))
	}
}

// launchJudge compares the bytes of launches with those that their kernels take.
type launchJudge struct {
	*testing.T
	library  *Library
	sizes    map[[2]string]int // by module and function
	launched map[string]bool
}

func (j *launchJudge) judge(b *builder, err error) {
	j.Helper()
	if err != nil {
		j.Fatal(err)
	}
	for _, s := range b.steps {
		if s.call != nil {
			continue
		}
		if j.launched[s.function] = true; j.sizes[[2]string{s.module, s.function}] != len(s.args) {
			j.Fatalf("%s of %s is launched with %d bytes, and takes %d", s.function, s.module, len(s.args), j.sizes[[2]string{s.module, s.function}])
		}
	}
}

// randomCalls judges random calls with and without tensor cores, and large ones.
func (j *launchJudge) randomCalls() {
	plain := *j.library
	plain.tensor = false
	for round := range 40 * kinds {
		for _, d := range factorTypes {
			r := rand.New(rand.NewPCG(uint64(d)+51, uint64(round)))
			op, in := randomOp(r, round, d)
			if op = as(d, op); d == kernels.TF32 && !kernels.UsesTF32(op) {
				continue
			}
			forward, backward := randomCalls(r, op, in)
			for _, c := range append(backward, forward) {
				for _, how := range []algorithm{ours, naive} {
					j.judge(j.library.buildAs(c, nil, how))
					j.judge(plain.buildAs(c, nil, how))
				}
			}
		}
	}
	for _, large := range largeCalls {
		for _, d := range factorTypes {
			if d == kernels.TF32 && !kernels.UsesTF32(as(d, large.op)) {
				continue
			}
			forward, backward := randomCalls(rand.New(rand.NewPCG(52, 1)), as(d, large.op), []kernels.Desc{typed(d, large.shape...)})
			for _, c := range append(backward, forward) {
				j.judge(j.library.buildAs(c, nil, ours))
			}
		}
	}
}

// vendorCalls judges the kernels beside products of cuBLAS.
func (j *launchJudge) vendorCalls() {
	multiplied := *j.library
	multiplied.vendors = &vendors{multiplier: &nvidia.Multiplier{}, workspace: 1, part: 1, slice: 1}
	for _, op := range []kernels.Linear{{Out: 24, Bias: true}, {Out: 33}} {
		for _, pass := range []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams} {
			c := kernels.Call{Op: op, In: []kernels.Desc{typed(kernels.BFloat16, 300, 16)}, Pass: pass, AddDX: []bool{true}}
			for _, how := range multiplied.products(c, newLinear(op, c.In[0])) {
				j.judge(multiplied.buildAs(c, nil, how))
			}
		}
	}
	for _, function := range []string{"edges_of", "edges_to", "edge_weights", "edge_sums", "widen_rows", "widen_weights"} {
		if !j.launched[function] {
			j.Errorf("%s was not judged", function)
		}
	}
}

// updates judges optimizers, and moments of batch norms.
func (j *launchJudge) updates() {
	j.judge(built(j.library, func(b *builder) error {
		updater{b}.muon(muon, kernels.Matrix{Rows: 3, Columns: 4}, kernels.Float32)
		return b.err
	}))
	j.judge(built(j.library, func(b *builder) error {
		b.moments(kernels.Moments{Channels: 3, Batches: 2, Rows: 4}.Defaults())
		return b.err
	}))
	for _, u := range []kernels.Update{kernels.SGD{}, kernels.Adam{}} {
		j.judge(built(j.library, func(b *builder) error {
			return updater{b}.update(u, []kernels.UpdateOperands{newOptimizer(u, 9, 1).operands})
		}))
	}
}

// built returns a builder after f.
func built(l *Library, f func(*builder) error) (*builder, error) {
	b := &builder{lib: l}
	return b, f(b)
}
