package flush

import (
	"fmt"
	"math"
	"slices"
)

// TeraPipe divides a sequence of tokens into slices that follow each other through a pipeline of so many devices, so that
// the latency is the least possible. cost returns the seconds that a device needs for a slice of so many tokens behind
// so many earlier ones: attention makes later tokens dearer. It must be finite and not negative.
//
// Slices are microbatches that cost different times, so this is no pipeline.Plan: there microbatches are alike, and the
// chain knows no tokens. The schedule of the slices is gpipe's: forwards in order, backwards from the last one on.
//
//	latency = sum of t_i + (devices-1) · largest t_i
//
// For every bound on the largest t_i the fewest seconds in sum are a shortest path over the tokens.
// Time: O(tokens²) for each bound that is tried, of which most are not. Source: TeraPipe (Li et al. 2021), section 3.3.
// Errors: ErrOptions.
func TeraPipe(tokens, devices int, cost func(slice, before int) float64) (slices []int, latency float64, err error) {
	if tokens < 1 || tokens > MostTokens || devices < 1 {
		return nil, 0, fmt.Errorf("terapipe: %w: %d tokens on %d devices, want 1 to %d tokens and at least one device", ErrOptions, tokens, devices, MostTokens)
	}
	t, err := newTokens(tokens, cost)
	if err != nil {
		return nil, 0, err
	}
	s := &slicing{tokens: t, behind: float64(devices - 1), latency: math.Inf(1)}
	if s.search(0, len(t.bounds), 0); s.cut == nil {
		return nil, 0, fmt.Errorf("terapipe: %w: the costs of the slices add up to infinity", ErrOptions)
	}
	return s.cut, s.latency, nil
}

// slicing is a search for the best bound on the largest slice.
type slicing struct {
	*tokens
	behind  float64 // devices-1
	cut     []int
	latency float64
}

// search tries the bounds from low up to high; with none of them a division takes less than least in sum. Sums only get
// shorter as bounds grow, so a range whose lowest bound loses even with the sum of its highest is left out.
func (s *slicing) search(low, high int, least float64) {
	if low >= high || least+s.behind*s.bounds[low] >= s.latency {
		return
	}
	mid := (low + high) / 2
	cut, sum := s.shortest(s.bounds[mid])
	if l := sum + s.behind*s.bounds[mid]; l < s.latency {
		s.cut, s.latency = cut, l
	}
	s.search(low, mid, sum)
	s.search(mid+1, high, least)
}

// MostTokens bounds the units into which TeraPipe may cut: choose coarser units for longer sequences.
const MostTokens = 1 << 11

// tokens is the costs of all slices of a sequence.
type tokens struct {
	cost   [][]float64 // by first token and number of tokens, from 1
	bounds []float64   // different costs, ascending
}

func newTokens(n int, cost func(slice, before int) float64) (*tokens, error) {
	t := &tokens{cost: make([][]float64, n)}
	for before := range n {
		t.cost[before] = make([]float64, n-before+1)
		for slice := 1; slice <= n-before; slice++ {
			x := cost(slice, before)
			if !(x >= 0 && x <= math.MaxFloat64) {
				return nil, fmt.Errorf("terapipe: %w: %d tokens behind %d cost %g s, want a time", ErrOptions, slice, before, x)
			}
			t.cost[before][slice] = x
			t.bounds = append(t.bounds, x)
		}
	}
	slices.Sort(t.bounds)
	t.bounds = slices.Compact(t.bounds)
	return t, nil
}

// shortest returns the division whose slices cost at most bound each and the least in sum; +Inf where there is none.
func (t *tokens) shortest(bound float64) (cut []int, sum float64) {
	n := len(t.cost)
	best, last := make([]float64, n+1), make([]int, n+1)
	for end := 1; end <= n; end++ {
		best[end] = math.Inf(1)
		for before := range end {
			x := t.cost[before][end-before]
			if x <= bound && best[before]+x < best[end] {
				best[end], last[end] = best[before]+x, end-before
			}
		}
	}
	if math.IsInf(best[n], 1) {
		return nil, best[n]
	}
	for end := n; end > 0; end -= last[end] {
		cut = append(cut, last[end])
	}
	slices.Reverse(cut)
	return cut, best[n]
}
