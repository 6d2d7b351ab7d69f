package flush

import "plimsoll/planner/pipeline"

// gpipe: all forwards, then all backwards, the last microbatch first.
//
// Makespan (m+P-1)(F+B), bubble (P-1)/(m+P-1), m activations on every device.
func gpipe() recipe {
	return recipe{
		name: "gpipe", summary: "all forwards, then all backwards; every device holds all microbatches",
		paper: "GPipe (Huang et al. 2019)", section: "section 2.3",
		chunks: 1, shape: loop,
		order: func(n counts) order {
			return each(n.devices, func(d int) []op {
				return append(micros(pipeline.F, d, n.micros), reversed(micros(pipeline.B, d, n.micros))...)
			})
		},
	}
}
