package ref_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"testing"

	"plimsoll/kernels"
)

// torchCase holds one computation of PyTorch: see testdata/make_torch.py.
type torchCase struct {
	Tokens      []int32
	X, Params   [][]float32
	Y, DY       []float32
	DX, DParams [][]float32
}

// TestTorch: the ops of transformers, the loss of pixels and their gradients are PyTorch's, from its own inputs, to the precision of float32.
func TestTorch(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/torch.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]*torchCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	tokens := func(extents ...int) kernels.Desc { return kernels.Desc{Shape: extents, DType: kernels.Int32} }
	for _, c := range []struct {
		name string
		op   kernels.Op
		in   []kernels.Desc
	}{
		{"layernorm", kernels.LayerNorm{}, []kernels.Desc{kernels.F32(2, 3, 5)}},
		{"rmsnorm", kernels.RMSNorm{}, []kernels.Desc{kernels.F32(2, 3, 5)}},
		{"gelu", kernels.GELU{}, []kernels.Desc{kernels.F32(2, 9)}},
		{"gelu_tanh", kernels.GELU{Tanh: true}, []kernels.Desc{kernels.F32(2, 9)}},
		{"silu", kernels.SiLU{}, []kernels.Desc{kernels.F32(2, 9)}},
		{"multiply", kernels.Multiply{}, []kernels.Desc{kernels.F32(2, 9), kernels.F32(2, 9)}},
		{"linear", kernels.Linear{Out: 4, Bias: true, LastAxis: true}, []kernels.Desc{kernels.F32(2, 3, 5)}},
		{"embedding", kernels.Embedding{Vocabulary: 3, Width: 2, Positions: 5}, []kernels.Desc{tokens(2, 4)}},
		{"loss", kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(2, 3, 7), tokens(2, 3)}},
		{"loss of pixels", kernels.SoftmaxCrossEntropy{}, []kernels.Desc{kernels.F32(2, 3, 4, 5), tokens(2, 3, 4)}},
		{"rotary", kernels.Rotary{Heads: 2, Dim: 6}, []kernels.Desc{kernels.F32(2, 5, 15)}},
		{"attention", kernels.Attention{Heads: 2}, []kernels.Desc{kernels.F32(2, 5, 24)}},
		{"grouped attention", kernels.Attention{Heads: 4, KVHeads: 2}, []kernels.Desc{kernels.F32(2, 5, 24)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cases[c.name].compare(t, bind(t, c.op, c.in, 1))
			delete(cases, c.name)
		})
	}
	if len(cases) > 0 {
		t.Errorf("%d cases of testdata/torch.json were not compared", len(cases))
	}
}

func (c *torchCase) compare(t *testing.T, b *bound) {
	b.put(b.o.DY, c.DY...)
	floats := c.X
	for i, d := range b.call.In {
		if d.DType.Float() {
			b.put(b.o.X[i], floats[0]...)
			floats = floats[1:]
			continue
		}
		for k, token := range c.Tokens {
			binary.LittleEndian.PutUint32(b.bytes[b.o.X[i].Offset+int64(4*k):], uint32(token))
		}
	}
	for i, p := range c.Params {
		b.put(b.o.Params[i], p...)
	}
	b.pass(t, kernels.Forward)
	b.pass(t, backwards(b.call.Op)...)
	near(t, "Y", b.get(b.o.Y)[:len(c.Y)], c.Y)
	for i, dx := range c.DX {
		near(t, "DX", b.get(b.o.DX[i]), dx)
	}
	for i, dp := range c.DParams {
		near(t, "DParams", b.get(b.o.DParams[i]), dp)
	}
}

// near fails unless values are within 2e-6 of each other, or of the largest.
func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, PyTorch's %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 2e-6*max(1, largest(want)) {
			t.Errorf("%s[%d] is %v, PyTorch's %v", what, i, got[i], want[i])
		}
	}
}
