package gorgonia_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	g "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/models/gorgonia"
	"plimsoll/models/modeltest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Gorgonia's loss and gradients of whole models are those of our programs.
func TestOracle(t *testing.T) {
	t.Parallel()
	block := func(stride int) func(g *models.Graph, x models.Value) models.Value {
		return func(g *models.Graph, x models.Value) models.Value {
			y := g.BNReLU("bn1", g.Conv("conv1", x, 6, 3, stride))
			y = g.Conv("conv2", y, 6, 3, 1)
			if stride > 1 {
				x = g.BN("downsample.1", g.Conv("downsample.0", x, 6, 1, stride))
			}
			return g.BNAddReLU("bn2", y, x)
		}
	}
	nets := map[string]func(b *models.Builder){
		"residual": func(b *models.Builder) {
			b.Layer("stem", "", func(g *models.Graph, x models.Value) models.Value {
				return g.BNReLU("bn", g.MaxPool("pool", g.Conv("conv", x, 4, 3, 1), 3, 2, 1))
			})
			b.Layer("block1", "block1", block(2))
			b.Layer("block2", "block2", block(1))
			b.Layer("fc", "", func(g *models.Graph, x models.Value) models.Value {
				return g.Linear("fc", g.GlobalAvgPool("pool", x), 5)
			})
		},
		"dense": func(b *models.Builder) {
			b.Layer("dense", "", func(g *models.Graph, x models.Value) models.Value {
				y := g.Op("conv", kernels.Conv2D{Out: 4, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, g.BNReLU("bn", x))
				return g.Concat("concat", x, y)
			})
			b.Layer("transition", "", func(g *models.Graph, x models.Value) models.Value {
				return g.AvgPool("pool", g.Add("add", x, g.ReLU("relu", x)), 2, 2)
			})
			b.Layer("fc", "", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 5) })
		},
	}
	nets["skips"] = func(b *models.Builder) {
		b.Layer("down", "down", func(g *models.Graph, x models.Value) models.Value {
			x = g.BNReLU("bn", g.Conv("conv", x, 4, 3, 1))
			return g.Op("pack", kernels.Pack{}, g.MaxPool("pool", x, 2, 2, 0), x)
		})
		b.Layer("bottom", "bottom", func(g *models.Graph, x models.Value) models.Value {
			skip := g.Op("skip", kernels.Slice{From: 4 * 4 * 4, H: 1, W: 1, C: 8 * 8 * 4}, x)
			x = g.Op("x", kernels.Slice{H: 4, W: 4, C: 4}, x)
			return g.Op("pack", kernels.Pack{}, g.BNReLU("bn", g.Conv("conv", x, 6, 3, 1)), skip)
		})
		b.Layer("up", "up", func(g *models.Graph, x models.Value) models.Value {
			y := g.Op("up", kernels.Upsample{Factor: 2}, g.Op("x", kernels.Slice{H: 4, W: 4, C: 6}, x))
			y = g.Concat("concat", y, g.Op("skip", kernels.Slice{From: 4 * 4 * 6, H: 8, W: 8, C: 4}, x))
			odd := g.Op("odd", kernels.Slice{Rows: 4, From: 8 * 10, H: 4, W: 8, C: 10}, y)
			return g.Linear("fc", g.Conv("conv", odd, 5, 3, 1), 5)
		})
	}
	for name, build := range nets {
		t.Run(name, func(t *testing.T) {
			b := models.NewBuilder(name, kernels.F32(4, 8, 8, 3), 5)
			build(b)
			m, err := b.Model()
			must(t, err)
			for _, lib := range libraries {
				compare(t, m, lib)
			}
			b = models.NewBuilder(name, kernels.F32(4, 8, 8, 3), 5)
			b.DType = kernels.BFloat16
			build(b)
			m, err = b.Model()
			must(t, err)
			compare(t, m, libraries[0])
		})
	}
}

var libraries = []func(modeltest.Memory) kernels.Library{
	func(m modeltest.Memory) kernels.Library { return ref.New(m) },
	func(m modeltest.Memory) kernels.Library {
		l, err := cpu.New(m, cpu.Options{Threads: 1})
		if err != nil {
			panic(err)
		}
		return l
	},
}

