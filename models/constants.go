package models

import (
	"cmp"
	"fmt"
	"math"
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

// Constants returns the constants of a known language model, in a fixed order; none of other models and of files, whose ops have their
// own. Errors: those of New.
func Constants(name string) ([]Constant, error) {
	if !OfText(name) || formatOf(name) != nil {
		return nil, nil
	}
	m, err := New(name, Config{Batch: 1, Image: 1, Classes: 1})
	if err != nil {
		return nil, err
	}
	all := m.Constants()
	for i := range all {
		all[i].Given = strings.Contains(name, ","+all[i].Name+"=") || givenBySize(name, all[i].Name)
	}
	return all, nil
}

// givenBySize reports whether the heads of a Llama are among the numbers of its name, llama-B-C-H-K.
func givenBySize(name, constant string) bool {
	sizes := strings.Count(base(name), "-")
	return strings.HasPrefix(name, "llama-") && (constant == llamaHeads && sizes > 2 || constant == llamaKVHeads && sizes > 3)
}

// Constants returns those of a language model, as its ops have them.
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

// take sets the constants that a name gives, of those that a family of models has.
func (c Language) take(name string, family ...string) (Language, error) {
	plain, given := cutConstants(name)
	seen := map[string]bool{}
	for _, text := range given {
		key, value, _ := strings.Cut(text, "=")
		if !slices.Contains(family, key) || seen[key] {
			return c, fmt.Errorf("%w: %s,%s: a name like this gives %s, each once, as in %s,%s=VALUE", ErrConfig, plain, text, strings.Join(family, " and "), plain, family[0])
		}
		seen[key] = true
		if err := c.set(key, value); err != nil {
			return c, fmt.Errorf("%w: %s,%s: %w", ErrConfig, plain, text, err)
		}
	}
	return c, nil
}

// set gives a constant the value that a text says.
func (c *Language) set(key, text string) error {
	v, err := strconv.ParseFloat(text, 32)
	if err != nil || !(v > 0) || math.IsInf(v, 1) || float32(v) == 0 {
		return fmt.Errorf("%s is a positive number, as in %s=1e-6", key, key)
	}
	switch key {
	case ropeTheta:
		c.RotaryBase = v
	case rmsNormEps, layerNormEps:
		c.Epsilon = float32(v)
	default:
		if v != math.Trunc(v) || v > kernels.MaxExtent {
			return fmt.Errorf("%s is a whole number, as in %s=4", key, key)
		}
		if key == llamaKVHeads {
			c.KVHeads = int(v)
		} else {
			c.Heads = int(v)
		}
	}
	return nil
}
