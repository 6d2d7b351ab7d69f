package recompute

// least is the fewest bytes, beside their inputs, in which ranges of layers can run for one minibatch in flight: the ways'
// recursion without times, where only the peak counts. O(n³).
type least struct {
	w      *ways
	inside [][]int64 // inside B, by first and last layer
	stage  [][]int64 // of a stage, F and B apart
}

func newLeast(w *ways) *least {
	m := &least{w: w}
	for range w.n + 2 {
		m.inside, m.stage = append(m.inside, make([]int64, w.n+2)), append(m.stage, make([]int64, w.n+2))
	}
	for d := 0; d < w.n && !w.over(); d++ {
		for s := 1; s+d <= w.n; s++ {
			m.fill(s, s+d)
		}
	}
	return m
}

// fill fills in a range whose shorter ranges are known.
func (m *least) fill(s, t int) {
	layer, grad := m.w.c.Layer(s), m.w.c.Gradient(t)
	back := m.w.c.Gradient(s) + m.w.c.Gradient(s-1) + layer.BackwardOverheadBytes
	inside := layer.SavedBytes + max(grad+layer.ForwardOverheadBytes, back)
	stage := layer.SavedBytes + max(layer.ForwardOverheadBytes, back)
	if s < t {
		inside, stage = max(inside, layer.SavedBytes+m.inside[s+1][t]), max(stage, layer.SavedBytes+m.stage[s+1][t])
	}
	need := int64(0)
	for x := s; x < t; x++ {
		need = max(need, m.w.forwardNeed(s, x))
		inside = min(inside, max(grad+need, m.w.c.Activation(x)+m.inside[x+1][t], m.inside[s][x]))
		stage = min(stage, max(need, m.w.c.Activation(x)+m.stage[x+1][t], m.inside[s][x]))
	}
	m.inside[s][t] = inside
	m.stage[s][t] = min(stage, max(need, m.w.forwardNeed(s, t), inside))
}
