package flush

import "plimsoll/planner/pipeline"

// interleaved: 1F1B on v stages of every device, microbatches in groups of P.
//
// Makespan m(F+B) + (P-1)(F+B)/v where F and B are those of a whole device; min(mv, 2(P-d-1)+(v-1)P+1) activations, each
// of one stage, on rank d.
func interleaved() recipe {
	return recipe{
		name: "interleaved", summary: "1f1b on several stages of each device: a bubble v times smaller",
		paper: "Megatron-LM (Narayanan et al. 2021)", section: "section 2.2.2",
		shape: loop, recomputes: true,
		accepts: func(devices, micros int) error {
			return multiple(micros, devices, "the number of devices")
		},
		order: func(n counts) order {
			return each(n.devices, func(d int) []op {
				warm := 2*(n.devices-d-1) + (n.chunks-1)*n.devices + 1
				return alternate(rounds(n, d, pipeline.F), rounds(n, d, pipeline.B), warm)
			})
		},
	}
}

// rounds returns the work of one kind of rank d: P microbatches through each of its stages in turn, then the next P.
func rounds(n counts, d int, kind pipeline.Kind) []op {
	var out []op
	for first := 0; first < n.micros; first += n.devices {
		for chunk := range n.chunks {
			if kind == pipeline.B {
				chunk = n.chunks - 1 - chunk
			}
			for i := range n.devices {
				out = append(out, op{kind, chunk*n.devices + d, first + i})
			}
		}
	}
	return out
}
