package importer

import (
	"fmt"
	"strings"

	"plimsoll/kernels"
	"plimsoll/models"
)

// model makes the model of the steps.
func (c *chain) model(name string, config models.Config) (*models.Model, error) {
	b := models.NewBuilder(name, c.input.desc, config.Classes)
	b.DType = config.DType
	switch out := c.steps[len(c.steps)-1].desc.Shape; {
	case c.perSample():
		b.PerSample()
	case len(out) == 4:
		b.PerPixel()
	case len(out) == 3 && c.input.desc.DType.Float():
		b.PerPosition(out[1])
	}
	taken := map[string]int{}
	for _, s := range c.steps {
		for _, from := range s.sources {
			if from.tied > 0 {
				b.Tie(from.parameter(), from.name)
			}
		}
	}
	sections := c.sections()
	for i, s := range sections {
		var out []*step // that the next one gets
		if i+1 < len(sections) {
			out = sections[i+1].in
		}
		b.Layer(c.layerName(s, taken), "", func(g *models.Graph, x models.Value) models.Value { return c.layer(g, x, s, out) })
	}
	return b.Model()
}

// layer adds the steps of a section, and what takes its input apart and packs its output where these are several.
func (c *chain) layer(g *models.Graph, x models.Value, s section, out []*step) models.Value {
	values, names := map[*step]models.Value{s.in[0]: x}, namer{}
	if from := 0; len(s.in) > 1 {
		for _, v := range s.in {
			d := v.desc.Shape
			values[v] = g.Op(names.next("part"), kernels.Slice{From: from, H: d[1], W: d[2], C: d[3]}, x)
			from += d[1] * d[2] * d[3]
		}
	}
	last := x
	for _, step := range c.steps[s.first-1 : s.last] {
		var in []models.Value
		for _, v := range step.in {
			in = append(in, values[v])
		}
		last = g.OpFrom(names.next(step.op.Kind()), step.op, step.parameters(), in...)
		values[step] = last
	}
	if len(out) < 2 {
		return last
	}
	var all []models.Value
	for _, v := range out {
		all = append(all, values[v])
	}
	return g.Op("pack", kernels.Pack{}, all...)
}

// namer numbers the ops of a layer: conv2d1, conv2d2. Layers that are alike have the same names, and are compiled once.
type namer map[string]int

func (n namer) next(kind string) string {
	n[kind]++
	return fmt.Sprintf("%s%d", kind, n[kind])
}

// layerName is the common prefix of the names of a layer's parameters, as in layer1.0. Else it is the common prefix of its products'
// names, or its first node's name; a number makes it unique.
func (c *chain) layerName(s section, taken map[string]int) string {
	name := c.commonName(s, func(*step) bool { return true })
	if name == "" {
		name = c.commonName(s, func(s *step) bool { return products([]*step{s}) > 0 })
	}
	if name == "" {
		name = c.firstName(s)
	}
	if taken[name]++; taken[name] > 1 {
		name = fmt.Sprintf("%s#%d", name, taken[name])
	}
	return name
}

// commonName is the module that some steps are in.
func (c *chain) commonName(s section, some func(s *step) bool) string {
	var common []string
	seen := false
	for _, step := range c.steps[s.first-1 : s.last] {
		if !some(step) {
			continue
		}
		for _, path := range step.modules() {
			if !seen {
				common, seen = path, true
			}
			for i := range common {
				if i >= len(path) || path[i] != common[i] {
					common = common[:i]
					break
				}
			}
		}
	}
	return strings.Join(common, ".")
}

// firstName is the name of the first parameter's module, or of the first node.
func (c *chain) firstName(s section) string {
	for _, step := range c.steps[s.first-1 : s.last] {
		if len(step.sources) > 0 {
			if name, _, dotted := strings.Cut(step.sources[0].name, "."); dotted {
				return name
			}
		}
	}
	if name := c.steps[s.first-1].node; name != "" {
		return name
	}
	return c.steps[s.first-1].op.Kind()
}
