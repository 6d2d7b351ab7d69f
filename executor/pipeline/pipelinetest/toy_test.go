package pipelinetest

import (
	"math"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// The network of the toy: three linear layers without biases, each a stage of its own, the last one with the loss.
const (
	toySamples = 4
	toyLayers  = 3
)

var toyWidths = [toyLayers + 1]int{5, 4, 6, 3}

func toyModel(t *testing.T) *models.Model {
	b := models.NewBuilder("toy", kernels.F32(toySamples, 1, 1, toyWidths[0]), toyWidths[toyLayers])
	for l, name := range []string{"one", "two", "three"} {
		b.Layer(name, name, func(g *models.Graph, x models.Value) models.Value {
			return g.Op("fc", kernels.Linear{Out: toyWidths[l+1]}, x)
		})
	}
	m, err := b.Model()
	must(t, err)
	return m
}

// matrix has rows of equal length.
type matrix [][]float64

func newMatrix(rows, cols int) matrix {
	m := make(matrix, rows)
	for i := range m {
		m[i] = make([]float64, cols)
	}
	return m
}

// product returns the sums over k of a(i,k)·b(k,j).
func product(rows, inner, cols int, a, b func(i, j int) float64) matrix {
	m := newMatrix(rows, cols)
	for i := range rows {
		for j := range cols {
			for k := range inner {
				m[i][j] += a(i, k) * b(k, j)
			}
		}
	}
	return m
}

func (m matrix) at(i, j int) float64     { return m[i][j] }
func (m matrix) turned(i, j int) float64 { return m[j][i] }

// toy trains the three matrices in float64, with every version kept.
type toy struct {
	weights  [toyLayers][]matrix // by version; out x in
	velocity [toyLayers]matrix
	sums     [toyLayers]matrix
}

func newToy(m *models.Model, seed uint64) *toy {
	y := &toy{}
	for l, p := range m.Params() {
		start := make([]float32, p.Desc.Elements())
		models.Init(p, seed, start)
		rows, cols := toyWidths[l+1], toyWidths[l]
		w := newMatrix(rows, cols)
		for i, v := range start {
			w[i/cols][i%cols] = float64(v)
		}
		y.weights[l], y.velocity[l], y.sums[l] = []matrix{w}, newMatrix(rows, cols), newMatrix(rows, cols)
	}
	return y
}

// gradients adds ∂loss/∂W of every layer to the sums: forward with some matrices, backward with others.
func (y *toy) gradients(minibatch int, forward, backward [toyLayers]matrix) {
	images, labels := make([]float32, toySamples*toyWidths[0]), make([]int32, toySamples)
	batch(toyWidths[toyLayers])(minibatch, images, labels)
	var a [toyLayers + 1]matrix
	a[0] = newMatrix(toySamples, toyWidths[0])
	for i, v := range images {
		a[0][i/toyWidths[0]][i%toyWidths[0]] = float64(v)
	}
	for l, w := range forward {
		a[l+1] = product(toySamples, toyWidths[l], toyWidths[l+1], a[l].at, w.turned)
	}
	delta := softmaxGradient(a[toyLayers], labels)
	for l := toyLayers - 1; l >= 0; l-- {
		g := product(toyWidths[l+1], toySamples, toyWidths[l], delta.turned, a[l].at)
		for i := range g {
			for j := range g[i] {
				y.sums[l][i][j] += g[i][j]
			}
		}
		delta = product(toySamples, toyWidths[l+1], toyWidths[l], delta.at, backward[l].at)
	}
}

// softmaxGradient is the derivative of the mean cross entropy with respect to the logits.
func softmaxGradient(logits matrix, labels []int32) matrix {
	d := newMatrix(len(logits), len(logits[0]))
	for i, row := range logits {
		total := 0.0
		for _, x := range row {
			total += math.Exp(x)
		}
		for j, x := range row {
			d[i][j] = math.Exp(x) / total / float64(len(logits))
		}
		d[i][labels[i]] -= 1 / float64(len(logits))
	}
	return d
}

// update appends a version: v = momentum·v + g/group + decay·w; w = w - lr·v.
func (y *toy) update(layer int, lr float64, group int) {
	latest := y.weights[layer][len(y.weights[layer])-1]
	next := newMatrix(len(latest), len(latest[0]))
	for i := range latest {
		for j, w := range latest[i] {
			v := &y.velocity[layer][i][j]
			*v = float64(momentum.Momentum)**v + y.sums[layer][i][j]/float64(group) + float64(momentum.WeightDecay)*w
			next[i][j] = w - lr**v
			y.sums[layer][i][j] = 0
		}
	}
	y.weights[layer] = append(y.weights[layer], next)
}

// train runs the minibatches with versions from tables, by stage and minibatch.
func (y *toy) train(group int, forward, backward [][]int, lr func(stage, update int) float64) {
	for m := range forward[0] {
		var f, b [toyLayers]matrix
		for l := range toyLayers {
			f[l], b[l] = y.weights[l][forward[l][m]], y.weights[l][backward[l][m]]
		}
		y.gradients(m, f, b)
		if (m+1)%group == 0 {
			for l := range toyLayers {
				y.update(l, lr(l, m/group), group)
			}
		}
	}
}

// distance returns the largest difference between the latest weights of the toy and those of a run.
func (y *toy) distance(t *testing.T, m *models.Model, out *Outcome) (most float64) {
	for l, p := range m.Params() {
		got := out.Tensor("weight", p.Name)
		if len(got) != toyWidths[l]*toyWidths[l+1] {
			t.Fatalf("weight of %s has %d elements", p.Name, len(got))
		}
		w := y.weights[l][len(y.weights[l])-1]
		for i, v := range got {
			most = max(most, math.Abs(float64(v)-w[i/toyWidths[l]][i%toyWidths[l]]))
		}
	}
	return most
}

// same is a table of n equal rows.
func same(row ...int) [][]int { return [][]int{row, row, row} }

// toyPrograms are the papers' programs for three stages beside the versions that a minibatch uses, written out by hand.
var toyPrograms = []struct {
	program           Program
	forward, backward [][]int // by stage, by minibatch
}{
	{program: Flush(1), forward: same(0, 1, 2, 3, 4, 5)},
	{program: Flush(3), forward: same(0, 0, 0, 1, 1, 1)},
	// PipeDream: w_1^(t-2), w_2^(t-1), w_3^(t).
	{program: Stashing(Depths(3)), forward: [][]int{{0, 0, 0, 1, 2, 3}, {0, 0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}}},
	{program: Stashing([]int{3, 3, 0}), forward: [][]int{{0, 0, 0, 0, 1, 2}, {0, 0, 0, 0, 1, 2}, {0, 1, 2, 3, 4, 5}}},
	// Vertical sync: w_1^(t-2), w_2^(t-2), w_3^(t-2).
	{program: VerticalSync(Depths(3)), forward: same(0, 0, 0, 1, 2, 3)},
	// 2BW: W^(t-1).
	{program: DoubleBuffered(1, []int{1, 1, 1}), forward: same(0, 0, 1, 2, 3, 4)},
	{program: DoubleBuffered(2, []int{1, 1, 1}), forward: same(0, 0, 0, 0, 1, 1, 2, 2)},
	{program: DoubleBuffered(3, []int{2, 1, 1}), forward: [][]int{{0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 1, 1, 1}}},
	// AMPNet: forward as PipeDream, backward with all updates so far.
	{program: Latest(Depths(3)), forward: [][]int{{0, 0, 0, 1, 2, 3}, {0, 0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}}, backward: same(0, 1, 2, 3, 4, 5)},
	// Empty before minibatch 3, or 4 and 6.
	{program: Stashing(Depths(3)).Emptied(3), forward: [][]int{{0, 0, 0, 3, 3, 3}, {0, 0, 1, 3, 3, 4}, {0, 1, 2, 3, 4, 5}}},
	{program: DoubleBuffered(2, []int{1, 1, 1}).Emptied(4, 6), forward: same(0, 0, 0, 0, 2, 2, 3, 3)},
	{program: Latest(Depths(3)).Emptied(3), forward: [][]int{{0, 0, 0, 3, 3, 3}, {0, 0, 1, 3, 3, 4}, {0, 1, 2, 3, 4, 5}}, backward: same(0, 1, 2, 3, 4, 5)},
}

// The papers' equations in plain Go, in float64, with backpropagation by hand: the weights of a reference are theirs, and far
// from those of every other program.
func TestProgramsFollowThePapersEquations(t *testing.T) {
	t.Parallel()
	m := toyModel(t)
	c := config(t, m, 1)
	c.Stages = []Stage{{1, 1}, {2, 2}, {3, 4}}
	r := open(t, c)
	lr := func(_, update int) float64 { return float64(rate(update)) }
	var nearest = math.Inf(1)
	for i, x := range toyPrograms {
		out := r.must(t, x.program, len(x.forward[0]))
		for k, z := range toyPrograms {
			backward := z.backward
			if backward == nil {
				backward = z.forward
			}
			y := newToy(m, c.Seed)
			y.train(z.program.Group, z.forward, backward, lr)
			d := y.distance(t, m, out)
			if i != k {
				nearest = min(nearest, d)
			} else if !(d < 1e-6) {
				t.Errorf("%s (%d): the weights are off by %g", x.program.Name, i, d)
			}
		}
	}
	t.Logf("two different programs are at least %g apart", nearest)
	if !(nearest > 3e-5) {
		t.Errorf("two different programs are %g apart: too near to tell", nearest)
	}
}

// The delays of 1F1B, counted on its sequence: stage s of n does n-s forwards, then a backward and a forward in turn.
func TestDepthsAreThoseOf1F1B(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		p := Stashing(Depths(n))
		for s := range n {
			backwards := 0
			for m := range 20 {
				if m >= n-s {
					backwards++
				}
				if got := p.Forward(s, m); got != backwards {
					t.Fatalf("stage %d of %d: minibatch %d uses version %d, and %d updates have been", s, n, m, got, backwards)
				}
			}
		}
	}
}

