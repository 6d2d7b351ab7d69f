package models_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/modeltest"
)

// checkLayer runs the programs of one layer and compares them with its plain derivative.
//
//  1. Save and Forget compute the same bits, and those that the definition computes.
//  2. Back computes the gradients, from what Save left and nothing else.
//  3. Nothing outside of the blocks is written, and nothing that was never written is read.
//  4. Every saved tensor is needed.
func checkLayer(t testing.TB, m *models.Model, programs []*models.Programs, l int) {
	t.Helper()
	f, saved, gradient := checkDerivative(t, m, programs, l)
	for _, r := range models.Saved(f.Layer, m.DifferentiatesInput(l)) {
		without := slices.Clone(saved)
		modeltest.PoisonBytes(without[r.Offset : r.Offset+r.Bytes])
		if err := back(t, f, without, gradient); err == nil && !poisoned(f) {
			t.Errorf("saved tensor %+v is not needed", r)
		}
	}
}

// checkDerivative checks the first three of these, and returns what Save left and the gradient that Back was given.
func checkDerivative(t testing.TB, m *models.Model, programs []*models.Programs, l int) (f *modeltest.Frame, saved, gradient []byte) {
	t.Helper()
	f = modeltest.NewFrame(m, programs, l, reference)
	f.Fill(uint64(l), m.Classes)
	want, err := modeltest.Differentiate(f)
	must(t, err)
	p := f.Programs

	must(t, f.Run(&p.Forget))
	forgot := slices.Clone(f.Bytes(models.Output)[:p.OutputBytes])
	f.Poison(models.Output)
	f.Poison(models.Scratch)
	must(t, f.Run(&p.Save))
	saved = slices.Clone(f.Bytes(models.Output))
	if output := f.Layer.Desc(f.Layer.Output()).Bytes(); !bytes.Equal(forgot[:output], saved[:output]) {
		t.Errorf("Save and Forget compute different outputs")
	}
	if got := f.Output(); !slices.Equal(got, want.Output) {
		t.Errorf("the output is not that of the definition")
	}

	gradient = slices.Clone(f.Bytes(models.GradOutput))
	compare(t, f, want, back(t, f, saved, gradient), m.DifferentiatesInput(l))
	return f, saved, gradient
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// back runs Back from the given saved set and gradient.
func back(t testing.TB, f *modeltest.Frame, saved, gradient []byte) error {
	t.Helper()
	for _, b := range []models.Block{models.Scratch, models.GradInput, models.Grads} {
		f.Poison(b)
	}
	copy(f.Bytes(models.Output), saved)
	copy(f.Bytes(models.GradOutput), gradient)
	return f.Run(&f.Programs.Back)
}

// poisoned reports whether a gradient holds a NaN.
func poisoned(f *modeltest.Frame) bool {
	nan := func(v float32) bool { return v != v }
	for _, p := range f.Layer.Params() {
		if p.Trained && slices.ContainsFunc(f.Floats(p.Grad), nan) {
			return true
		}
	}
	return slices.ContainsFunc(f.GradInput(), nan)
}

func compare(t testing.TB, f *modeltest.Frame, want *modeltest.Derivative, err error, input bool) {
	t.Helper()
	must(t, err)
	near := near
	if f.Layer.Desc(1).DType == kernels.BFloat16 {
		near = nearBFloat16
	}
	if input {
		near(t, "gradient of the input", f.GradInput(), want.Input, scale(want))
	}
	for _, p := range f.Layer.Params() {
		if p.Trained {
			near(t, "gradient of "+p.Name, f.Floats(p.Grad), want.Params[p.Name], scale(want))
		}
	}
}

// scale is the largest gradient: what cancels to nearly nothing is exact only beside it.
func scale(d *modeltest.Derivative) float64 {
	var most float64
	for _, p := range d.Params {
		most = max(most, largest(p))
	}
	return max(most, largest(d.Input), 1e-3)
}

func largest(v []float32) float64 {
	var most float64
	for _, x := range v {
		most = max(most, math.Abs(float64(x)))
	}
	return most
}

// near compares to 1e-5 of the largest value: the two add the same contributions, rounded at different places.
func near(t testing.TB, what string, got, want []float32, scale float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= 1e-5*scale) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// nearBFloat16 compares the root of the mean square. A sum in bfloat16 is off by 2^-9 of itself wherever it is rounded.
// From op to op a few elements drift farther than that, which shows in a tensor of few.
func nearBFloat16(t testing.TB, what string, got, want []float32, scale float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(got), len(want))
	}
	var squares float64
	for i := range got {
		d := float64(got[i]) - float64(want[i])
		squares += d * d
	}
	n := float64(len(got))
	if off := math.Sqrt(squares / n); !(off <= (1+1/math.Sqrt(n))*1e-2*scale) {
		t.Fatalf("%s: off by %v, the largest gradient is %v", what, off, scale)
	}
}

