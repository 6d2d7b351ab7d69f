package flush

import (
	"fmt"

	"plimsoll/planner/pipeline"
)

// chimera: two pipelines in opposite directions, each with half of the microbatches, so that one fills the bubbles of the
// other. Every device holds two stages: weights twice.
//
// For F = B: makespan 2m+P-2, bubble (P-2)/(2m+P-2), at most P activations on a device. With B = 2F there are bubbles
// inside the basic unit and the makespan is longer.
func chimera() recipe {
	return recipe{
		name: "chimera", summary: "two pipelines in opposite directions fill each other's bubbles; weights twice",
		paper: "Chimera (Li and Hoefler 2021)", section: "table 2",
		chunks: 1, shape: bidirectional, recomputes: true,
		accepts: func(devices, _ int) error {
			if devices%2 != 0 {
				return fmt.Errorf("%d devices: its two directions need an even number: give %d", devices, max(devices-1, 2))
			}
			return nil
		},
		order: func(n counts) order {
			return each(n.devices, func(d int) []op { return byTime(basicUnits(n, d)) })
		},
	}
}

// basicUnits returns the work of rank d at F = B = 1, P microbatches in a unit of 2P seconds. Microbatch i of one direction
// of a unit enters at 2i, and both directions are mirror images. Their instants never coincide on an even number of ranks.
// Even microbatches go down, odd ones up.
func basicUnits(n counts, d int) []timed {
	var out []timed
	for micro := range n.micros {
		stage := d
		if micro%2 == 1 {
			stage = n.devices - 1 - d
		}
		enter := micro/n.devices*2*n.devices + micro%n.devices/2*2
		out = append(out,
			timed{op{pipeline.F, stage, micro}, enter + stage},
			timed{op{pipeline.B, stage, micro}, enter + 2*n.devices - 1 - stage})
	}
	return out
}
