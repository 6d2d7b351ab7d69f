package flush

import "plimsoll/planner/pipeline"

// zbV: stages in a V, two on each device, weight halves in the gaps.
//
// For F = B = W of one stage and m >= P at most 2P activations are held until their W ends, each of one stage (half a
// device). That is the memory of 1F1B's first device, on every device. The paper gives no makespan; ours is 2m(F+B+W) +
// (P-1)F, the least possible, as the last device cannot start before (P-1)F.
func zbV() recipe {
	return recipe{
		name: "zb-v", summary: "stages in a V, split backward: almost no bubble, in the memory of 1f1b",
		paper: "Zero Bubble Pipeline Parallelism (Qi et al. 2023)", section: "section 6",
		chunks: 2, split: true, shape: vee,
		most: func(devices int) int { return 2 * devices },
		order: func(n counts) order {
			return building(n, 2*n.devices, func(r int) block {
				p := n.devices
				return block{r, 6*p - 5 - 5*r, 6*p - 4 + r, 12*p - 9 - 5*r}
			})
		},
	}
}

// block has the times of a device's F of its upper stage, F of its lower one, B of the lower and B of the upper one. They
// are for microbatch 0, at F = B = W = 1; each further microbatch is 6 later. A device's four instants differ modulo 6,
// and two of six are left for the weight halves.
type block [4]int

// building returns the order that repeats a block, weight halves as late as the cap allows.
func building(n counts, most int, of func(rank int) block) order {
	return each(n.devices, func(r int) []op {
		lower := 2*n.devices - 1 - r
		var all []timed
		for micro := range n.micros {
			for i, o := range []op{{pipeline.F, r, micro}, {pipeline.F, lower, micro}, {pipeline.B, lower, micro}, {pipeline.B, r, micro}} {
				all = append(all, timed{o, of(r)[i] + 6*micro})
			}
		}
		return lazy(byTime(all), most)
	})
}
