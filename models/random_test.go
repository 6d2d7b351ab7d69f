package models_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// random builds a layer of random ops over images of one size. Values are read once, many times, or twice by the same op. At the end, all
// values still unread are joined.
type random struct {
	*rand.Rand
	g      *models.Graph
	values []models.Value
	unread map[models.Value]bool
	ops    int
}

func (r *random) name() string {
	r.ops++
	return fmt.Sprintf("op%d", r.ops)
}

func (r *random) op(op kernels.Op, in ...models.Value) models.Value {
	v := r.g.Op(r.name(), op, in...)
	for _, x := range in {
		delete(r.unread, x)
	}
	r.values = append(r.values, v)
	r.unread[v] = true
	return v
}

func (r *random) pick() models.Value {
	if r.IntN(2) == 0 {
		return r.values[len(r.values)-1-r.IntN(min(3, len(r.values)))]
	}
	return r.values[r.IntN(len(r.values))]
}

// like returns a value with as many channels as v: another one or v itself, or one made so.
func (r *random) like(v models.Value) models.Value {
	var same []models.Value
	for _, w := range r.values {
		if r.g.Channels(w) == r.g.Channels(v) {
			same = append(same, w)
		}
	}
	if w := same[r.IntN(len(same))]; r.IntN(4) > 0 {
		return w
	}
	return r.op(kernels.Conv2D{Out: r.g.Channels(v), KernelH: 1, KernelW: 1}, r.pick())
}

// hidden adds an op whose output only what follows it reads.
func (r *random) hidden(op kernels.Op, in ...models.Value) models.Value {
	for _, x := range in {
		delete(r.unread, x)
	}
	return r.g.Op(r.name(), op, in...)
}

// packed packs two values and takes them, or the second alone, out again, in either order.
func (r *random) packed(x, y models.Value) {
	both := r.hidden(kernels.Pack{}, x, y)
	first := kernels.Slice{H: 3, W: 3, C: r.g.Channels(x)}
	second := kernels.Slice{From: 9 * first.C, H: 3, W: 3, C: r.g.Channels(y)}
	order := [][]kernels.Op{{first, second}, {second, first}, {second}}[r.IntN(3)]
	for _, op := range order {
		r.op(op, both)
	}
}

func (r *random) step() {
	x := r.pick()
	switch r.IntN(13) {
	case 0, 1:
		r.op(kernels.Conv2D{Out: 1 + r.IntN(5), KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: r.IntN(2) == 0}, x)
	case 2:
		r.op(kernels.BatchNorm{ReLU: r.IntN(2) == 0}, x)
	case 3:
		r.op(kernels.BatchNorm{ReLU: r.IntN(2) == 0, Residual: true}, x, r.like(x))
	case 4:
		r.op(kernels.ReLU{}, x)
	case 5, 6:
		r.op(kernels.Add{}, x, r.like(x))
	case 7:
		r.op(kernels.Dropout{P: 0.3}, x)
	case 8:
		r.op(kernels.Concat{}, x, r.pick())
	case 9:
		pool := kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1}
		if r.IntN(2) == 0 {
			r.op(kernels.MaxPool(pool), x)
		} else {
			r.op(pool, x)
		}
	case 10:
		r.packed(x, r.pick())
	case 11:
		depth := r.g.Channels(x)
		from := r.IntN(depth)
		r.op(kernels.Slice{Rows: 9, From: from, H: 3, W: 3, C: 1 + r.IntN(depth-from)}, x)
	case 12:
		r.op(kernels.AvgPool{KernelH: 2, KernelW: 2}, r.hidden(kernels.Upsample{Factor: 2}, x))
	}
}

func (r *random) layer(g *models.Graph, x models.Value) models.Value {
	r.g, r.values, r.unread = g, []models.Value{x}, map[models.Value]bool{x: true}
	for range 1 + r.IntN(9) {
		r.step()
	}
	if len(r.unread) > 1 {
		var rest []models.Value
		for _, v := range r.values {
			if r.unread[v] {
				rest = append(rest, v)
			}
		}
		r.op(kernels.Concat{}, rest...)
	}
	return r.values[len(r.values)-1]
}