// PipeMare's T1, with τ of three stages and one microbatch, (2(3-i)+1): 5, 3, 1; the rates by hand.
func TestRescheduledRates(t *testing.T) {
	t.Parallel()
	m := toyModel(t)
	c := config(t, m, 1)
	c.Stages = []Stage{{1, 1}, {2, 2}, {3, 4}}
	c.LR = Rescheduled(rate, []float64{5, 3, 1}, 2)
	table := [][]float64{{5, 3, 1}, {math.Sqrt(5), math.Sqrt(3), 1}, {1, 1, 1}, {1, 1, 1}} // what the rate is divided by
	y := newToy(m, c.Seed)
	forward := [][]int{{0, 0, 0, 1}, {0, 0, 1, 2}, {0, 1, 2, 3}}
	y.train(1, forward, same(0, 1, 2, 3), func(s, k int) float64 { return float64(rate(k)) / table[k][s] })
	out := open(t, c).must(t, Latest(Depths(3)), 4)
	if d := y.distance(t, m, out); !(d < 1e-6) {
		t.Errorf("the weights are off by %g", d)
	}
	plain := newToy(m, c.Seed)
	plain.train(1, forward, same(0, 1, 2, 3), func(_, k int) float64 { return float64(rate(k)) })
	if d := plain.distance(t, m, out); !(d > 1e-3) {
		t.Errorf("without T1 the weights are only %g away", d)
	}
}

