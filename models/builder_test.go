package models_test

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// A model that is not a chain of graphs with one input, one output and no unused op is refused; the error names
// layer and op.
func TestBuilderRefuses(t *testing.T) {
	t.Parallel()
	type graph = func(g *models.Graph, x models.Value) models.Value
	fc := func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 5) }
	cases := map[string]struct {
		layers []graph
		is     error
		says   string
	}{
		"no layers":  {nil, models.ErrGraph, "no layers"},
		"no ops":     {[]graph{func(g *models.Graph, x models.Value) models.Value { return x }}, models.ErrGraph, "layer 1 (l)"},
		"not last":   {[]graph{func(g *models.Graph, x models.Value) models.Value { y := g.ReLU("a", x); g.ReLU("b", y); return y }}, models.ErrGraph, "last op"},
		"unused":     {[]graph{func(g *models.Graph, x models.Value) models.Value { g.ReLU("a", x); return g.ReLU("b", x) }}, models.ErrGraph, `"a"`},
		"foreign":    {[]graph{func(g *models.Graph, x models.Value) models.Value { return g.ReLU("a", 7) }}, models.ErrGraph, `op "a"`},
		"same name":  {[]graph{func(g *models.Graph, x models.Value) models.Value { return g.Linear("b", g.Linear("b", x, 4), 5) }}, models.ErrGraph, `"l.b.weight"`},
		"no classes": {[]graph{func(g *models.Graph, x models.Value) models.Value { return g.Linear("a", x, 4) }}, models.ErrGraph, "logits"},
		"second":     {[]graph{fc, func(g *models.Graph, x models.Value) models.Value { return g.Conv("c", x, 3, 3, 1) }}, nil, `layer 2 (l): op "c": conv2d`},
		"attribute":  {[]graph{func(g *models.Graph, x models.Value) models.Value { return g.Dropout("d", x, 1.5) }}, nil, `op "d": dropout`},
		"labels":     {[]graph{func(g *models.Graph, x models.Value) models.Value { return g.ReLU("r", models.GraphLabels) }}, nil, `op "r": relu`},
	}
	for name, c := range cases {
		b := models.NewBuilder("m", kernels.F32(2, 4, 4, 3), 5)
		for _, g := range c.layers {
			b.Layer("l", "l", g)
		}
		m, err := b.Model()
		if m != nil || err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		var op *kernels.OpError
		if c.is == nil && !errors.As(err, &op) {
			t.Errorf("%s: %v is not an op's error", name, err)
		}
	}
	for _, input := range []kernels.Desc{{}, kernels.F32(2, 0), kernels.F32(1<<40, 1<<40)} {
		if _, err := models.NewBuilder("m", input, 5).Model(); !errors.Is(err, models.ErrConfig) {
			t.Errorf("input %v: %v", input, err)
		}
	}
}

// A library that cannot run a call makes Compile name layer, program and op.
func TestCompileNamesTheOp(t *testing.T) {
	t.Parallel()
	m := build(t, "densenet121", models.Config{Batch: 1, Image: 32, Classes: 5})
	_, err := m.Compile(refuser{})
	if err == nil || !strings.Contains(err.Error(), `layer 1 (stem): forward_all: op "norm0", forward`) {
		t.Errorf("error is %v", err)
	}
}

// refuser is a library without BatchNorm.
type refuser struct{ kernels.Library }

func (refuser) Workspace(c kernels.Call) (int64, error) {
	if _, norm := c.Op.(kernels.BatchNorm); norm {
		return 0, errors.New("no norms here")
	}
	return 0, nil
}

// Workspaces are laid out for the call that they belong to: exactly as many bytes, aligned, and counted. A megabyte is
// more than any block of this model has to spare.
func TestWorkspaces(t *testing.T) {
	t.Parallel()
	m := build(t, "tiny", models.Config{Batch: 2, Image: 16, Classes: 5})
	programs, err := m.Compile(spacious{bytes: 1_000_001})
	must(t, err)
	calls := 0
	for i, p := range programs {
		for _, program := range []models.Program{p.Save, p.Forget, p.Eval, p.Back, p.BackInput, p.BackParams} {
			for _, s := range program.Steps {
				w := s.Refs.Workspace
				if w.Bytes != 1_000_001 || w.Block != models.Scratch || w.Offset%kernels.Alignment != 0 || w.Offset+w.Bytes > program.Scratch {
					t.Errorf("layer %d, %s: workspace %+v of %d", i+1, s.Name, w, program.Scratch)
				}
				calls++
			}
		}
	}
	if calls < 60 {
		t.Errorf("only %d calls", calls)
	}
}

// spacious wants the same workspace for everything.
type spacious struct {
	kernels.Library
	bytes int64
}

func (s spacious) Workspace(kernels.Call) (int64, error) { return s.bytes, nil }
