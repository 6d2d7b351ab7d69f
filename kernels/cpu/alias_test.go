package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

// TestAliases: wherever an op declares that an output may lie on an input, doing so changes no bit.
func TestAliases(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	rounds := 150
	if underRace {
		rounds = 2 * draws
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(3, uint64(seed)))
		op, in := randomOp(r, seed)
		forward, backward := randomCalls(r, op, in)
		inputs := randomInputs(r, forward)
		for _, path := range testedPaths() {
			l := newLibrary(t, path, 2)
			given := inputs.clone()
			for o, v := range run(t, l, forward, given) {
				given[o] = v
			}
			ran[op.Kind()] += aliasCall(t, l, forward, inputs)
			for _, c := range backward {
				c.AddDX = nil
				ran[op.Kind()] += aliasCall(t, l, c, given)
			}
		}
	}
	for _, kind := range []string{"relu", "add", "dropout", "batchnorm", "softmax_cross_entropy", "element_loss", "layernorm", "rmsnorm", "gelu", "silu", "multiply", "rotary"} {
		if ran[kind] == 0 {
			t.Errorf("no alias of %s was tried, want some", kind)
		}
	}
}

// aliasCall runs a call with each single alias that it declares, and with all that go together.
func aliasCall(t *testing.T, l *Library, c kernels.Call, in data) int {
	t.Helper()
	plain := newRig(t, l, c, nil)
	want := plain.run(t, l, in)
	together := map[kernels.Operand]kernels.Operand{}
	taken := map[kernels.Operand]bool{}
	ran := 0
	for _, out := range plain.uses {
		for _, from := range plain.uses {
			if !out.Write || from.Write || !c.Op.Alias(c.Pass, out.Operand, from.Operand) {
				continue
			}
			alias := map[kernels.Operand]kernels.Operand{out.Operand: from.Operand}
			sameBits(t, fmt.Sprintf("%+v with %v", c, alias), newRig(t, l, c, alias).run(t, l, in), want)
			ran++
			if _, has := together[out.Operand]; !has && !taken[from.Operand] {
				together[out.Operand], taken[from.Operand] = from.Operand, true
			}
		}
	}
	if len(together) > 1 {
		sameBits(t, fmt.Sprintf("%+v with %v", c, together), newRig(t, l, c, together).run(t, l, in), want)
	}
	return ran
}
