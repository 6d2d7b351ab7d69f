package importer

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/models"
)

// Open makes the model of a decoded file. The graph's tensors must not change as long as the model is used. Errors: ErrUnsupported.
func Open(path string, g *Graph) (models.File, *Summary, error) {
	f, c, err := g.describe(path)
	if err != nil {
		return models.File{}, nil, fmt.Errorf("%w: %s: %w", ErrUnsupported, path, err)
	}
	m, err := g.importer(&c)
	if err != nil {
		return models.File{}, nil, fmt.Errorf("%w: %s: %w", ErrUnsupported, path, err)
	}
	f.Classes, f.Image, f.PerSample = m.classes(), c.Image, m.perSample()
	f.Build = func(name string, c models.Config) (*models.Model, error) { return g.build(name, c, f) }
	return f, &Summary{m}, nil
}

// openImage is the image of a graph whose height and width are open.
const openImage = 224

// describe returns the graph's input, and a configuration like the one that it was exported with.
func (g *Graph) describe(path string) (f models.File, c models.Config, err error) {
	inputs := slices.DeleteFunc(slices.Clone(g.Inputs), func(p Port) bool { return g.Tensors[p.Name] != nil || p.Name == g.Mask })
	if len(inputs) != 1 || len(g.Outputs) != 1 {
		return f, c, fmt.Errorf("it has %d inputs and %d outputs%s", len(inputs), len(g.Outputs), g.Advice.Outputs)
	}
	in := inputs[0]
	for _, p := range g.Inputs {
		if p.Name == g.Mask && (!slices.Equal(p.Shape, in.Shape) || in.DType == Float32) {
			return f, c, fmt.Errorf("input %q is %s%v beside %s%v: want a mask of the tokens N,T", p.Name, p.DType, p.Shape, in.DType, in.Shape)
		}
	}
	g.Inputs = inputs
	if g.text() {
		return g.describeText(path)
	}
	if g.axes() > 0 {
		return g.describeNumbers(path)
	}
	if len(in.Shape) != 4 || in.DType != Float32 || in.Shape[2] != in.Shape[3] || slices.ContainsFunc(in.Shape, func(n int64) bool { return n < 0 || n > 1<<20 }) {
		return f, c, fmt.Errorf("input %q is %s%v: want float32, N,C,H,W with as many rows as columns, N,C,T or N,F, or tokens N,T", in.Name, in.DType, in.Shape)
	}
	or := func(n int64, open int) int {
		if n == 0 {
			return open
		}
		return int(n)
	}
	c = models.Config{Batch: or(in.Shape[0], 1), Channels: or(in.Shape[1], 3), Image: or(in.Shape[2], openImage)}
	f.Channels = c.Channels
	f.Known = models.Known{Name: path, Summary: "of a file", Image: c.Image}
	return f, c, nil
}

// openLength is the tokens of a sample, or T of N,C,T, of a graph that leaves them open.
const openLength = 64

// describeNumbers is describe of a model that reads numbers N,F or N,C,T.
func (g *Graph) describeNumbers(path string) (f models.File, c models.Config, err error) {
	in := g.Inputs[0]
	if in.Shape[1] == 0 || slices.ContainsFunc(in.Shape, func(n int64) bool { return n < 0 || n > 1<<20 }) {
		return f, c, fmt.Errorf("input %q is %s%v: want N,F or N,C,T, of which only N and T may be open", in.Name, in.DType, in.Shape)
	}
	c = models.Config{Batch: max(int(in.Shape[0]), 1), Channels: int(in.Shape[1]), Image: 1}
	if g.axes() == 2 {
		c.Image = cmp.Or(int(in.Shape[2]), openLength)
	}
	return models.File{Known: models.Known{Name: path, Summary: "of a file", Image: c.Image}, Channels: c.Channels, Axes: g.axes()}, c, nil
}

// describeText is describe of a model that reads tokens.
func (g *Graph) describeText(path string) (f models.File, c models.Config, err error) {
	shape := g.Inputs[0].Shape
	if slices.ContainsFunc(shape, func(n int64) bool { return n < 0 || n > 1<<20 }) {
		return f, c, fmt.Errorf("input %q is %v: want tokens N,T", g.Inputs[0].Name, shape)
	}
	c = models.Config{Batch: max(int(shape[0]), 1), Channels: 1, Image: cmp.Or(int(shape[1]), openLength)}
	return models.File{Known: models.Known{Name: path, Summary: "of a file", Image: c.Image}, Channels: c.Channels, Text: true}, c, nil
}

// importer returns the importer that has read the graph. If the graph leaves the length of a sample open, the length is
// the longest of openLength, half of it and so on that its tables and masks have.
func (g *Graph) importer(c *models.Config) (*importer, error) {
	for {
		m := newImporter(g, *c)
		err := m.run()
		if err == nil || !g.openLength() || c.Image == 1 {
			return m, err
		}
		c.Image /= 2
	}
}

// build returns the model for a configuration.
func (g *Graph) build(name string, c models.Config, f models.File) (*models.Model, error) {
	switch {
	case f.Axes == 1 && c.Image != 1:
		return nil, fmt.Errorf("%w: %s reads samples of %d numbers, and no images: leave --image out", models.ErrConfig, name, f.Channels)
	case c.Channels != f.Channels && f.Axes > 0:
		return nil, fmt.Errorf("%w: %s reads N,%d, not N,%d: leave --option data.channels out", models.ErrConfig, name, f.Channels, c.Channels)
	case c.Channels != f.Channels && !f.Text:
		return nil, fmt.Errorf("%w: %s reads images of %d channels, not %d: give --option data.channels=%d", models.ErrConfig, name, f.Channels, c.Channels, f.Channels)
	case c.Classes != f.Classes:
		return nil, fmt.Errorf("%w: %s has %d classes, not %d: give --classes %d and data of at most as many, or export it with %d", models.ErrConfig, name, f.Classes,
			c.Classes, f.Classes, c.Classes)
	}
	m := newImporter(g, c)
	if err := m.run(); err != nil {
		if batch := int(g.Inputs[0].Shape[0]); batch > 0 && batch != c.Batch && g.runs(batch, c) {
			return nil, fmt.Errorf("%w: %s: its ops hold the batch of %d that it was exported with, and do not run with %d: give --batch %d, or export it with an open one%s",
				models.ErrConfig, name, batch, c.Batch, batch, g.Advice.Batch)
		}
		size := fmt.Sprintf("images of %dx%d", c.Image, c.Image)
		switch {
		case f.Text:
			size = fmt.Sprintf("samples of %d tokens", c.Image)
		case f.Axes > 0:
			size = fmt.Sprintf("samples of %dx%d numbers", c.Channels, c.Image)
		}
		return nil, fmt.Errorf("%w: %s: %s: %w", ErrUnsupported, name, size, err)
	}
	return m.model(name, c)
}

// runs reports whether a configuration can be built with another batch.
func (g *Graph) runs(batch int, c models.Config) bool {
	c.Batch = batch
	return newImporter(g, c).run() == nil
}
