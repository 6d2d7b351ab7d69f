package ref_test

import (
	"math"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// A product in TF32 has the bits of a product in float32 of factors that were rounded before. The bias's gradient has the bits that the
// gradient gives without rounding. The call leaves its inputs as they were.
func TestTF32(t *testing.T) {
	t.Parallel()
	compared, changed := 0, 0
	for i, c := range ops {
		if !c.op.Split() {
			continue
		}
		exact, before, tf32 := bind(t, c.op, c.in, uint64(i)), bind(t, c.op, c.in, uint64(i)), bind(t, kernels.InTF32(c.op), c.in, uint64(i))
		before.roundTensors(kernels.RoundTF32, append(slices.Clone(before.o.X), before.o.DY, before.o.Params[0])...)
		for _, b := range []*bound{exact, before, tf32} {
			b.pass(t, append(backwards(c.op), kernels.Forward)...)
		}
		check := func(what string, s runtime.Span, want *bound) {
			for j, w := range want.get(s) {
				if got := tf32.get(s)[j]; math.Float32bits(got) != math.Float32bits(w) {
					t.Errorf("%d %s: element %d of %s is %v, want %v", i, c.op.Kind(), j, what, got, w)
				}
			}
			compared++
		}
		for what, s := range map[string]runtime.Span{"Y": tf32.o.Y, "DX": tf32.o.DX[0], "DParams[0]": tf32.o.DParams[0]} {
			check(what, s, before)
			if !slices.Equal(tf32.get(s), exact.get(s)) {
				changed++
			}
		}
		for what, s := range map[string]runtime.Span{"X": tf32.o.X[0], "DY": tf32.o.DY, "Params[0]": tf32.o.Params[0]} {
			check(what, s, exact)
		}
		if len(tf32.o.Params) > 1 {
			check("DParams[1]", tf32.o.DParams[1], exact)
		}
	}
	if compared != 6*6+3 || changed != 6*3 {
		t.Errorf("%d tensors compared, %d differ from float32's", compared, changed)
	}
}
