package importer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// constantsOf computes a graph of nodes "y = Op x x axis=1" of constants, and returns its last value.
func constantsOf(t *testing.T, given map[string]*value, lines ...string) (*value, error) {
	t.Helper()
	m := &importer{Graph: &Graph{}, values: given, reads: map[string]int{}, joins: map[*step]*step{}, used: map[string]*step{}}
	var v *value
	for _, line := range lines {
		n := nodeOf(t, line)
		var err error
		if v, err = m.make(n); err != nil {
			return nil, err
		}
		m.values[n.Out[0]] = v
	}
	return v, nil
}

// nodeOf returns the node of a line, "y = Op x x axis=1" or "y, z = Op x".
func nodeOf(t *testing.T, line string) *Node {
	t.Helper()
	out, call, _ := strings.Cut(line, " = ")
	f := strings.Fields(call)
	n := &Node{Op: f[0], Label: line, Out: strings.Split(out, ", "), Attributes: map[string]*Attribute{}}
	for _, word := range f[1:] {
		name, number, is := strings.Cut(word, "=")
		if !is {
			n.In = append(n.In, word)
			continue
		}
		a := &Attribute{}
		for _, digits := range strings.Split(number, ",") {
			var i int64
			if _, err := fmt.Sscan(digits, &i); err != nil {
				t.Fatal(err)
			}
			a.I, a.F, a.Ints = i, float32(i), append(a.Ints, i)
		}
		n.Attributes[name] = a
	}
	return n
}

func constantOf(dims []int, numbers ...float64) *value {
	return &value{constant: constant{numbers: numbers, dims: dims}}
}

// Constants have the elements and the shapes that PyTorch computes.
func TestConstants(t *testing.T) {
	t.Parallel()
	row, square := constantOf([]int{3}, 1, 2, 3), constantOf([]int{2, 3}, 1, 2, 3, 4, 5, 6)
	list := func(v ...float64) *value { return constantOf([]int{len(v)}, v...) }
	for _, c := range []struct {
		lines   []string
		dims    []int
		numbers []float64
	}{
		{[]string{"y = Unsqueeze row axes=1", "z = Add y row"}, []int{3, 3}, []float64{2, 3, 4, 3, 4, 5, 4, 5, 6}},
		{[]string{"y = Unsqueeze row axes=0", "z = LessOrEqual square y"}, []int{2, 3}, []float64{1, 1, 1, 0, 0, 0}},
		{[]string{"y = Transpose square perm=1,0"}, []int{3, 2}, []float64{1, 4, 2, 5, 3, 6}},
		{[]string{"y = cumsum square axis=1"}, []int{2, 3}, []float64{1, 3, 6, 4, 9, 15}},
		{[]string{"y = cumsum square axis=0"}, []int{2, 3}, []float64{1, 2, 3, 5, 7, 9}},
		{[]string{"y = Concat square square axis=0"}, []int{4, 3}, []float64{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}},
		{[]string{"y = Concat square square axis=1"}, []int{2, 6}, []float64{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}},
		{[]string{"y = Gather square ones axis=1"}, []int{2, 2}, []float64{2, 2, 5, 5}},
		{[]string{"y = Gather square one axis=0"}, []int{3}, []float64{4, 5, 6}},
		{[]string{"y = Slice square one1 three one1"}, []int{2, 2}, []float64{2, 3, 5, 6}},
		{[]string{"y = Expand row shape23"}, []int{2, 3}, []float64{1, 2, 3, 1, 2, 3}},
		{[]string{"y = Expand row shapekept"}, []int{2, 3}, []float64{1, 2, 3, 1, 2, 3}},
		{[]string{"y = Reshape square shape=3,-1"}, []int{3, 2}, []float64{1, 2, 3, 4, 5, 6}},
		{[]string{"a = Unsqueeze ones axes=1", "y = index square a one1"}, []int{2, 1}, []float64{5, 5}},
		{[]string{"y = index square ones"}, []int{2, 3}, []float64{4, 5, 6, 4, 5, 6}},
		{[]string{"y = Cast halves to=9"}, []int{3}, []float64{1, 0, 1}},
		{[]string{"y = Add square ones"}, nil, nil},
		{[]string{"y = index square three"}, nil, nil},
		{[]string{"y = Concat square row axis=0"}, nil, nil},
		{[]string{"y = Reshape square shape=4,2"}, nil, nil},
	} {
		given := map[string]*value{
			"row": row, "halves": list(0.5, 0, -0.25), "square": square, "ones": list(1, 1), "one": constantOf(nil, 1), "one1": list(1), "three": list(3), "shape23": list(2, 3), "shapekept": list(2, -1),
		}
		v, err := constantsOf(t, given, c.lines...)
		if (err != nil) != (c.numbers == nil) || err == nil && (!slices.Equal(v.dims, c.dims) || !slices.Equal(v.numbers, c.numbers)) {
			t.Errorf("%v: %+v, %v, want %v of %v", c.lines, v, err, c.numbers, c.dims)
		}
	}
}

// A mask is what its elements are, whether it is known as one or not.
func TestMasksAreTheirElements(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 7))
	for range 200 {
		m := &mask{2 + r.IntN(5), float64(r.IntN(2)), float64(r.IntN(2)), nil}
		m.dims = []int{1 + r.IntN(3), m.n, m.n}
		d, err := (&constant{mask: m}).dense()
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range d.numbers {
			want := m.low
			if i%m.n > i/m.n%m.n {
				want = m.high
			}
			if x != want {
				t.Fatalf("%+v has %v at %d", m, x, i)
			}
		}
		if back := d.asMask(); back == nil || back.n != m.n || back.low != m.low || back.high != m.high {
			t.Errorf("%+v, want %+v", back, m)
		}
		d.numbers[r.IntN(len(d.numbers))] = math.Pi
		if back := d.asMask(); back != nil && m.n > 2 {
			t.Errorf("%v is a mask", d.numbers)
		}
	}
}
