package flush

import "plimsoll/planner/pipeline"

// oneForwardOneBackward: P-d forwards on rank d, then a backward and a forward in turn. Also DAPPLE (Fan et al. 2021).
//
// Makespan (m+P-1)(F+B), bubble (P-1)/(m+P-1), min(m, P-d) activations on rank d.
func oneForwardOneBackward() recipe {
	return recipe{
		name: "1f1b-flush", summary: "one forward, one backward: as fast as gpipe, at most P microbatches on a device",
		paper: "Memory-Efficient Pipeline-Parallel DNN Training (Narayanan et al. 2021)", section: "PipeDream-Flush, section 3.2",
		chunks: 1, shape: loop,
		order: func(n counts) order {
			return each(n.devices, func(d int) []op {
				return alternate(micros(pipeline.F, d, n.micros), micros(pipeline.B, d, n.micros), n.devices-d)
			})
		},
	}
}
