package models

import (
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
		all[i].Given = strings.Contains(name, ","+all[i].Name+"=")
	}
	return all, nil
}

// Constants returns those of a language model, as its ops have them.
func (m *Model) Constants() (all []Constant) {
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			c, is := constantOf(n.Op)
			if is && !slices.ContainsFunc(all, func(have Constant) bool { return have.Name == c.Name }) {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b Constant) int { return strings.Compare(b.Name, a.Name) })
	return all
}

// The names of constants.
const (
	ropeTheta    = "rope_theta"
	rmsNormEps   = "rms_norm_eps"
	layerNormEps = "layer_norm_epsilon"
)

func constantOf(op kernels.Op) (Constant, bool) {
	switch op := op.(type) {
	case kernels.Rotary:
		return Constant{Name: ropeTheta, Value: op.Defaults().Base}, true
	case kernels.RMSNorm:
		return Constant{Name: rmsNormEps, Value: float64(op.Defaults().Epsilon)}, true
	case kernels.LayerNorm:
		return Constant{Name: layerNormEps, Value: float64(op.Defaults().Epsilon)}, true
	}
	return Constant{}, false
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
		v, err := strconv.ParseFloat(value, 32)
		if err != nil || !(v > 0) || math.IsInf(v, 1) || float32(v) == 0 {
			return c, fmt.Errorf("%w: %s,%s: %s is a positive number, as in %s=1e-6", ErrConfig, plain, text, key, key)
		}
		if key == ropeTheta {
			c.RotaryBase = v
		} else {
			c.Epsilon = float32(v)
		}
	}
	return c, nil
}
