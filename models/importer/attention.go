package importer

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/kernels"
)

// headProduct is MatMul of two tensors: queries and keys make scores, their softmax and values make attention.
func headProduct(c *call) (*value, error) {
	x, scale, err := c.scaled(0)
	if err != nil {
		return nil, err
	}
	y, keyScale, err := c.scaled(1)
	if err != nil {
		return nil, err
	}
	if y.view == nil && !y.isImage() {
		return nil, fmt.Errorf("of two tensors only queries and keys, and their softmax and values, as in attention over N,heads,T,D, are supported")
	}
	if s := x.scores; s != nil {
		values, is := headsOfView(c, y.seen())
		lead := x.shape[:len(x.shape)-2]
		if !is || keyScale != 1 || !slices.Equal(lead, values.leads) && values.number*values.shared > 1 || len(lead) != len(values.leads) {
			return nil, fmt.Errorf("input 1 is no values, N,heads,T,D, of a sequence N,T,C")
		}
		weights := *s
		weights.queries.leads = lead
		return c.attention(&weights, values)
	}
	if x.view == nil && !x.isImage() {
		return nil, fmt.Errorf("input 0 is no queries, N,heads,T,D, of a sequence N,T,C")
	}
	n := len(y.shape)
	if n < 2 {
		return nil, fmt.Errorf("input 1 is %v, which has no keys", y.shape)
	}
	queries, keys := sameChannels(x.seen(), y.seen().swapped(n-1, n-2))
	q, isQ := headsOfView(c, queries)
	k, isK := headsOfView(c, keys)
	if isQ && isK {
		if err := regroup(c, &q, &k); err != nil {
			return nil, err
		}
	}
	if !isQ || !isK || q.number != k.number*k.shared && k.number*k.shared != 1 || q.channels != k.channels || q.length != k.length {
		return nil, fmt.Errorf("inputs are %v and %v: no queries, N,heads,T,D, and keys, N,heads,D,T, of sequences N,T,C", x.shape, y.shape)
	}
	t := q.length
	shape := append(slices.Clone(x.shape[:q.lead]), t, t)
	return &value{scores: &scores{queries: q, keys: k, scale: scale * keyScale}, shape: shape, from: c.Node}, nil
}

// scaled returns input i, and the number that it is multiplied by, as queries are.
func (c *call) scaled(i int) (*value, float64, error) {
	v, scale := c.at(i), 1.0
	if v != nil && v.curve != nil {
		if k, is := v.curve.linear(); is {
			v, scale = v.curve.of, k
		}
	}
	if v == nil || v.view == nil && v.scores == nil {
		var err error
		v, err = c.tensor(i)
		return v, 1, err
	}
	return v, scale, nil
}

// attention adds the op for scores that are softmax, and values.
func (c *call) attention(s *scores, v heads) (*value, error) {
	q, k := s.queries, s.keys
	if err := regroup(c, &q, &k, &v); err != nil {
		return nil, err
	}
	if s.terms != (terms{}) && q.number != s.queries.number {
		return nil, fmt.Errorf("a mask or bias was added to scores of %d heads, and values make them %d, which is not supported", s.queries.number, q.number)
	}
	width := q.number * q.channels
	switch {
	case !s.soft:
		return nil, fmt.Errorf("input 0 is scores without a softmax, which is not supported")
	case s.scale == 0:
		return nil, fmt.Errorf("the scores are scaled by 0, which is not supported")
	case v.number != k.number || v.channels != q.channels || q.number%k.number != 0:
		return nil, fmt.Errorf("values have %d heads of %d channels, keys %d, queries %d of %d", v.number, v.channels, k.number, q.number, q.channels)
	}
	if m := s.terms.masks; m != nil && s.causal {
		if err := m.checkCausal(q.length); err != nil {
			return nil, err
		}
	}
	x, err := c.sideBySide([]heads{q, k, v})
	if err != nil {
		return nil, err
	}
	op := kernels.Attention{Heads: q.number, Bidirectional: !s.causal}
	if k.number != q.number {
		op.KVHeads = k.number
	}
	if !near(s.scale*math.Sqrt(float64(q.channels)), 1) {
		op.Scale = float32(s.scale)
	}
	op, sources := withTerms(c, &s.terms, op, q.length)
	y, err := c.push(c.Node, op, asImage, sources, x)
	if err != nil {
		return nil, err
	}
	n, t := y.shape[0], y.shape[1]
	w := view{step: y.step, axes: [][]loop{
		merged([]loop{{n, t * width}}), merged([]loop{{q.number, q.channels}}), merged([]loop{{t, width}}), merged([]loop{{q.channels, 1}}),
	}}
	if w, err = w.reshape(append(slices.Clone(q.leads), t, q.channels)); err != nil {
		return nil, err
	}
	return c.seen(w), nil
}

// sideBySide returns queries, keys and values as the op reads them: of one tensor that has them in this order, or of others, joined.
func (c *call) sideBySide(all []heads) (*value, error) {
	from, total, one := 0, 0, true
	for _, h := range all {
		total += h.number * h.channels
	}
	var in []*value
	for _, h := range all {
		width := h.number * h.channels
		one = one && h.step == all[0].step && h.from == from && h.all == total
		from += width
	}
	if one {
		return c.sequenceOf(all[0])
	}
	for _, h := range all {
		own := h.number * h.channels
		x, err := c.sequenceOf(h)
		if h.from != 0 || h.all != own { // a part
			v := viewOfValue(x)
			v.from, v.axes[2] = h.from, merged([]loop{{own, 1}})
			x, err = c.arranged(c.Node, v)
		}
		if err != nil {
			return nil, err
		}
		in = append(in, x)
	}
	return c.push(c.Node, kernels.Concat{}, asImage, nil, in...)
}

