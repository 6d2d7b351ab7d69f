package flush

// vMin: the V whose activations live as short as they can.
//
// For F = B = W: at most (P+4)/3 activations of a device, rounded down: twice as many of one stage. The bubble is about
// 2P/3m of the time; ours is no larger.
func vMin() recipe {
	return recipe{
		name: "v-min", summary: "stages in a V, split backward, a third of the activations of 1f1b",
		paper: "Pipeline Parallelism with Controllable Memory (Qi et al. 2024)", section: "V-Min",
		chunks: 2, split: true, shape: vee,
		most: func(devices int) int { return 2 * ((devices + 4) / 3) },
		order: func(n counts) order {
			p, gap := n.devices, 0
			if p%3 == 0 {
				gap = 2 // the instants of a device would coincide modulo 6
			}
			return building(n, 2*((p+4)/3), func(r int) block {
				return block{r, 2*p - 1 - r, 2*p + gap + r, 4*p - 1 + gap - r}
			})
		},
	}
}
