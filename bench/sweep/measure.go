package sweep

import (
	"plimsoll/bench"
	"plimsoll/planner/schedule"
)

// FromGrid turns a measured grid into points. PredictedS is by costs measured in turns with the steps.
func FromGrid(g *bench.Grid, r *bench.Report, digest string, link schedule.Link) ([]Point, error) {
	base := Point{
		Key:    Key{Source: Measured, Chain: r.Model, Input: digest, Bandwidth: link.Bandwidth, Duplex: link.Duplex},
		Device: r.Device, Batch: r.Batch, StoreAllBytes: r.StoreAllBytes, SavedBytes: g.Chain.InputBytes, LowBytes: lowest(r),
	}
	for l := 1; l <= g.Chain.Len(); l++ {
		base.SavedBytes += g.Chain.Saved(l)
	}
	var points []Point
	for i := range r.Rows {
		row := &r.Rows[i]
		p := base.at(row.Strategy, row.LimitBytes)
		p.Seconds, p.PredictedS, p.StoreAllS, p.PeakBytes = row.MeasuredS, row.PredictedS, row.StoreAllS, row.MeasuredPeakBytes
		p.Exact = row.Identical && row.PredictedPeakBytes == row.MeasuredPeakBytes
		var err error
		if p.MovedBytes, err = Moved(g.Chain, row.Plan.Ops); err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	for _, s := range r.Skipped {
		p := base.at(s.Strategy, s.LimitBytes)
		p.Refused = s.Reason
		points = append(points, p)
	}
	return points, nil
}

// at is a point of one strategy at one limit.
func (p Point) at(name string, memory int64) Point {
	p.Strategy, p.MemoryBytes = name, memory
	if p.StoreAllBytes > p.LowBytes {
		p.Alpha = float64(memory-p.LowBytes) / float64(p.StoreAllBytes-p.LowBytes)
	}
	return p
}

// lowest is the least memory of the grid in which a plan ran.
func lowest(r *bench.Report) int64 {
	low := r.StoreAllBytes
	for i := range r.Rows {
		low = min(low, r.Rows[i].PredictedPeakBytes)
	}
	return low
}
