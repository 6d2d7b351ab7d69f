package flush

import "plimsoll/planner/pipeline"

// loopedBFS: all microbatches through the first stage of a device, then through the next; backwards the same way back.
//
// Makespan m(F+B) + (P-1)(F+B)/v for m >= P, where F and B are those of a whole device; mv activations, each of one
// stage, on every device. Its merit is elsewhere: each stage's weights are needed once in a row (sharded weights are
// gathered once).
func loopedBFS() recipe {
	return recipe{
		name: "looped-bfs", summary: "gpipe on several stages of each device, all microbatches through one stage after the other",
		paper: "Breadth-First Pipeline Parallelism (Lamy-Poirier 2023)", section: "section 4",
		shape: loop, recomputes: true,
		order: func(n counts) order {
			return each(n.devices, func(d int) []op {
				var out []op
				for chunk := range n.chunks {
					out = append(out, micros(pipeline.F, chunk*n.devices+d, n.micros)...)
				}
				for chunk := n.chunks - 1; chunk >= 0; chunk-- {
					out = append(out, reversed(micros(pipeline.B, chunk*n.devices+d, n.micros))...)
				}
				return out
			})
		},
	}
}
