package partition

// balance: torchgpipe's partitioner.
//
// It asks for blocks of consecutive layers whose loads (forward and backward) differ by at most the largest load of a layer. The algorithm
// is from I. Bárány, V. S. Grinberg, "Block partitions of sequences", Israel J. Math. 206 (2015). While the largest block B_p exceeds the
// smallest one by more than that, take the smallest block B_q nearest to B_p. The neighbour of B_q on the side of B_p then gives B_q the
// layer between them.
// Neither memory nor links are looked at; the schedule is 1F1B* with the smallest period that fits.

import (
	"context"

	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/periodic"
)

func solveBalance(ctx context.Context, r pipeline.Request) (*pipeline.Plan, error) {
	if _, err := newCosts(ctx, r); err != nil {
		return nil, err
	}
	loads := make([]float64, r.Chain.Len())
	for l := range loads {
		loads[l] = r.Chain.Layers[l].ForwardS + r.Chain.Layers[l].BackwardS
	}
	r.Stages = nil
	from := 0
	for _, to := range blocks(loads, min(len(loads), r.Platform.Devices)) {
		if to > from {
			r.Stages = append(r.Stages, pipeline.Stage{First: from + 1, Last: to, Devices: []int{len(r.Stages)}})
			from = to
		}
	}
	return periodic.Star(ctx, "balance", r)
}

// newCosts validates a request.
func newCosts(ctx context.Context, r pipeline.Request) (*pipeline.Costs, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return pipeline.NewCosts(r.Chain), nil
}

// blocks returns where each of k blocks ends (the first number after it), so that their sums differ by at most the
// largest number. A block may be empty.
func blocks(numbers []float64, k int) []int {
	n := len(numbers)
	largest := 0.0
	for _, x := range numbers {
		largest = max(largest, x)
	}
	sums, ends := make([]float64, k), make([]int, k)
	for b, at := 0, 0; b < k; b++ {
		for ends[b] = n * (b + 1) / k; at < ends[b]; at++ {
			sums[b] += numbers[at]
		}
	}
	for {
		p, q := extremes(sums)
		if sums[p] <= sums[q]+largest*(1+1e-12) {
			return ends
		}
		if p < q { // the block before q gives its last
			ends[q-1]--
			sums[q-1] -= numbers[ends[q-1]]
			sums[q] += numbers[ends[q-1]]
		} else { // the block behind q gives its first
			sums[q+1] -= numbers[ends[q]]
			sums[q] += numbers[ends[q]]
			ends[q]++
		}
	}
}

// extremes returns the first largest sum, and the smallest sum nearest to it. Sums that differ by rounding are the same.
func extremes(sums []float64) (p, q int) {
	for b, s := range sums {
		if s > sums[p] {
			p = b
		}
	}
	near := sums[p] * 1e-12
	for b, s := range sums {
		if s < sums[q]-near || s <= sums[q]+near && abs(b-p) < abs(q-p) {
			q = b
		}
	}
	return p, q
}

func abs(x int) int { return max(x, -x) }
