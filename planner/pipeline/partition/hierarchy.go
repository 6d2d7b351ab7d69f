package partition

import "math"

// hierarchy is the problem of PipeDream's optimizer as its authors' program solves it (optimizer_graph_hierarchical.py;
// the paper's section 3.1 differs in details). States are the layers of a chain, or the antichains of an operator graph in
// topological order; everything before a state is computed with it or before it. Times are seconds, sizes bytes.
type hierarchy struct {
	// Sums over a state and all that precede it.
	compute, activations, parameters []float64
	output                           []float64                  // what passes to the states behind it
	precedes                         func(k, j int) bool        // k < j: state k is before state j; nil: always
	levels                           []machines                 // the innermost first
	straight                         bool                       // no replicas
	transfers                        bool                       // count the transfers of activations
	memory                           float64                    // bytes; +Inf for no limit
	ended                            func() bool                // the answer is not wanted any more; nil: it is
	whole                            map[int]map[[2]int]float64 // by level: time of a range of states on all machines of the levels below
}

// machines is a level: so many components of the level below, at one bandwidth.
type machines struct {
	count     int
	bandwidth float64 // bytes/s
}

// part is a stage of a pipeline on one level: states first..last on so many components.
type part struct{ first, last, replicas int }

// solve returns the time of the slowest stage on all machines of all levels, +Inf when there is no way.
func (h *hierarchy) solve() float64 {
	n := len(h.compute)
	h.whole = map[int]map[[2]int]float64{}
	for level := 1; level < len(h.levels); level++ {
		h.whole[level] = map[[2]int]float64{}
		for first := range n {
			row := h.row(level, first)
			for last := first; last < n; last++ {
				h.whole[level][[2]int{first, last}] = row.time(last, h.levels[level-1].count)
			}
		}
	}
	return h.row(len(h.levels), 0).time(n-1, h.levels[len(h.levels)-1].count)
}

// sum returns the difference of sums: of the states of a range.
func sum(sums []float64, first, last int) float64 {
	if first == 0 {
		return sums[last]
	}
	return sums[last] - sums[first-1]
}

// inner returns the time of a range inside one component of a level.
func (h *hierarchy) inner(level, first, last int) float64 {
	if level == 1 {
		return sum(h.compute, first, last)
	}
	return h.whole[level-1][[2]int{first, last}]
}

// row is the pipelines of a level that begin with a state: the best time and its last stage, by last state and machines.
type row struct {
	machines int
	first    int
	best     []float64
	split    []int // the last state before the last stage; -1: one stage
	replicas []int // of the last stage
}

func (r *row) at(last, count int) int          { return (last-r.first)*r.machines + count - 1 }
func (r *row) time(last, count int) float64    { return r.best[r.at(last, count)] }
func (h *hierarchy) before(k, j int) bool      { return h.precedes == nil || h.precedes(k, j) }
func (h *hierarchy) fitsIn(bytes float64) bool { return bytes <= h.memory }
func ceilDivide(x, y int) float64              { return float64((x + y - 1) / y) }

// row computes the pipelines of a level that begin with a state. Time: O(n² M²).
func (h *hierarchy) row(level, first int) *row {
	n, count := len(h.compute), h.levels[level-1].count
	r := &row{machines: count, first: first}
	size := (n - first) * count
	r.best, r.split, r.replicas = make([]float64, size), make([]int, size), make([]int, size)
	for last := first; last < n && (h.ended == nil || !h.ended()); last++ {
		for m := 1; m <= count; m++ {
			at := r.at(last, m)
			r.best[at], r.split[at], r.replicas[at] = h.single(level, first, last, m), -1, m
		}
		for k := first; k < last; k++ {
			if !h.before(k, last) {
				continue
			}
			for m := 2; m <= count; m++ {
				h.extend(r, level, k, last, m)
			}
		}
	}
	return r
}

// single returns the time of a pipeline of one stage, replicated on m components. Its weight synchronization is divided by
// the machines of the level below, which the program does only here.
func (h *hierarchy) single(level, first, last, m int) float64 {
	l, weights := h.levels[level-1], sum(h.parameters, first, last)
	held := ceilDivide(l.count-m, m) * (sum(h.activations, first, last) + weights)
	if m > 1 && h.straight || !h.fitsIn(held) {
		return math.Inf(1)
	}
	below := 1.0
	if level > 1 {
		below = float64(h.levels[level-2].count)
	}
	sync := 4 * float64(m-1) * weights / (l.bandwidth * float64(m)) / below
	return (h.inner(level, first, last) + sync) / float64(m)
}

// extend tries, on m components, all last stages that begin behind state k.
func (h *hierarchy) extend(r *row, level, k, last, m int) {
	l := h.levels[level-1]
	most := m - 1
	if h.straight {
		most = 1
	}
	compute, weights, held := h.inner(level, k+1, last), sum(h.parameters, k+1, last), sum(h.activations, k+1, last)
	at := r.at(last, m)
	for replicas := 1; replicas <= most; replicas++ {
		if !h.fitsIn(ceilDivide(l.count-m, replicas) * (held + weights)) {
			continue
		}
		share := float64(replicas)
		time := (compute + 4*(share-1)*weights/(l.bandwidth*share)) / share
		if h.transfers {
			time = max(time, 2*h.output[k]/(l.bandwidth*share))
			if last < len(h.output)-1 {
				time = max(time, 2*h.output[last]/(l.bandwidth*share))
			}
		}
		if time = max(time, r.time(k, m-replicas)); time < r.best[at] {
			r.best[at], r.split[at], r.replicas[at] = time, k, replicas
		}
	}
}

// parts returns the stages of a range on all components of a level.
func (h *hierarchy) parts(level, first, last int) []part {
	r := h.row(level, first)
	var all []part
	for m := r.machines; ; {
		at := r.at(last, m)
		k, replicas := r.split[at], r.replicas[at]
		all = append([]part{{k + 1, last, replicas}}, all...)
		if k < 0 {
			all[0].first = first
			return all
		}
		last, m = k, m-replicas
	}
}
