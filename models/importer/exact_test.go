package importer

import (
	"math"
	"testing"

	"plimsoll/kernels"
)

// TestRatios: PyTorch takes the ratio of the extents where an extent stays, and where the nearest elements double it.
func TestRatios(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nearest  bool
		from, to int
		ratio    float32
		want     float32
	}{
		{false, 8, 8, 1 / float32(1.1), 0},
		{true, 3, 6, 1 / float32(2.1), 0},
		{false, 3, 6, 1 / float32(2.1), 1 / float32(2.1)},
		{true, 3, 7, 1 / float32(2.5), 1 / float32(2.5)},
		{true, 3, 9, float32(3) / float32(9), 0},
	} {
		if got := ratioOf(kernels.Resize{Nearest: c.nearest}, c.ratio, c.from, c.to); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestLines: curves of small numbers, and bends on a large offset, are no lines.
func TestLines(t *testing.T) {
	t.Parallel()
	of := func(f func(x float64) float64) *curve {
		c := &curve{}
		for _, x := range samples {
			c.at = append(c.at, f(x))
		}
		return c
	}
	for name, bent := range map[string]func(x float64) float64{
		"relu":  func(x float64) float64 { return 1e-7 * math.Max(x+1, 0) },
		"bell":  func(x float64) float64 { return 1e-6 * math.Exp(-x*x) },
		"tanh":  func(x float64) float64 { return math.Tanh(x) + 1e6 },
		"cubed": func(x float64) float64 { return 1e-9 * x * x * x },
	} {
		if op := of(bent).affine(); op != nil {
			t.Errorf("%s is taken for %+v", name, op)
		}
	}
	for name, line := range map[string]func(x float64) float64{
		"small":  func(x float64) float64 { return 1e-7 * x },
		"offset": func(x float64) float64 { return 1e-3*x + 1000 },
		"float":  func(x float64) float64 { return float64(float32(0.1))*x - float64(float32(0.3)) },
	} {
		if of(line).affine() == nil {
			t.Errorf("%s is no line", name)
		}
	}
}

// TestHiddenRows: a mask that hides all that a position sees is refused, also where it adds large negative numbers.
func TestHiddenRows(t *testing.T) {
	t.Parallel()
	mask := &constant{numbers: []float64{-1e9, -1e9, 0, 0}, dims: []int{2, 2}}
	if _, _, err := matrixOf(mask, []int{0, 0}, 2); err == nil {
		t.Error("a hidden row is taken")
	}
	m := &masks{all: [][]float64{{-1e9, 0, 0, 0}}}
	if m.checkCausal(2) == nil {
		t.Error("a row whose only position behind the causal mask is hidden is taken")
	}
	if err := (&masks{all: [][]float64{{0, -1e9, -1e9, 0}}}).checkCausal(2); err != nil {
		t.Error(err)
	}
}
