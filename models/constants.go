package models

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"plimsoll/kernels"
)

// Constant is a number that a language model computes with and that no tensor of a file tells, under the name that it has in Hugging
// Face's config.json. The name of a model may give it another value: llama-4-128,rope_theta=500000,rms_norm_eps=1e-6.
type Constant struct {
	Name  string
	Value float64
	Given bool // the model's name gives it
}

// Text is the value in the fewest digits that tell it.
func (c Constant) Text() string { return strconv.FormatFloat(c.Value, 'g', -1, 32) }

// The names of constants, in the order in which they are listed. Heads are among them because no shape of a tensor tells their number.
const (
	ropeTheta    = "rope_theta"
	rmsNormEps   = "rms_norm_eps"
	layerNormEps = "layer_norm_epsilon"
	gptHeads     = "n_head"
	llamaHeads   = "num_attention_heads"
	llamaKVHeads = "num_key_value_heads"
)

var constantNames = []string{ropeTheta, rmsNormEps, layerNormEps, gptHeads, llamaHeads, llamaKVHeads}

// Constants returns the constants of a language model, as its ops have them.
func (m *Model) Constants() (all []Constant) {
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			for _, c := range constantsOf(n.Op) {
				if !slices.ContainsFunc(all, func(have Constant) bool { return have.Name == c.Name }) {
					all = append(all, c)
				}
			}
		}
	}
	place := func(c Constant) int { return slices.Index(constantNames, c.Name) }
	slices.SortFunc(all, func(a, b Constant) int { return cmp.Compare(place(a), place(b)) })
	return all
}

func constantsOf(op kernels.Op) []Constant {
	switch op := op.(type) {
	case kernels.Rotary:
		return []Constant{{Name: ropeTheta, Value: op.Defaults().Base}}
	case kernels.RMSNorm:
		return []Constant{{Name: rmsNormEps, Value: float64(op.Defaults().Epsilon)}}
	case kernels.LayerNorm:
		return []Constant{{Name: layerNormEps, Value: float64(op.Defaults().Epsilon)}}
	case kernels.Attention:
		if op.KVHeads > 0 {
			return []Constant{{Name: llamaHeads, Value: float64(op.Heads)}, {Name: llamaKVHeads, Value: float64(op.KVHeads)}}
		}
		return []Constant{{Name: gptHeads, Value: float64(op.Heads)}}
	}
	return nil
}

// WithConstant returns the name of a language model with another value of a constant.
func WithConstant(name string, c Constant) string {
	plain, given := cutConstants(name)
	given = slices.DeleteFunc(given, func(text string) bool { return strings.HasPrefix(text, c.Name+"=") })
	return strings.Join(append([]string{plain}, append(given, c.Name+"="+c.Text())...), ",")
}

// cutConstants returns a language model's name without the constants that it gives, and these.
func cutConstants(name string) (plain string, given []string) {
	parts := strings.Split(name, ",")
	return parts[0], parts[1:]
}
