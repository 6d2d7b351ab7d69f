package pipeline

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime/host"
)

// The runs whose steps are compared: each optimizer with and without a decay of gains and biases.
var optimizerRuns = []struct {
	model string
	rule  kernels.Update
}{
	{"tiny", kernels.SGD{WeightDecay: 0.1, MatricesOnly: true}},
	{"tiny", kernels.SGD{Momentum: 0.9, WeightDecay: 0.1, MatricesOnly: true}},
	{"tiny", kernels.SGD{Momentum: 0.9, WeightDecay: 0.1}},
	{"tiny", kernels.Adam{Beta1: 0.8, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1, MatricesOnly: true}},
	{"llama-1-16", kernels.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.5, MatricesOnly: true}},
	{"gpt2-1-16", kernels.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.5}},
	{"llama-1-16", kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.5, MatricesOnly: true}},
	{"llama-1-16", kernels.Muon{Momentum: 0.95, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.5}},
	{"gpt2-1-16", kernels.Muon{Momentum: 0.8, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.5, MatricesOnly: true}},
	{"tiny", kernels.Muon{Momentum: 0.8, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.5, MatricesOnly: true}},
}

// optimizerRun is a run's rule, and the tensors of its files.
type optimizerRun struct {
	Kind    string
	Rule    kernels.Update
	Rate    float64
	Tensors []optimizerTensor
}

// optimizerTensor is a trained tensor of a file: values before and after the steps, and the gradient of each step.
type optimizerTensor struct {
	Name         string
	Shape        []int
	Hidden       bool // Muon's, by its name
	Start, After []float64
	Grads        [][]float64
}

// hiddenTensor tells Muon's tensors from the others by name and axes.
func hiddenTensor(name string, axes int) bool {
	for _, other := range []string{"embed", "lm_head", "fc.weight"} {
		if strings.Contains(name, other) && !strings.Contains(name, "c_fc.weight") {
			return false
		}
	}
	return axes > 1
}

// stepping binds store-all to a device of its own.
func stepping(t testing.TB, w *Workload, opt Options) *Stepper {
	t.Helper()
	if opt.Seed = 7; opt.Feed == nil {
		opt.Feed = feedOf(w.Model)
	}
	e, err := NewAlone(w, targets(t, 1, host.Config{})[0], w.StoreAll(), opt)
	must(t, err)
	return e
}

// recordRun takes steps and records them by the tensors of files.
func recordRun(t *testing.T, model string, rule kernels.Update) optimizerRun {
	t.Helper()
	m, err := models.New(model, models.Config{Batch: 2, Image: 8, Channels: 3, Classes: 11})
	must(t, err)
	e := stepping(t, workloadOf(t, m, rule), Options{})
	run := optimizerRun{Kind: rule.Kind(), Rule: rule, Rate: 0.05}
	index := map[string]int{}
	each := func(role string, do func(*optimizerTensor, []float64)) {
		for _, x := range append(e.Tensors(), e.Gradients()...) {
			if x.Role != role {
				continue
			}
			values := make([]float32, x.Desc.Elements())
			must(t, e.Read(x, values))
			parts := x.Parts
			if len(parts) < 2 {
				parts = []models.Part{{Name: x.Name, Rows: x.Desc.Shape[0]}}
			}
			for _, p := range parts {
				shape := append([]int{p.Rows}, x.Desc.Shape[1:]...)
				n := int(x.Desc.Elements()) / x.Desc.Shape[0] * p.Rows
				if _, there := index[p.Name]; !there {
					index[p.Name] = len(run.Tensors)
					run.Tensors = append(run.Tensors, optimizerTensor{Name: p.Name, Shape: shape, Hidden: hiddenTensor(p.Name, len(shape))})
				}
				exact := make([]float64, n)
				for i, v := range values[:n] {
					exact[i] = float64(v)
				}
				do(&run.Tensors[index[p.Name]], exact)
				values = values[n:]
			}
		}
	}
	each("weight", func(x *optimizerTensor, v []float64) { x.Start = v })
	for range 3 {
		_, err := e.Step(float32(run.Rate))
		must(t, err)
		each("gradient", func(x *optimizerTensor, v []float64) { x.Grads = append(x.Grads, v) })
	}
	each("weight", func(x *optimizerTensor, v []float64) { x.After = v })
	return run
}

// check compares the weights at the end with others', within what float32 rounds.
func (r *optimizerRun) check(t *testing.T, by string, want [][]float64) {
	t.Helper()
	tolerance := 1e-6
	if r.Kind == "muon" {
		tolerance = 1e-4 // the iteration makes small singular values larger, rounding errors too
	}
	for i, x := range r.Tensors {
		for k, v := range x.After {
			if d := math.Abs(float64(v) - want[i][k]); !(d <= tolerance*(1+math.Abs(want[i][k]))) {
				t.Errorf("%+v: %s[%d] is %v, %s has %v", r.Rule, x.Name, k, v, by, want[i][k])
				break
			}
		}
	}
}

// TestOptimizersByFiles checks the weights after three steps of every optimizer on the tensors of files, by the rules in float64.
func TestOptimizersByFiles(t *testing.T) {
	t.Parallel()
	for _, c := range optimizerRuns {
		run := recordRun(t, c.model, c.rule)
		var want [][]float64
		for i := range run.Tensors {
			want = append(want, run.Tensors[i].train(c.rule, run.Rate))
		}
		run.check(t, "the rule", want)
	}
}

