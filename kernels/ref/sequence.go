package ref

import (
	"math"

	"plimsoll/kernels"
)

// embedding adds the row of a token to that of its position; each row's gradient is the sum of those of its uses.
func embedding(op kernels.Embedding, t *tensors) error {
	length, width := t.in[0].Shape[1], op.Width
	tokens := integers(t.x[0])
	at := positionsOf(op, tokens, length)
	var sums [2][]float64
	if t.call.Pass != kernels.Forward {
		sums[0], sums[1] = make([]float64, op.Vocabulary*width), make([]float64, op.Positions*width)
	}
	for i := range len(tokens) * width {
		token, position, c := int(tokens[i/width]), at[i/width], i%width
		known := token >= 0 && token < op.Vocabulary
		switch {
		case sums[0] != nil:
			if known && token+1 != op.Fixed {
				sums[0][token*width+c] += float64(t.dy[i])
			}
			if op.Positions > 0 && position+1 != op.Uncounted {
				sums[1][position*width+c] += float64(t.dy[i])
			}
		case !known:
			t.y[i] = float32(math.NaN())
		case op.Positions > 0:
			t.y[i] = t.params[0][token*width+c] + t.params[1][position*width+c]
		default:
			t.y[i] = t.params[0][token*width+c]
		}
	}
	for j, d := range t.dparams {
		if sums[0] != nil {
			store(d, sums[j], t.call.AddParams)
		}
	}
	return nil
}

// positionsOf returns the position of each token of samples of a length.
func positionsOf(op kernels.Embedding, tokens []int32, length int) []int {
	all, counted := make([]int, len(tokens)), 0
	for i, token := range tokens {
		if i%length == 0 {
			counted = 0
		}
		switch all[i] = i % length; {
		case op.Uncounted > 0 && int(token)+1 == op.Uncounted:
			all[i] = op.Uncounted - 1
		case op.Uncounted > 0:
			counted++
			all[i] = op.Uncounted - 1 + counted
		}
	}
	return all
}

// rowNorm is LayerNorm, or RMSNorm, which has neither mean nor bias: h = (x-mean)/std, y = w h + b. With g = w dy,
// dx = (g - mean(g) - h mean(g h))/std, the means over the row; RMSNorm has no mean(g). w is the weight and an offset.
func rowNorm(epsilon, offset float32, centered bool, t *tensors) error {
	c := len(t.params[0])
	w := make([]float64, c)
	for k, v := range t.params[0] {
		w[k] = float64(v) + float64(offset)
	}
	dw, db := make([]float64, c), make([]float64, c)
	for r := range len(t.x[0]) / c {
		if t.call.Pass == kernels.Forward {
			rowNormForward(float64(epsilon), centered, t, r, w)
		} else {
			rowNormBackward(centered, t, r, w, dw, db)
		}
	}
	if t.call.Pass != kernels.Forward {
		store(t.dparams[0], dw, t.call.AddParams)
		if centered {
			store(t.dparams[1], db, t.call.AddParams)
		}
	}
	return nil
}

