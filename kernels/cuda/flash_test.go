//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

// flashCalls are shapes of attention: samples, length, heads, heads of keys, channels of a head.
var flashCalls = [][5]int{
	{1, 1, 1, 1, 8}, {2, 17, 2, 1, 24}, {1, 64, 1, 1, 32}, {1, 129, 3, 3, 40}, {2, 200, 4, 2, 64}, {1, 66, 1, 1, 72}, {1, 130, 2, 2, 96},
	{1, 100, 2, 1, 104}, {1, 191, 1, 1, 128}, {2, 31, 1, 1, 136}, {1, 97, 2, 1, 200}, {1, 160, 1, 1, 256},
}

// attentionOf returns a forward call of attention in bfloat16.
func attentionOf(s [5]int) kernels.Call {
	in := []kernels.Desc{typed(kernels.BFloat16, s[0], s[1], (s[2]+2*s[3])*s[4])}
	return kernels.Call{Op: kernels.Attention{Heads: s[2], KVHeads: s[3]}, In: in, Train: true}
}

// TestFlashForward: attention of heads of every width that the kernels of tensor cores take, lengths of whole tiles and others.
func TestFlashForward(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	ran := map[string]bool{}
	for i, s := range flashCalls {
		call := attentionOf(s)
		built, err := l.build(call, nil)
		if err != nil {
			t.Fatal(err)
		}
		ran[built.steps[0].function] = true
		check(t, b, l, call, nil, randomInputs(rand.New(rand.NewPCG(61, uint64(i))), call))
	}
	for _, dim := range flashDims {
		if name := fmt.Sprintf("flash_forward_%d", dim); l.tensor && !ran[name] {
			t.Errorf("%s did not run", name)
		}
	}
}