// TestOptimizersArePyTorchs checks the same against torch.optim in float64, of the Python that PLIMSOLL_TORCH names.
func TestOptimizersArePyTorchs(t *testing.T) {
	t.Parallel()
	python := os.Getenv("PLIMSOLL_TORCH")
	if python == "" {
		t.Skip("PLIMSOLL_TORCH names no Python with torch: make test-oracle does")
	}
	var runs []optimizerRun
	for _, c := range optimizerRuns {
		runs = append(runs, recordRun(t, c.model, c.rule))
	}
	text, err := json.Marshal(runs)
	must(t, err)
	torch := exec.Command(python, "testdata/torch_optim.py")
	torch.Stdin, torch.Stderr = bytes.NewReader(text), os.Stderr
	out, err := torch.Output()
	must(t, err)
	var want [][][]float64
	must(t, json.Unmarshal(out, &want))
	for i := range runs {
		runs[i].check(t, "PyTorch", want[i])
	}
}

// decimal is the number that was written as a float32.
func decimal(f float32) float64 {
	d, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return d
}

// train returns a tensor after its steps, by the rule's definition.
func (x *optimizerTensor) train(rule kernels.Update, lr float64) []float64 {
	w, v, s := slices.Clone(x.Start), make([]float64, len(x.Start)), make([]float64, len(x.Start))
	for t, grad := range x.Grads {
		switch r := rule.(type) {
		case kernels.SGD:
			decay := x.decay(r.WeightDecay, r.MatricesOnly)
			for i := range w {
				g := grad[i] + decay*w[i]
				if v[i] = decimal(r.Momentum)*v[i] + g; t == 0 {
					v[i] = g
				}
				w[i] -= lr * v[i]
			}
		case kernels.Adam:
			decay := x.decay(r.WeightDecay, r.MatricesOnly)
			x.adam(w, v, s, r, lr, t, decay, 0)
		case kernels.AdamW:
			x.adam(w, v, s, kernels.Adam(r), lr, t, 0, x.decay(r.WeightDecay, r.MatricesOnly))
		case kernels.Muon:
			if decay := x.decay(r.WeightDecay, r.MatricesOnly); x.Hidden {
				x.muon(w, v, decimal(r.Momentum), lr, t, decay)
			} else {
				x.adam(w, v, s, kernels.Adam(r.AdamW()), lr, t, 0, decay)
			}
		}
	}
	return w
}

// decay is the weight decay of a tensor.
func (x *optimizerTensor) decay(of float32, matricesOnly bool) float64 {
	if matricesOnly && len(x.Shape) < 2 {
		return 0
	}
	return decimal(of)
}

func (x *optimizerTensor) adam(w, m, v []float64, r kernels.Adam, lr float64, t int, coupled, decoupled float64) {
	b1, b2 := decimal(r.Beta1), decimal(r.Beta2)
	for i := range w {
		g := x.Grads[t][i] + coupled*w[i]
		w[i] *= 1 - lr*decoupled
		m[i], v[i] = b1*m[i]+(1-b1)*g, b2*v[i]+(1-b2)*g*g
		root := math.Sqrt(v[i] / (1 - math.Pow(b2, float64(t+1))))
		w[i] -= lr * m[i] / (1 - math.Pow(b1, float64(t+1))) / (root + decimal(r.Epsilon))
	}
}

func (x *optimizerTensor) muon(w, v []float64, beta, lr float64, t int, decay float64) {
	rows := x.Shape[0]
	columns := len(w) / rows
	y, norm := make([]float64, len(w)), 0.0
	for i := range w {
		g := x.Grads[t][i]
		v[i] = beta*v[i] + (1-beta)*g
		y[i] = beta*v[i] + (1-beta)*g
		norm += y[i] * y[i]
	}
	for i := range y {
		y[i] /= max(math.Sqrt(norm), 1e-7)
	}
	for range 5 { // aX + (bA + cA²)X, A = XXᵀ: of tall matrices this is aX + X(bA + cA²), A = XᵀX
		a := product(y, transposed(y, rows, columns), rows, columns, rows)
		aa := product(a, a, rows, rows, rows)
		for i := range a {
			a[i] = -4.7750*a[i] + 2.0315*aa[i]
		}
		ay := product(a, y, rows, rows, columns)
		for i := range y {
			y[i] = 3.4445*y[i] + ay[i]
		}
	}
	for i := range w {
		w[i] = (1-lr*decay)*w[i] - lr*0.2*math.Sqrt(float64(max(rows, columns)))*y[i]
	}
}

// product multiplies a matrix of m rows and k columns by one of n columns.
func product(a, b []float64, m, k, n int) []float64 {
	c := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range k {
				c[i*n+j] += a[i*k+l] * b[l*n+j]
			}
		}
	}
	return c
}

// transposed turns a matrix of m rows and n columns.
func transposed(a []float64, m, n int) []float64 {
	b := make([]float64, len(a))
	for i := range m {
		for j := range n {
			b[j*m+i] = a[i*n+j]
		}
	}
	return b
}