func rowNormForward(epsilon float64, centered bool, t *tensors, r int, w []float64) {
	c := len(w)
	x := t.x[0][r*c : (r+1)*c]
	mean, squares := 0.0, 0.0
	for _, v := range x {
		if centered {
			mean += float64(v) / float64(c)
		}
	}
	for _, v := range x {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	inverse := 1 / math.Sqrt(squares/float64(c)+epsilon)
	for k, v := range x {
		y := (float64(v) - mean) * inverse * w[k]
		if centered {
			y += float64(t.params[1][k])
		}
		t.y[r*c+k] = float32(y)
	}
	for i, v := range [][2]float64{{inverse, inverse}, {mean, inverse}}[len(t.saved)-1][:len(t.saved)] {
		if t.saved[i] != nil {
			t.saved[i][r] = float32(v)
		}
	}
}

func rowNormBackward(centered bool, t *tensors, r int, w, dw, db []float64) {
	c := len(w)
	mean, inverse := 0.0, float64(t.saved[len(t.saved)-1][r])
	if centered {
		mean = float64(t.saved[0][r])
	}
	h := func(k int) float64 { return (float64(t.x[0][r*c+k]) - mean) * inverse }
	g := func(k int) float64 { return float64(t.dy[r*c+k]) * w[k] }
	var meanG, meanGH float64
	for k := range c {
		if centered {
			meanG += g(k) / float64(c)
		}
		meanGH += g(k) * h(k) / float64(c)
		dw[k] += float64(t.dy[r*c+k]) * h(k)
		db[k] += float64(t.dy[r*c+k])
	}
	if t.call.Skips(0) {
		return
	}
	dx := make([]float64, c) // may lie on x or dy
	for k := range c {
		dx[k] = (g(k) - meanG - h(k)*meanGH) * inverse
	}
	store(t.dx[0][r*c:(r+1)*c], dx, t.call.Adds(0))
}

// activation is an elementwise function, and its derivative.
func activation(f, slope func(float64) float64, t *tensors) error {
	if t.call.Pass == kernels.Forward {
		for i, v := range t.x[0] {
			t.y[i] = float32(f(float64(v)))
		}
		return nil
	}
	if t.call.Skips(0) {
		return nil
	}
	for i, v := range t.x[0] {
		put(&t.dx[0][i], float64(t.dy[i])*slope(float64(v)), t.call.Adds(0))
	}
	return nil
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func silu(t *tensors) error {
	return activation(
		func(x float64) float64 { return x * sigmoid(x) },
		func(x float64) float64 { return sigmoid(x) * (1 + x*(1-sigmoid(x))) }, t)
}

func gelu(op kernels.GELU, t *tensors) error {
	if op.Tanh {
		// (1 + tanh u)/2 = sigmoid(2u)
		twice := func(x float64) float64 { return 2 * math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x) }
		slope := func(x float64) float64 { return 2 * math.Sqrt(2/math.Pi) * (1 + 3*0.044715*x*x) }
		return activation(
			func(x float64) float64 { return x * sigmoid(twice(x)) },
			func(x float64) float64 {
				s := sigmoid(twice(x))
				return s + x*s*(1-s)*slope(x)
			}, t)
	}
	phi := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	return activation(
		func(x float64) float64 { return x * phi(x) },
		func(x float64) float64 { return phi(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi) }, t)
}

// multiply is x0 * x1. A gradient may lie on dy or on either input: all are read before any is written.
func multiply(t *tensors) error {
	if t.call.Pass == kernels.Forward {
		for i := range t.y {
			t.y[i] = t.x[0][i] * t.x[1][i]
		}
		return nil
	}
	for i, g := range t.dy {
		factors := [2]float32{t.x[1][i], t.x[0][i]}
		for j, f := range factors {
			if !t.call.Skips(j) {
				put(&t.dx[j][i], float64(g)*float64(f), t.call.Adds(j))
			}
		}
	}
	return nil
}

// scaled returns the angle of a pair between two positions.
func scaled(s kernels.RotaryScaling, angle float64) float64 {
	if s.Factor == 0 {
		return angle
	}
	kept := min(max((s.Turns()*angle-s.Low)/(s.High-s.Low), 0), 1)
	return angle * ((1-kept)/s.Factor + kept)
}

// rotary turns forward, and gradients back.
func rotary(op kernels.Rotary, t *tensors) error {
	from, to, add, way := t.x[0], t.y, false, 1.0
	if t.call.Pass != kernels.Forward {
		if t.call.Skips(0) {
			return nil
		}
		from, to, add, way = t.dy, t.dx[0], t.call.Adds(0), -1
	}
	length, c, half := t.in[0].Shape[1], t.in[0].Shape[2], op.Turned/2
	for i := range from {
		position, head, at := i/c%length, i%c/op.Dim, i%c%op.Dim
		switch {
		case head >= op.Heads || at >= op.Turned:
			put(&to[i], float64(from[i]), add)
		case at < half:
			sin, cos := math.Sincos(float64(position) * scaled(op.Scaling, math.Pow(op.Base, -2*float64(at)/float64(op.Turned))))
			x, y := float64(from[i]), float64(from[i+half])
			put(&to[i], x*cos-way*y*sin, add)
			put(&to[i+half], y*cos+way*x*sin, add)
		}
	}
	return nil
}

// heads reads the parts of Attention's input.
type heads struct {
	queries, kv, dim, length, row int
	all                           bool // each position sees all
	scale                         float64
	terms                         scoreTerms
}

func newHeads(op kernels.Attention, t *tensors) heads {
	x := t.in[0]
	return heads{op.Heads, op.KVHeads, op.Dim(x), x.Shape[1], x.Shape[2], op.Bidirectional, op.ScoreScale(x), newScoreTerms(op, t)}
}

// seen returns how many positions, from the first on, one sees.
func (h heads) seen(at int) int {
	if h.all {
		return h.length
	}
	return at + 1
}

// at returns where the query of head h at position t of sample n begins, and the key and the value that it meets at s.
func (h heads) at(n, head, t, s int) (query, key, value int) {
	shared := head / (h.queries / h.kv)
	row := (n*h.length + s) * h.row
	return (n*h.length+t)*h.row + head*h.dim, row + (h.queries+shared)*h.dim, row + (h.queries+h.kv+shared)*h.dim
}

// attention is softmax(QK^T/sqrt(d) + terms)V over the positions up to each, or over all.
func attention(op kernels.Attention, t *tensors) error {
	h := newHeads(op, t)
	sums := make([]float64, t.in[0].Elements())
	for row := range t.in[0].Shape[0] * op.Heads * h.length {
		n, head, at := row/h.length/op.Heads, row/h.length%op.Heads, row%h.length
		if t.call.Pass == kernels.Forward {
			attentionForward(t, h, n, head, at, row)
		} else {
			attentionBackward(t, h, n, head, at, row, sums)
		}
	}
	if t.call.Pass != kernels.Forward && !t.call.Skips(0) {
		store(t.dx[0], sums, t.call.Adds(0))
	}
	if t.call.Pass != kernels.Forward && op.Table > 0 {
		store(t.dparams[0], h.terms.dbias, t.call.AddParams)
	}
	return nil
}

// score is the scaled product of a query and a key, with what is added to it.
func (h heads) score(x []float32, n, head, t, at int) (sum float64) {
	q, k, _ := h.at(n, head, t, at)
	for i := range h.dim {
		sum += float64(x[q+i]) * float64(x[k+i])
	}
	return sum*h.scale + h.terms.of(n, head, t, at)
}

func attentionForward(t *tensors, h heads, n, head, at, row int) {
	scores, largest, sum := make([]float64, h.seen(at)), math.Inf(-1), 0.0
	for s := range scores {
		scores[s] = h.score(t.x[0], n, head, at, s)
		largest = max(largest, scores[s])
	}
	for _, v := range scores {
		sum += math.Exp(v - largest)
	}
	y := make([]float64, h.dim)
	for s, score := range scores {
		_, _, v := h.at(n, head, at, s)
		for i := range y {
			y[i] += math.Exp(score-largest) / sum * float64(t.x[0][v+i])
		}
	}
	store(t.y[((n*h.length+at)*h.queries+head)*h.dim:][:h.dim], y, false)
	if t.saved[0] != nil {
		t.saved[0][row] = float32(largest + math.Log(sum))
	}
}

// attentionBackward adds the contribution of one row of scores, with p = exp(s - log sum):
//
//	dv = p dy, ds = p (dy v - dy y), dq = ds k/sqrt(d), dk = ds q/sqrt(d)
//
// A term of the score has the gradient ds.
func attentionBackward(t *tensors, h heads, n, head, at, row int, sums []float64) {
	y, x := ((n*h.length+at)*h.queries+head)*h.dim, t.x[0]
	product := func(a []float32, i int) (sum float64) {
		for j := range h.dim {
			sum += float64(t.dy[y+j]) * float64(a[i+j])
		}
		return sum
	}
	mean := product(t.y, y)
	for s := range h.seen(at) {
		q, k, v := h.at(n, head, at, s)
		p := math.Exp(h.score(x, n, head, at, s) - float64(t.saved[0][row]))
		ds := p * (product(x, v) - mean)
		h.terms.add(head, at, s, ds)
		ds *= h.scale
		for i := range h.dim {
			sums[v+i] += p * float64(t.dy[y+i])
			sums[q+i] += ds * float64(x[k+i])
			sums[k+i] += ds * float64(x[q+i])
		}
	}
}
