package flush

// zbH2: enough forwards ahead that no device waits between its first and its last task.
//
// For F = B = W and m >= 2P-1 every device is busy from its first to its last task. Devices start (P-1)F one after the
// other, so that the makespan is m(F+B+W) + (P-1)F, as of zb-h1. Its gain needs a next minibatch that does not wait for
// all devices. At most 2P-1 activations on a device, each held until its W ends.
func zbH2() recipe {
	return recipe{
		name: "zb-h2", summary: "split backward with up to 2P-1 microbatches on a device: no bubble inside a device's own span",
		paper: "Zero Bubble Pipeline Parallelism (Qi et al. 2023)", section: "section 2.2, table 1",
		chunks: 1, split: true, shape: loop,
		most: func(devices int) int { return 2*devices - 1 },
		order: func(n counts) order {
			return zeroBubble(n, 2*n.devices-1, func(d int) int { return 2*(n.devices-d) - 1 })
		},
	}
}
