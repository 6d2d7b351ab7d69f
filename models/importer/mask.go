package importer

import (
	"fmt"
	"slices"
)

// mask is a square matrix, low on the diagonal and below it, high above; both are the same where it is one number.
type mask struct {
	n         int
	low, high float64
	dims      []int // the last two are n
}

// square returns the mask of a shape; nil: it is none.
func square(dims []int, low, high float64) *mask {
	k := len(dims)
	if k < 2 || k > MostAxes || dims[k-1] != dims[k-2] || dims[k-1] < 1 {
		return nil
	}
	return &mask{dims[k-1], low, high, dims}
}

// mask returns the mask that an initializer is; nil: it is none.
func (t *Tensor) mask() *mask {
	dims := make([]int, len(t.Dims))
	for i, d := range t.Dims {
		dims[i] = int(d)
	}
	m := square(dims, 0, 0)
	if m == nil || m.n < 2 || extents(dims) != m.n*m.n {
		return nil
	}
	m.low, m.high = t.number(0), t.number(1)
	for i := range m.n * m.n {
		want := m.low
		if i%m.n > i/m.n {
			want = m.high
		}
		if t.number(i) != want {
			return nil
		}
	}
	return m
}

// part is a range of a mask's axis: rows from the first on, columns then as many. With fewer rows than columns it is no mask yet, which
// dims tell.
func (m *mask) part(axis int, clip func(n int) (from, to int)) (*mask, error) {
	if axis < 0 || axis >= len(m.dims) {
		return nil, fmt.Errorf("axis %d of a mask of %v", axis, m.dims)
	}
	from, to := clip(m.dims[axis])
	if from != 0 || to < 1 {
		return nil, fmt.Errorf("%d to %d of axis %d of a mask of %v is not supported: want it from 0 on", from, to, axis, m.dims)
	}
	cut := *m
	cut.dims = slices.Clone(m.dims)
	cut.dims[axis] = to
	if axis >= len(m.dims)-2 {
		cut.n = min(cut.n, to)
	}
	return &cut, nil
}

// expands reports whether a mask is repeated along other axes than its own, which leaves it the mask that it is.
func (m *mask) expands(shape []int) bool {
	own, n := len(m.dims), len(shape)
	return n >= own && n <= MostAxes && slices.Equal(shape[n-2:], m.dims[own-2:])
}