// Replicas compute the same gradient; only its rounding depends on who adds what, in which order.
func TestReplicasAddUpTheirOwnMinibatches(t *testing.T) {
	t.Parallel()
	m := toyModel(t)
	r := open(t, config(t, m, 2))
	assign := func(replicas ...int) Program {
		p := Flush(len(replicas))
		p.Replica = func(_, minibatch int) int { return replicas[minibatch%len(replicas)] }
		return p
	}
	want := r.must(t, Flush(4), 8)
	for _, x := range []struct {
		replicas []int
		same     bool // as the sum in order, bit for bit
	}{{[]int{0, 0, 0, 0}, true}, {[]int{3, 3, 3, 3}, true}, {[]int{0, 1, 0, 1}, false}, {[]int{3, 2, 1, 0}, false}} {
		got := r.must(t, assign(x.replicas...), 8)
		if d := want.FirstDifference(got); (d == "") != x.same {
			t.Errorf("replicas %v: first difference %q", x.replicas, d)
		}
		for i, w := range want.Tensors {
			for k, v := range w.Values {
				if math.Abs(float64(v-got.Tensors[i].Values[k])) > 1e-5 {
					t.Fatalf("replicas %v: %s[%d] is %v, want about %v", x.replicas, w.key(), k, got.Tensors[i].Values[k], v)
				}
			}
		}
	}
	// Sums of two do not depend on their order, so two replicas can change places.
	if d := r.must(t, assign(0, 1), 8).FirstDifference(r.must(t, assign(1, 0), 8)); d != "" {
		t.Errorf("replicas that change places: %s", d)
	}
}

// The sums of replicas are added in the order of their numbers: another order of these would lose the 1, or be 0.
func TestReplicasAreSummedInOrder(t *testing.T) {
	t.Parallel()
	sums := map[int]tensors{2: {{1e8}, {2}}, 0: {{-1e8}, {3}}, 5: {{1}, {4}}}
	s := &stage{sums: sums, trained: make([]*parameter, 2)}
	if s.allReduce(nil); s.total[0][0] != 1 || s.total[1][0] != 9 {
		t.Errorf("the sums are %v, want 1 and 9", s.total)
	}
}
