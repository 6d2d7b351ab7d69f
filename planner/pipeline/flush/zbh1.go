package flush

import "plimsoll/planner/pipeline"

// zbH1: 1F1B whose weight halves fill the bubbles, within the activations of 1F1B's first device.
//
// For F = B = W: makespan m(F+B+W) + (P-1)(F+B-W); at most P activations on a device, each held until its W ends.
func zbH1() recipe {
	return recipe{
		name: "zb-h1", summary: "split backward: weight halves fill a third of 1f1b's bubble in the same memory",
		paper: "Zero Bubble Pipeline Parallelism (Qi et al. 2023)", section: "section 2.1, table 1",
		chunks: 1, split: true, shape: loop,
		most:  func(devices int) int { return devices },
		order: func(n counts) order { return zeroBubble(n, n.devices, func(d int) int { return n.devices - d }) },
	}
}

// zeroBubble returns 1F1B with so many forwards ahead on each rank, and weight halves that wait as long as they may.
func zeroBubble(n counts, most int, warm func(rank int) int) order {
	return each(n.devices, func(d int) []op {
		return lazy(alternate(micros(pipeline.F, d, n.micros), micros(pipeline.B, d, n.micros), warm(d)), most)
	})
}
