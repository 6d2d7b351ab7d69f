package ref

import "plimsoll/kernels"

// scoreTerms are the terms that Attention adds to scores; tables and masks that it does not have are nil.
type scoreTerms struct {
	op                kernels.Attention
	length            int
	bias, index, mask []float32
	dbias             []float64
}

func newScoreTerms(op kernels.Attention, t *tensors) scoreTerms {
	s, params := scoreTerms{op: op, length: t.in[0].Shape[1]}, t.params
	if op.Table > 0 {
		s.bias, s.index, params = params[0], params[1], params[2:]
		s.dbias = make([]float64, len(s.bias))
	}
	if op.Masks > 0 {
		s.mask = params[0]
	}
	return s
}

// entry returns where the table has the term of a head at positions t and s.
func (s scoreTerms) entry(head, t, at int) int {
	row := 0
	if i := s.index[t*s.length+at]; i > 0 {
		row = int(min(i, float32(s.op.Table-1)))
	}
	return row*s.op.Heads + head
}

// of returns the term of a score of sample n.
func (s scoreTerms) of(n, head, t, at int) (sum float64) {
	if s.bias != nil {
		sum += float64(s.bias[s.entry(head, t, at)])
	}
	if s.mask != nil {
		m := n % s.op.Masks
		if s.op.MaskHeads {
			m = m*s.op.Heads + head
		}
		sum += float64(s.mask[(m*s.length+t)*s.length+at])
	}
	return sum
}

// add gives the table's gradient that of a score.
func (s scoreTerms) add(head, t, at int, ds float64) {
	if s.bias != nil {
		s.dbias[s.entry(head, t, at)] += ds
	}
}
