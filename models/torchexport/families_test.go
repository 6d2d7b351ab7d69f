package torchexport

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/importer"
)

// opsOf counts the ops of a model.
func opsOf(m *models.Model) map[kernels.Op]int {
	all := map[kernels.Op]int{}
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			all[n.Op]++
		}
	}
	return all
}

// Families of transformers have the ops that their graphs write out.
func TestOpsOfFamilies(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[kernels.Op]int{
		// Relative positions: a table of 8 rows, which the second layer has, too.
		"t5_gated": {kernels.Attention{Heads: 4, Bidirectional: true, Scale: 1, Table: 8}: 2, kernels.RMSNorm{Epsilon: 1e-6}: 5},
		// Each head adds a slope of the distance to its scores.
		"bloom": {kernels.Attention{Heads: 4, Masks: 1, MaskHeads: true}: 2},
		// Half of the channels of heads, three parts of which lie side by side.
		"gpt_neox": {kernels.Rotary{Heads: 4, Dim: 4, Turned: 2, Base: 10000}: 4, kernels.Attention{Heads: 4}: 2},
		// Neighbouring channels are pairs: they are set apart for the op.
		"glm":    {kernels.Rotary{Heads: 4, Dim: 2, Base: 10000}: 2, kernels.Rotary{Heads: 2, Dim: 2, Base: 10000}: 2},
		"cohere": {kernels.Rotary{Heads: 4, Dim: 4, Base: 500000}: 2, kernels.LayerNorm{Epsilon: 1e-5}: 3, kernels.Affine{Factor: 0.5}: 1},
		// One head of keys and values for all heads.
		"falcon":   {kernels.Attention{Heads: 4, KVHeads: 1}: 2},
		"nemotron": {kernels.LayerNorm{Epsilon: 1e-5, FromOne: true}: 5, kernels.Multiply{}: 2},
		// A window of 4 positions in the first layer alone.
		"gemma3": {
			kernels.Attention{Heads: 4, KVHeads: 2, Scale: 0.0625, Bidirectional: true, Masks: 1}: 1,
			kernels.Attention{Heads: 4, KVHeads: 2, Scale: 0.0625}:                                1,
		},
		"squeezebert": {kernels.Conv2D{Out: 24, KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, Groups: 4, Bias: true}: 2},
		"modernbert":  {kernels.LayerNorm{Epsilon: 1e-5}: 6, kernels.Attention{Heads: 4, Bidirectional: true, Masks: 1}: 1},
	} {
		all := opsOf(build(t, name, 3, 0))
		for op, n := range want {
			if all[op] != n {
				t.Errorf("%s: %d of %+v, want %d of %v", name, all[op], op, n, all)
			}
		}
	}
}

// All layers of T5 have one table of relative positions.
func TestSharedTables(t *testing.T) {
	t.Parallel()
	var of []string
	for _, q := range build(t, "t5_gated", 3, 0).Params() {
		if strings.Contains(q.Name, "relative_attention_bias") {
			of = append(of, q.Name)
		}
	}
	if want := []string{"model.encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}; !slices.Equal(of, want) {
		t.Errorf("%q, want %q", of, want)
	}
}

// A parameter that a norm lacks becomes a constant, which neither trains nor lies in files.
func TestNormsWithoutParameters(t *testing.T) {
	t.Parallel()
	constants := 0
	for _, q := range build(t, "modernbert", 3, 0).Params() {
		if q.Constant {
			constants++
			if q.Trained || !strings.HasSuffix(q.Name, "norm.bias") || q.Role() != "constant" {
				t.Errorf("%+v", q)
			}
		}
	}
	if constants != 6 {
		t.Errorf("%d constants, want a bias for each of 6 norms", constants)
	}
}

// The weight of a convolution along one axis keeps its three axes in files.
func TestWeightsAlongOneAxis(t *testing.T) {
	t.Parallel()
	found := 0
	for _, q := range build(t, "squeezebert", 3, 0).Params() {
		if strings.HasSuffix(q.Name, "intermediate.conv1d.weight") {
			found++
			if len(q.Parts) != 1 || !slices.Equal(q.Parts[0].Shape, []int{24, 4, 1}) {
				t.Errorf("%+v", q.Parts)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d weights, want 2", found)
	}
}

// Parts of families that no op here computes are refused for that.
func TestRefusedParts(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ name, from, to, want string }{
		"cosines of 2":    {"nemotron", `"name": "other", "arg": {"as_float": 1.0}`, `"name": "other", "arg": {"as_float": 2.0}`, "are turned otherwise than by"},
		"even ones first": {"glm", `"arg": {"as_int": 1}, "kind": 1}, {"name": "end", "arg": {"as_int": 9223372036854775807}, "kind": 1}, {"name": "step"`, `"arg": {"as_int": 0}, "kind": 1}, {"name": "end", "arg": {"as_int": 9223372036854775807}, "kind": 1}, {"name": "step"`, "is not supported"},
		"a longer stride": {"squeezebert", `"name": "stride", "arg": {"as_ints": [1]}`, `"name": "stride", "arg": {"as_ints": [1, 1]}`, "want one number"},
		"no bound":        {"functions", `"name": "max", "arg": {"as_int": 50}`, `"name": "max", "arg": {"as_float": "-Infinity"}`, "which leave no number"},
		"a whole mean":    {"frames", `"name": "dim", "arg": {"as_ints": [2]}`, `"name": "dim", "arg": {"as_none": true}`, "the mean of all axes, the batch's too, is not supported: return logits"},
		"a batch, twice":  {"rows", `"as_ints": [1, 2]`, `"as_ints": [2, 2]`, "is repeated [2 2] times, and only along axes of a sample is supported"},
		"more pixels":     {"unet", `"output_padding", "arg": {"as_ints": [0, 0]}`, `"output_padding", "arg": {"as_ints": [2, 2]}`, "argument output_padding is [2 2] with a stride of [2 2], and only less than the stride is supported"},
		"sines":           {"nemotron", "torch.ops.aten.square.default", "torch.ops.aten.sin.default", "it is no activation that is supported"},
	} {
		_, err := Read("x", changed(t, c.name, model, c.from, c.to))
		if !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}
