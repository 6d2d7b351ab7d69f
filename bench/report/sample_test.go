package report

import "fmt"

// sampleCurve returns the memory curve of a step of n layers. Memory rises through the forwards and falls through the backwards. Each op
// adds a spike for its overhead, and every segment of k layers is recomputed.
func sampleCurve(n, k int, layer, seconds float64) (curve []Point) {
	t, held := 0.0, layer
	add := func(dt, during, after float64) {
		curve = append(curve, Point{t, held + during})
		t += dt
		held = max(layer, held+after)
		curve = append(curve, Point{t, held})
	}
	u := seconds / (3*float64(n) + float64(n-n/k))
	for i := range n {
		keep := layer
		if k > 1 && i%k != 0 {
			keep = 0.1 * layer
		}
		add(u, 0.6*layer, keep)
	}
	for i := n - 1; i >= 0; i-- {
		if k > 1 && i%k == k-1 {
			add(u*float64(k-1), 0.5*layer, 0.9*layer*float64(k-1))
		}
		add(2*u, 0.9*layer, -layer)
	}
	return curve
}

func samplePage() *Page {
	yes := true
	p := &Page{
		Title:   "ResNet-56 on digits: five strategies under five limits",
		Summary: "Each row is one plan, predicted before it ran and measured while it ran on the same arena. Limits are shares of the peak of store-all.",
		Batch:   32,
		Environment: []Fact{
			{"model", "resnet56, 32 x 32 images, batch 32, float32"}, {"processor", "2 cores, AVX2"}, {"data", "digits, seed 1"},
		},
		Notes: []string{"Times are medians of 5 steps after 2 of warm-up.", "Peaks count everything in the arena: weights, gradients, optimizer state & activations."},
	}
	const total = 150 << 20
	for _, share := range []float64{1, 0.75, 0.5, 0.35, 0.25} {
		for i, name := range []string{"store-all", "periodic", "revolve", "rotor", "rotor-exact"} {
			p.Rows = append(p.Rows, sampleRow(name, share, i, total, &yes))
		}
	}
	return p
}

func sampleRow(name string, share float64, i int, total float64, identical *bool) Row {
	r := Row{Strategy: name, Limit: int64(total * share), Share: share}
	if name == "store-all" && share < 1 || name == "periodic" && share < 0.3 {
		r.Refused = fmt.Sprintf("the smallest limit that works is %d bytes, for B17 <bn>", int64(total))
		return r
	}
	k := []int{1, 3, 4, 5, 7}[i]
	r.PredictedSeconds = 0.31 * (1 + 0.35*(1-share)*float64(6-i)/4)
	r.MeasuredSeconds = r.PredictedSeconds * (1.03 - 0.01*float64(i))
	r.Predicted = sampleCurve(28, k, share*total/31, r.PredictedSeconds)
	r.Measured = sampleCurve(28, k, share*total/31, r.MeasuredSeconds)
	for _, p := range r.Predicted {
		r.PredictedPeak = max(r.PredictedPeak, int64(p.Y))
	}
	r.MeasuredPeak = r.PredictedPeak
	r.Identical = identical
	r.Plan = "Fck1 F2 F3 Fall4 B4"
	return r
}
