package models_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

func conv(g *models.Graph, x models.Value) models.Value {
	return g.ReLU("relu", g.Conv("conv", x, 4, 3, 1))
}

func concat(g *models.Graph, ends []models.Value) models.Value {
	return g.Linear("fc", g.Concat("concat", ends...), 2)
}

// A siamese model has its weights once, and every layer knows whose it uses.
func TestSiamese(t *testing.T) {
	t.Parallel()
	m := build(t, "siamese", models.Config{Batch: 2, Image: 32, Classes: 2})
	if !slices.Equal(m.Branches, []int{9, 9}) || len(m.Layers) != 21 {
		t.Fatalf("branches of %v layers, %d altogether", m.Branches, len(m.Layers))
	}
	// Nine 3x3 convolutions of 16, 32 and 64 channels without bias; two linear layers, of 2 times 4x4x64 features to 128, with a
	// BatchNorm, and to 2 classes.
	want := int64(9*(3*16+2*16*16+16*32+2*32*32+32*64+2*64*64) + 2048*128 + 128 + 2*128 + 128*2 + 2)
	if got := m.ParamCount(); got != want {
		t.Errorf("%d parameters, want %d", got, want)
	}
	programs := compiled(t, m)
	c := m.Footprints(programs)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for i, l := range m.Layers {
		twin := i >= 9 && i < 18
		if (l.Twin > 0) != twin || twin && l.Twin != i-8 || (c.Layers[i].WeightBytes > 0) != (!twin && i < 20) {
			t.Errorf("layer %d: twin of %d, %d bytes of weights", i+1, l.Twin, c.Layers[i].WeightBytes)
		}
		if twin && (programs[i].SavedBytes != programs[i-9].SavedBytes || programs[i].GradBytes != programs[i-9].GradBytes) {
			t.Errorf("layer %d: %+v, its twin has %+v", i+1, programs[i], programs[i-9])
		}
	}
	if c.Branches == nil || !models.OfPairs("siamese") || models.OfPairs("resnet20") {
		t.Errorf("%v", c.Branches)
	}
}

// The layer that joins branches reads each end in its own block, and leaves each gradient there.
func TestJoinedBlocks(t *testing.T) {
	t.Parallel()
	b := models.NewBuilder("join", kernels.F32(2, 4, 4, 3), 2)
	b.Layer("a", "a", conv)
	b.Branch()
	b.Layer("b", "b", conv)
	b.Layer("c", "c", conv)
	b.Join("join", "", concat)
	m, err := b.Model()
	must(t, err)
	p := compiled(t, m)[3]
	seen := map[models.Ref]bool{}
	for _, s := range append(p.Save.Steps, p.Back.Steps...) {
		for _, r := range append(s.Refs.X, s.Refs.DX...) {
			seen[r] = true
		}
	}
	for _, block := range []models.Block{models.Input, models.GradInput} {
		for branch := range 2 {
			if r := (models.Ref{Block: block, Bytes: 2 * 4 * 4 * 4 * 4, Branch: branch}); !seen[r] {
				t.Errorf("nothing uses %+v", r)
			}
		}
	}
}

func TestBranchesRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		build func(b *models.Builder)
		says  string
	}{
		"running statistics": {func(b *models.Builder) {
			b.Layer("a", "a", func(g *models.Graph, x models.Value) models.Value { return g.BNReLU("bn", g.Conv("conv", x, 4, 3, 1)) })
			b.Twins(1)
		}, "running_mean"},
		"no join":      {func(b *models.Builder) { b.Layer("a", "a", conv); b.Twins(1) }, "nothing joins its 2 branches"},
		"one branch":   {func(b *models.Builder) { b.Layer("a", "a", conv); b.Join("join", "", concat) }, "joins 1 branches"},
		"nine":         {func(b *models.Builder) { b.Layer("a", "a", conv); b.Twins(8); b.Join("join", "", concat) }, "joins 9 branches"},
		"empty branch": {func(b *models.Builder) { b.Branch() }, "branch 0 has no layers"},
		"late branch": {func(b *models.Builder) {
			b.Layer("a", "a", conv)
			b.Twins(1)
			b.Join("join", "", concat)
			b.Branch()
		}, "behind the layer"},
		"an end left out": {func(b *models.Builder) {
			b.Layer("a", "a", conv)
			b.Twins(1)
			b.Join("join", "", func(g *models.Graph, ends []models.Value) models.Value { return g.Linear("fc", ends[0], 2) })
		}, "nothing reads the end of branch 1"},
		"a sum of ends": {func(b *models.Builder) {
			b.Layer("a", "a", conv)
			b.Twins(1)
			b.Join("join", "", func(g *models.Graph, ends []models.Value) models.Value {
				return g.Linear("fc", g.Add("add", ends[0], ends[1]), 2)
			})
		}, `op "add"`},
		"another branch's end": {func(b *models.Builder) {
			b.Layer("a", "a", func(g *models.Graph, x models.Value) models.Value { return conv(g, models.InputOf(1)) })
		}, "of another layer"},
	} {
		b := models.NewBuilder("test", kernels.F32(2, 4, 4, 3), 2)
		c.build(b)
		if _, err := b.Model(); !errors.Is(err, models.ErrGraph) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if _, err := models.New("siamese", models.Config{Batch: 2, Image: 32, Classes: 10}); !errors.Is(err, models.ErrConfig) {
		t.Error(err)
	}
}
