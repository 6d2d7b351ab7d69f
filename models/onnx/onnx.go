// Package onnx reads models from ONNX files, as torch.onnx.export writes them: the graph becomes a chain of layers, the initializers
// are the weights that training begins with.
//
// It knows no device and runs nothing. A file is mapped, not copied: weights are read from it when a run begins. What a graph has
// beyond the ops of kernels is refused, each node by its name.
package onnx

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"plimsoll/internal/mapped"
	"plimsoll/models"
)

var (
	// ErrFormat: the file is no ONNX model, or is damaged.
	ErrFormat = errors.New("bad ONNX file")
	// ErrUnsupported: the graph has nodes, inputs or outputs that no model here has; the message names them.
	ErrUnsupported = errors.New("unsupported ONNX model")
)

func init() { models.RegisterFormat(".onnx", Open) }

// Open reads the model of a file. Errors: ErrFormat, ErrUnsupported, those of the operating system.
func Open(path string) (models.File, error) {
	message, err := mapped.Open(path)
	if err != nil {
		return models.File{}, err
	}
	return Read(path, message)
}

// Read is Open of a file's bytes, which must not change as long as the model is used.
func Read(path string, message []byte) (models.File, error) {
	if len(message) > mostBytes {
		return models.File{}, fmt.Errorf("%w: %s: it has %d bytes, more than %d", ErrFormat, path, len(message), mostBytes)
	}
	g, err := readModel(message)
	if err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", ErrFormat, path, err)
	}
	f, c, err := g.describe(path)
	if err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", ErrUnsupported, path, err)
	}
	m, err := g.importer(&c)
	if err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", ErrUnsupported, path, err)
	}
	f.Classes, f.Image, f.About = m.classes(), c.Image, m.about()
	f.Build = func(name string, c models.Config) (*models.Model, error) { return g.build(name, c, f) }
	return f, nil
}

// openImage is the image of a graph whose height and width are open.
const openImage = 224

// describe returns what the graph reads, and a configuration like the one that it was exported with.
func (g *graph) describe(path string) (f models.File, c models.Config, err error) {
	inputs := slices.DeleteFunc(slices.Clone(g.inputs), func(p port) bool { return g.tensors[p.name] != nil })
	if len(inputs) != 1 || len(g.outputs) != 1 {
		return f, c, fmt.Errorf("it has %d inputs and %d outputs: export a model that makes logits, and nothing else, of one batch of images", len(inputs), len(g.outputs))
	}
	in := inputs[0]
	g.inputs = inputs
	if g.text() {
		return g.describeText(path)
	}
	if len(in.shape) != 4 || in.dtype != typeFloat || in.shape[2] != in.shape[3] || slices.ContainsFunc(in.shape, func(n int64) bool { return n < 0 || n > 1<<20 }) {
		return f, c, fmt.Errorf("input %q is %s%v: want float32, N,C,H,W with as many rows as columns", in.name, typeName(in.dtype), in.shape)
	}
	or := func(n int64, open int) int {
		if n == 0 {
			return open
		}
		return int(n)
	}
	c = models.Config{Batch: or(in.shape[0], 1), Channels: or(in.shape[1], 3), Image: or(in.shape[2], openImage)}
	f.Channels = c.Channels
	f.Known = models.Known{Name: path, Summary: "of a file", Image: c.Image}
	return f, c, nil
}

// openLength is the tokens of a sample of a graph that leaves them open.
const openLength = 64

// describeText is describe of a model that reads tokens.
func (g *graph) describeText(path string) (f models.File, c models.Config, err error) {
	shape := g.inputs[0].shape
	if slices.ContainsFunc(shape, func(n int64) bool { return n < 0 || n > 1<<20 }) {
		return f, c, fmt.Errorf("input %q is %v: want tokens N,T", g.inputs[0].name, shape)
	}
	c = models.Config{Batch: max(int(shape[0]), 1), Channels: 1, Image: cmp.Or(int(shape[1]), openLength)}
	return models.File{Known: models.Known{Name: path, Summary: "of a file", Image: c.Image}, Channels: c.Channels, Text: true}, c, nil
}

// build returns the model for a configuration.
func (g *graph) build(name string, c models.Config, f models.File) (*models.Model, error) {
	switch {
	case c.Channels != f.Channels && !f.Text:
		return nil, fmt.Errorf("%w: %s reads images of %d channels, not %d: give --option data.channels=%d", models.ErrConfig, name, f.Channels, c.Channels, f.Channels)
	case c.Classes != f.Classes:
		return nil, fmt.Errorf("%w: %s has %d classes, not %d: give --classes %d and data of at most as many, or export it with %d", models.ErrConfig, name, f.Classes,
			c.Classes, f.Classes, c.Classes)
	}
	m := newImporter(g, c)
	if err := m.run(); err != nil {
		size := fmt.Sprintf("images of %dx%d", c.Image, c.Image)
		if f.Text {
			size = fmt.Sprintf("samples of %d tokens", c.Image)
		}
		return nil, fmt.Errorf("%w: %s: %s: %w", ErrUnsupported, name, size, err)
	}
	return m.model(name)
}