// attentionOf is scaled_dot_product_attention: of queries, keys, values, N,heads,T,D, and a mask.
func attentionOf(c *call) (*value, error) {
	var all [3]heads
	number := 1.0 // that queries and keys are multiplied by
	var views [3]view
	for i := range all {
		v := c.at(i)
		if v != nil && v.curve != nil && i < 2 {
			if k, is := v.curve.linear(); is {
				v, number = v.curve.of, number*k
			}
		}
		if v == nil || v.view == nil && !v.isImage() {
			return nil, noHeads(i)
		}
		views[i] = v.seen()
	}
	views[0], views[1] = sameChannels(views[0], views[1])
	for i := range all {
		var is bool
		if all[i], is = headsOfView(c, views[i]); !is {
			return nil, noHeads(i)
		}
	}
	q, k, v := all[0], all[1], all[2]
	if err := regroup(c, &q, &k, &v); err != nil {
		return nil, err
	}
	if k.number*k.shared != q.number && k.number*k.shared != 1 && c.int("grouped", 0) == 0 {
		return nil, fmt.Errorf("queries have %d heads and keys %d: want enable_gqa=True", q.number, k.number)
	}
	if t := q.length; k.length != t || v.length != t || k.channels != q.channels {
		return nil, fmt.Errorf("queries, keys and values are of %v, %v and %v, and only those of one sequence are supported", q.step.desc, k.step.desc, v.step.desc)
	}
	scale := 1 / math.Sqrt(float64(q.channels))
	if c.attribute("scale") != nil {
		scale = float64(c.float("scale", 0))
	}
	scale *= number
	s := &scores{queries: q, keys: k, scale: scale, causal: c.int("causal", 0) != 0}
	if mask := c.at(3); mask != nil {
		t := q.length
		x, err := withMask(c, &value{scores: s, shape: append(slices.Clone(q.leads), t, t), from: c.Node}, mask)
		if err != nil {
			return nil, err
		}
		s = x.scores
	}
	s.soft = true
	return c.attention(s, v)
}

func noHeads(i int) error {
	return fmt.Errorf("input %d is no heads, N,heads,T,D, of a sequence N,T,C, which alone is supported", i)
}

// withMask returns scores with a mask: a causal one, another constant, or rows of a parameter.
func withMask(c *call, x, mask *value) (*value, error) {
	if m := mask.asMask(); m != nil {
		return c.masked(x, m)
	}
	v, err := addTerms(c, x, mask)
	if v == nil && err == nil {
		err = fmt.Errorf("the mask is neither a constant nor rows of a parameter, by constants, which alone are supported")
	}
	return v, err
}

// softmax is of scores.
func softmax(c *call) (*value, error) {
	x := c.at(0)
	axis := c.int("axis", -1)
	if x == nil || x.scores == nil || x.scores.soft || positive(axis, len(x.shape)) != len(x.shape)-1 {
		return nil, fmt.Errorf("only of attention's scores, along their last axis, is supported")
	}
	s := *x.scores
	s.soft = true
	return &value{scores: &s, shape: x.shape, from: c.Node}, nil
}

// masked returns scores behind a mask: what it lets see, and what it does not, are added to scores, or those are replaced.
func (c *call) masked(x *value, m *mask) (*value, error) {
	s := *x.scores
	if k := len(m.dims); s.soft || m.n != last(x.shape) || m.dims[k-1] != m.n || m.dims[k-2] != m.n {
		return nil, fmt.Errorf("a mask of %v is not one of scores of %v", m.dims, x.shape)
	}
	switch {
	case m.low == 0 && m.high == 0:
	case m.low == 0 && m.high <= leastHidden:
		s.causal = true
	default:
		return nil, fmt.Errorf("a mask that adds %v to what comes before a position, and %v to what comes after, is not causal, which alone is supported", m.low, m.high)
	}
	return &value{scores: &s, shape: x.shape, from: c.Node}, nil
}

// where chooses between constants, or hides scores.
func where(c *call) (*value, error) {
	if _, are := c.constantInputs(3); are {
		return c.computed(func(v []float64) float64 {
			if v[0] != 0 {
				return v[1]
			}
			return v[2]
		})
	}
	hide, x, y := c.at(0), c.at(1), c.at(2)
	if v, err := hiddenPicks(c, hide, x, y); v != nil || err != nil {
		return v, err
	}
	if v, err := hiddenScores(c, hide, x, y); v != nil || err != nil {
		return v, err
	}
	if hide == nil || hide.asMask() == nil || x == nil || y == nil {
		return nil, fmt.Errorf("only a choice between constants, and one that hides attention's scores by a constant mask, is supported: multiply by 0 and 1 instead")
	}
	m := *hide.asMask()
	if x.scores != nil { // it says what is seen
		x, y = y, x
		m.low, m.high = 1-m.low, 1-m.high
	}
	if y.scores == nil || len(x.numbers) != 1 || x.mask != nil {
		return nil, fmt.Errorf("only a choice between constants, and one that hides attention's scores by a constant mask, is supported: multiply by 0 and 1 instead")
	}
	fill := x.numbers[0]
	if (m.low != 0 || m.high != 0) && !(fill <= leastHidden) {
		return nil, fmt.Errorf("scores are replaced by %v, and only by a number up to %v, which hides them, is supported", fill, leastHidden)
	}
	for _, v := range []*float64{&m.low, &m.high} {
		if *v != 0 {
			*v = fill
		}
	}
	return c.masked(y, &m)
}
