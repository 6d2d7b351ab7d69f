package importer

import (
	"fmt"
	"slices"
)

func last(shape []int) int { return shape[len(shape)-1] }

// positive returns an axis that may be counted from the end.
func positive(axis, axes int) int {
	if axis < 0 {
		return axis + axes
	}
	return axis
}

func extents(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// backwards is n axes in reverse.
func backwards(n int) []int {
	perm := make([]int, n)
	for i := range perm {
		perm[i] = n - 1 - i
	}
	return perm
}

// broadcast returns the shape of what is computed from two, element by element.
func broadcast(a, b []int) ([]int, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	all, skip := slices.Clone(a), len(a)-len(b)
	for i, n := range b {
		switch have := a[skip+i]; {
		case have == 1:
			all[skip+i] = n
		case n != 1 && n != have:
			return nil, fmt.Errorf("constants of %v and %v", a, b)
		}
	}
	return all, nil
}

// reshaped returns the shape that a Reshape makes of another: 0 is the extent that there is, -1 what is left.
func reshaped(shape, to []int) ([]int, error) {
	want, rest, open := slices.Clone(to), extents(shape), -1
	for i, d := range want {
		switch {
		case d == 0 && i < len(shape):
			want[i] = shape[i]
		case d == -1 && open < 0:
			open = i
			continue
		case d < 1:
			return nil, fmt.Errorf("a shape of %v is not supported", to)
		}
		if rest%want[i] != 0 {
			return nil, fmt.Errorf("%v has no shape of %v", shape, to)
		}
		rest /= want[i]
	}
	switch {
	case open >= 0:
		want[open] = rest
	case rest != 1:
		return nil, fmt.Errorf("%v has no shape of %v", shape, to)
	}
	return want, nil
}
