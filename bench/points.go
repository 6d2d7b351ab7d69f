package bench

import (
	"plimsoll/bench/sweep"
	"plimsoll/planner/schedule"
)

// Points returns a measured grid as points of a sweep. PredictedS is by costs measured in turns with the steps.
func (g *Grid) Points(r *Report, digest string, link schedule.Link) ([]sweep.Point, error) {
	base := sweep.Point{
		Key:    sweep.Key{Source: sweep.Measured, Chain: r.Model, Input: digest, Bandwidth: link.Bandwidth, Duplex: link.Duplex},
		Device: r.Device, Batch: r.Batch, StoreAllBytes: r.StoreAllBytes, SavedBytes: g.Chain.InputBytes, LowBytes: lowest(r),
	}
	for l := 1; l <= g.Chain.Len(); l++ {
		base.SavedBytes += g.Chain.Saved(l)
	}
	var points []sweep.Point
	for i := range r.Rows {
		row := &r.Rows[i]
		p := base.At(row.Strategy, row.LimitBytes)
		p.Seconds, p.PredictedS, p.StoreAllS, p.PeakBytes = row.MeasuredS, row.PredictedS, row.StoreAllS, row.MeasuredPeakBytes
		p.Exact = row.Identical && row.PredictedPeakBytes == row.MeasuredPeakBytes
		var err error
		if p.MovedBytes, err = sweep.Moved(g.Chain, row.Plan.Sequence()); err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	for _, s := range r.Skipped {
		p := base.At(s.Strategy, s.LimitBytes)
		p.Refused = s.Reason
		points = append(points, p)
	}
	return points, nil
}

// lowest is the least memory of the grid in which a plan ran.
func lowest(r *Report) int64 {
	low := r.StoreAllBytes
	for i := range r.Rows {
		low = min(low, r.Rows[i].PredictedPeakBytes)
	}
	return low
}