// The programs of every family of the zoo, each different layer once.
func TestZooPrograms(t *testing.T) {
	t.Parallel()
	both := []kernels.DType{kernels.Float32, kernels.BFloat16}
	layers := 0
	for _, c := range []struct {
		name   string
		image  int
		dtypes []kernels.DType
	}{
		{"tiny", 16, both}, {"mlp", 6, both}, {"resnet20", 8, both}, {"resnet164", 8, both[:1]},
		{"resnet18", 16, both[:1]}, {"resnet50", 16, both[:1]}, {"densenet121", 32, both[:1]},
	} {
		for _, d := range c.dtypes {
			if testing.Short() && c.name != "tiny" && d != kernels.Float32 {
				continue
			}
			m := build(t, c.name, models.Config{Batch: 2, Image: c.image, Classes: 5, DType: d})
			programs := compiled(t, m)
			for l := range different(m) {
				t.Run(fmt.Sprintf("%s/%v/%s", c.name, d, m.Layers[l-1].Name), func(t *testing.T) {
					checkLayer(t, m, programs, l)
					if d == kernels.BFloat16 { // TestZooHalves is of float32 alone
						checkHalves(t, newHalved(t, m, programs, l, reference))
					}
				})
				layers++
			}
		}
	}
	if layers < 65 && !testing.Short() || layers < 45 {
		t.Errorf("only %d layers ran", layers)
	}
}

// different returns the layers of at most 200,000 parameters, each shape and graph once; of dense blocks the first two.
func different(m *models.Model) map[int]bool {
	seen, out := map[string]bool{}, map[int]bool{}
	for i, l := range m.Layers {
		key := fmt.Sprint(l.Input())
		for _, n := range l.Nodes {
			key += fmt.Sprintf("%T%+v%v", n.Op, n.Op, n.In)
		}
		_, number, _ := strings.Cut(l.Name, "denselayer")
		if !seen[key] && len(number) < 2 && number < "3" && elements(l) <= 200_000 {
			out[i+1] = true
		}
		seen[key] = true
	}
	return out
}

func elements(l *models.Layer) (n int64) {
	for _, p := range l.Params() {
		n += p.Desc.Elements()
	}
	return n
}

// A layer's gradients once more, by differences of its own outputs along the gradient. Where a step crosses the kink
// of a ReLU or a maximum the difference is off, so the median over many inputs counts.
func TestFiniteDifferences(t *testing.T) {
	t.Parallel()
	m := build(t, "tiny", models.Config{Batch: 4, Image: 8, Classes: 5})
	m.InputGradient = true
	programs := compiled(t, m)
	for l := 1; l <= len(m.Layers); l++ {
		var off []float64
		for seed := range uint64(21) {
			f := modeltest.NewFrame(m, programs, l, reference)
			f.Fill(seed, m.Classes)
			off = append(off, difference(t, f))
		}
		slices.Sort(off)
		if median := off[len(off)/2]; !(median < 2e-3) {
			t.Errorf("%s: the difference along the gradient is off by %v", m.Layers[l-1].Name, off)
		}
	}
}

// difference moves the input of a layer along its gradient and returns by how much, relatively, the output moves more
// or less than the gradient says.
func difference(t *testing.T, f *modeltest.Frame) float64 {
	x := modeltest.Floats(f.Bytes(models.Input)[:f.Layer.Input().Bytes()])
	dy := []float32{1, 0} // of the loss's output: the loss, not the number of correct predictions
	if f.Programs.GradientBytes > 0 {
		dy = modeltest.Floats(f.Bytes(models.GradOutput)[:f.Layer.Desc(f.Layer.Output()).Bytes()])
	}
	value := func() float64 {
		must(t, f.Run(&f.Programs.Save))
		return dot(dy, modeltest.Floats(f.Bytes(models.Output)))
	}
	value()
	must(t, f.Run(&f.Programs.Back))
	g := modeltest.Floats(f.Bytes(models.GradInput)[:f.Layer.Input().Bytes()])
	norm := math.Sqrt(dot(g, g))
	const step = 1e-3
	at := func(s float64) float64 {
		moved := slices.Clone(x)
		for i := range moved {
			moved[i] += float32(s / norm * float64(g[i]))
		}
		modeltest.Put(f.Bytes(models.Input), moved)
		return value()
	}
	return math.Abs((at(step)-at(-step))/(2*step)/norm - 1)
}

func dot(v, w []float32) (sum float64) {
	for i := range v {
		sum += float64(v[i]) * float64(w[i])
	}
	return sum
}