func compare(t *testing.T, m *models.Model, lib func(modeltest.Memory) kernels.Library) {
	programs, err := m.Compile(lib(nil))
	must(t, err)
	chain := modeltest.NewChain(m, programs, 1, lib)
	input, labels := batch(m)
	loss, err := chain.Step(input, labels)
	must(t, err)

	graph := evaluate(t, m, chain, input, labels)
	theirs := graph.Loss.Value().Data().(float64)
	precision := 1e-5
	if m.DType() == kernels.BFloat16 {
		precision = 0x1p-6
	}
	if math.Abs(theirs-float64(loss)) > precision {
		t.Errorf("loss is %v, Gorgonia's %v", loss, theirs)
	}
	compared := 0
	for _, f := range chain.Frames {
		for _, p := range f.Layer.Params() {
			if p.Trained {
				gradients(t, p, f.Floats(p.Grad), graph.Params[p.Name], 10*precision)
				compared++
			}
		}
	}
	if compared < 5 || compared != len(graph.Params) {
		t.Errorf("compared %d parameters of %d", compared, len(graph.Params))
	}
}

func batch(m *models.Model) (input []float32, labels []int32) {
	r := rand.New(rand.NewPCG(1, 2))
	input = make([]float32, m.Input.Elements())
	for i := range input {
		input[i] = float32(r.NormFloat64())
	}
	labels = make([]int32, m.Input.Shape[0])
	for i := range labels {
		labels[i] = r.Int32N(int32(m.Classes))
	}
	return input, labels
}

// evaluate runs the model in Gorgonia with the values that the chain has.
func evaluate(t *testing.T, m *models.Model, chain *modeltest.Chain, input []float32, labels []int32) *gorgonia.Graph {
	graph, err := gorgonia.New(m, func(p models.Parameter) []float32 { return chain.Frames[p.Layer-1].Floats(p.Value) })
	must(t, err)
	var wrt []*g.Node
	for _, n := range graph.Params {
		wrt = append(wrt, n)
	}
	_, err = g.Grad(graph.Loss, wrt...)
	must(t, err)
	first := make([]float64, len(input))
	order := gorgonia.ChannelsLast(m.Input.Shape)
	for i := range first {
		first[i] = float64(input[order(i)])
	}
	hot := make([]float64, len(labels)*m.Classes)
	for i, label := range labels {
		hot[i*m.Classes+int(label)] = 1
	}
	must(t, g.Let(graph.Input, tensor.New(tensor.WithShape(graph.Input.Shape()...), tensor.WithBacking(first))))
	must(t, g.Let(graph.Labels, tensor.New(tensor.WithShape(graph.Labels.Shape()...), tensor.WithBacking(hot))))
	machine := g.NewTapeMachine(graph.Graph, g.BindDualValues(wrt...))
	must(t, machine.RunAll())
	must(t, machine.Close())
	return graph
}

func gradients(t *testing.T, p models.Parameter, ours []float32, n *g.Node, precision float64) {
	t.Helper()
	v, err := n.Grad()
	must(t, err)
	theirs := v.Data().([]float64)
	order := func(i int) int { return i }
	if len(p.Desc.Shape) == 4 {
		order = gorgonia.ChannelsLast(p.Desc.Shape)
	}
	for i, want := range theirs {
		if got := float64(ours[order(i)]); math.Abs(got-want) > precision*max(1, math.Abs(want)) {
			t.Fatalf("gradient of %s at %d is %v, Gorgonia's %v", p.Name, i, got, want)
		}
	}
}

// The error names the op that Gorgonia lacks.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]kernels.Op{
		"dropout":              kernels.Dropout{P: 0.5},
		"conv2d with 3 groups": kernels.Conv2D{Out: 3, KernelH: 1, KernelW: 1, Groups: 3},
	} {
		b := models.NewBuilder("m", kernels.F32(2, 2, 2, 3), 5)
		b.Layer("l", "", func(g *models.Graph, x models.Value) models.Value { return g.Op("odd", op, x) })
		b.Layer("fc", "", func(g *models.Graph, x models.Value) models.Value { return g.Linear("fc", x, 5) })
		m, err := b.Model()
		must(t, err)
		_, err = gorgonia.New(m, func(p models.Parameter) []float32 { return make([]float32, p.Desc.Elements()) })
		if want := `m: layer l: op "odd": gorgonia has no such op: ` + name; !errors.Is(err, gorgonia.ErrUnsupported) || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}
