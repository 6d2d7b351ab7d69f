package flush

// vHalf: the V whose activations live half as long as zb-v's.
//
// For F = B = W: at most (P+2)/2 activations of a device, rounded down: twice as many of one stage. The bubble is about
// P/2m of the time; ours is no larger.
func vHalf() recipe {
	return recipe{
		name: "v-half", summary: "stages in a V, split backward, half the activations of 1f1b",
		paper: "Pipeline Parallelism with Controllable Memory (Qi et al. 2024)", section: "V-Half",
		chunks: 2, split: true, shape: vee,
		most: func(devices int) int { return 2 * ((devices + 2) / 2) },
		order: func(n counts) order {
			p, gap := n.devices, 0
			if p%2 == 0 {
				gap = 3 // the instants of a device would coincide modulo 6
			}
			return building(n, 2*((p+2)/2), func(r int) block {
				return block{2 * r, 3*p - 2 - r, 3*p - 1 + gap + 2*r, 6*p - 2 + gap - r}
			})
		},
	}
}