// Eval neither drops nor uses the batch: it is the forward with running statistics.
func TestEvaluation(t *testing.T) {
	t.Parallel()
	m := build(t, "tiny", models.Config{Batch: 2, Image: 8, Classes: 5})
	programs := compiled(t, m)
	for l := 1; l <= len(m.Layers); l++ {
		f := modeltest.NewFrame(m, programs, l, reference)
		f.Fill(uint64(l), m.Classes)
		must(t, f.Run(&f.Programs.Eval))
		y := slices.Clone(f.Bytes(models.Output)[:f.Programs.OutputBytes])
		f.Poison(models.Output)
		modeltest.PoisonBytes(f.Bytes(models.Scalars)) // nothing random: nothing to read
		must(t, f.Run(&f.Programs.Eval))
		if !bytes.Equal(y, f.Bytes(models.Output)[:f.Programs.OutputBytes]) {
			t.Errorf("%s: two evaluations differ", f.Layer.Name)
		}
		for _, s := range f.Programs.Eval.Steps {
			if s.Call.Train || len(s.Refs.Saved) > 0 {
				t.Errorf("%s: %s trains", f.Layer.Name, s.Name)
			}
		}
	}
}

// picky is a sum that may overwrite its second input only.
type picky struct{ kernels.Add }

func (picky) Alias(_ kernels.Pass, out, in kernels.Operand) bool {
	return out.Role == kernels.Y && in == kernels.Operand{Role: kernels.X, Index: 1}
}

// An input that an op reads in two roles is overwritten only when both allow it.
func TestAliasInEveryRole(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		b := models.NewBuilder("picky", kernels.F32(2, 320), 5)
		b.Layer("l", "", func(g *models.Graph, x models.Value) models.Value {
			y, z := g.ReLU("y", x), x
			if twice {
				z = y
			}
			return g.Linear("fc", g.Op("sum", picky{}, z, y), 5)
		})
		m, err := b.Model()
		must(t, err)
		s := compiled(t, m)[0].Eval.Steps[1]
		if inPlace := s.Refs.Y == s.Refs.X[1]; inPlace == twice { // neither fits where the output goes
			t.Errorf("twice %v: the sum of %+v is %+v", twice, s.Refs.X, s.Refs.Y)
		}
	}
}

// Two dropouts of a model never draw the same mask, twins neither; other ops know nothing of where they are.
func TestSalts(t *testing.T) {
	t.Parallel()
	b := models.NewBuilder("dropouts", kernels.F32(2, 4, 4, 3), 2)
	for _, name := range []string{"a", "b", "c"} {
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
			return g.Dropout("second", g.Conv("conv", g.Dropout("first", x, 0.5), 4, 3, 1), 0.5)
		})
	}
	b.Twins(2)
	b.Join("join", "", func(g *models.Graph, ends []models.Value) models.Value {
		return g.Linear("fc", g.Dropout("dropout", g.Concat("concat", ends...), 0.5), 2)
	})
	m, err := b.Model()
	if err != nil {
		t.Fatal(err)
	}
	salts, dropouts := map[uint64]bool{}, 0
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			if _, random := n.Op.(kernels.Dropout); random {
				salts[n.Salt] = true
				dropouts++
			} else if n.Salt != 0 {
				t.Errorf("%s of %s: salt %d", n.Name, l.Name, n.Salt)
			}
		}
	}
	if len(salts) != dropouts || dropouts != 3*3*2+1 || salts[0] {
		t.Errorf("%d dropouts have %d salts: %v", dropouts, len(salts), salts)
	}
}

// asked counts what a library is asked for.
type asked struct {
	kernels.Library
	workspaces int
}

func (a *asked) Workspace(c kernels.Call) (int64, error) {
	a.workspaces++
	return a.Library.Workspace(c)
}

// Layers that repeat are compiled once, and every layer's programs are those that it has alone.
func TestLayersThatRepeat(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"resnet110": 150, "densenet121": 1400, "siamese": 150, "tiny": 120} {
		m := build(t, name, models.Config{Batch: 2, Image: 32, Classes: 2})
		lib := &asked{Library: reference(nil)}
		all, err := m.CompileUnsplit(lib)
		if err != nil {
			t.Fatal(err)
		}
		if lib.workspaces > most {
			t.Errorf("%s: %d workspaces were asked for", name, lib.workspaces)
		}
		for i := range m.Layers {
			if alone, err := m.CompileLayer(i, lib); err != nil || !reflect.DeepEqual(alone, all[i]) {
				t.Errorf("%s: layer %d differs from itself alone (%v)", name, i+1, err)
			}
		}
	}
}