// Programs of random layers, first of their model or not, compute the results of the definition, however their values are shared. Their
// memory is nearly always as small as the lower bound.
func TestRandomLayers(t *testing.T) {
	t.Parallel()
	layers := 1000
	if testing.Short() {
		layers = 400
	}
	loose, kinds := 0, halvesKinds{}
	for seed := range uint64(layers) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 1))}
		b := models.NewBuilder("random", kernels.F32(2, 3, 3, 1+r.IntN(3)), 4)
		if seed%8 >= 4 {
			b.DType = kernels.BFloat16
		}
		if seed%2 == 0 {
			b.Layer("first", "first", func(g *models.Graph, x models.Value) models.Value { return g.Conv("conv", x, 2, 1, 1) })
		}
		b.Layer("random", "", r.layer)
		b.Layer("fc", "", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 4) })
		m, err := b.Model()
		must(t, err)
		m.InputGradient = seed%4 == 1
		l := len(m.Layers) - 2
		programs := compiled(t, m)
		checkLayer(t, m, programs, l)
		checkHalves(t, newHalved(t, m, programs, l, reference))
		kinds.count(programs[l-1])
		if seed%3 == 0 {
			scribbling := scribbling(int64(1 + r.IntN(2000)))
			programs, err = m.Compile(scribbling(nil))
			must(t, err)
			checkHalves(t, newHalved(t, m, programs, l, scribbling))
		}
		if extents, bounds := models.Extents(m.Layers[l-1], l > 1 || m.InputGradient, true); !slices.Equal(extents, bounds) {
			loose++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, describe(m.Layers[l-1]))
		}
	}
	t.Logf("%d of %d layers have a program above its lower bound", loose, layers)
	kinds.check(t)
	if loose > layers/20 {
		t.Errorf("%d of %d layers have a program above its lower bound", loose, layers)
	}
}

// Every call of every program of the zoo, with and without workspaces, has operands that kernels allow: aligned, long
// enough, and sharing bytes only where the op declares it.
func TestZooOperands(t *testing.T) {
	t.Parallel()
	calls := 0
	for _, k := range models.Zoo() {
		m := build(t, k.Name, models.Config{Batch: 2, Image: 224, Classes: 1000})
		for _, workspace := range []int64{0, 100_000} {
			programs, err := m.Compile(spacious{bytes: workspace})
			must(t, err)
			for i, p := range programs {
				for _, s := range slices.Concat(p.Save.Steps, p.Forget.Steps, p.Eval.Steps, p.Back.Steps, p.BackInput.Steps, p.BackParams.Steps) {
					if err := operands(s.Refs).Check(s.Call, workspace); err != nil {
						t.Errorf("%s %s %s: %v", k.Name, m.Layers[i].Name, s.Name, err)
					}
					calls++
				}
			}
		}
	}
	if calls < 42_000 {
		t.Errorf("only %d calls", calls)
	}
}

// operands puts every block far from the others.
func operands(r models.Refs) kernels.Operands {
	one := func(r models.Ref) runtime.Span {
		return runtime.Span{Offset: int64(r.Block)<<40 + r.Offset, Bytes: r.Bytes}
	}
	list := func(rs []models.Ref) (spans []runtime.Span) {
		for _, r := range rs {
			spans = append(spans, one(r))
		}
		return spans
	}
	return kernels.Operands{
		X: list(r.X), Y: one(r.Y), DX: list(r.DX), DY: one(r.DY), Saved: list(r.Saved), Params: list(r.Params),
		DParams: list(r.DParams), Workspace: one(r.Workspace),
		Scalars: one(models.Ref{Block: models.Scalars, Bytes: kernels.ScalarsBytes}),
	}
}

func describe(l *models.Layer) (s string) {
	for i, n := range l.Nodes {
		s += fmt.Sprintf("\n%d = %s%+v%v", i+1, n.Op.Kind(), n.Op, n.In)
	}
	return s
}

// Every program of the zoo has the smallest Scratch that there can be, and every backward in halves the smallest Kept.
func TestZooMeetsLowerBounds(t *testing.T) {
	t.Parallel()
	programs := 0
	for _, k := range models.Zoo() {
		m := build(t, k.Name, models.Config{Batch: 8, Image: 224, Classes: 1000})
		for i, l := range m.Layers {
			for _, late := range []bool{false, true} {
				extents, bounds := models.Extents(l, i > 0, late)
				if !slices.Equal(extents, bounds) {
					t.Errorf("%s %s, late %v, has %v bytes of scratch, its lower bounds are %v", k.Name, l.Name, late, extents, bounds)
				}
				programs += len(extents)
			}
		}
	}
	if programs < 13_000 {
		t.Errorf("only %d programs", programs)
	}
}
