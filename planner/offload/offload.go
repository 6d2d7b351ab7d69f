// Package offload plans by offloading alone: nothing is recomputed, and activations, which are saved sets here, wait
// in host memory between their forward and their backward.
//
// A strategy is a file, named as the literature names it, and an entry of Strategies. Each chooses what to offload;
// sequence.go makes of the choice a sequence with whole transfers, on one link or on a duplex one. Everything here is
// a pure function of a problem; the package knows no device, no clock and no recomputation.
package offload

import "plimsoll/planner/strategy"

const thesis = `A. Shilova, "Memory saving strategies for deep neural network training", Université de Bordeaux, 2021`

// Strategies returns the registry entries of this package, from the simplest to the most thorough.
func Strategies() []strategy.Sequencer {
	return []strategy.Sequencer{
		{
			Name:    "tflms",
			Summary: "offloads the first activations, prefetches a fixed number of ops ahead; the best of both numbers",
			Paper:   `T. D. Le et al., "TFLMS: large model support in TensorFlow by graph rewriting", 2018`, Section: "thesis of A. Shilova, 3.4.1",
			Solve: solveTFLMS,
		},
		{
			Name:    "vdnn",
			Summary: "offloads what a slow enough forward reads, all of it or every other; the best threshold",
			Paper:   `S. B. Shriram et al., "Dynamic memory management for GPU-based training of deep neural networks" (vDNN++), 2019`, Section: "thesis of A. Shilova, 3.4.1",
			Solve: solveVDNN,
		},
		{
			Name:    "autoswap",
			Summary: "offloads by a weighted sum of four scores until the rest fits; the best weights",
			Paper:   `J. Zhang et al., "Efficient memory management for GPU-based deep learning systems", 2019`, Section: "thesis of A. Shilova, 3.4.1",
			Solve: solveAutoSwap,
		},
		{
			Name:    "offload-greedy",
			Summary: "offloads the first activations, as many as have to be",
			Paper:   thesis, Section: "3.2.2, Theorem 8",
			Solve: solveGreedy,
		},
		{
			Name:    "offload-dynprog",
			Summary: "the best selection when memory is freed during transfers, made a sequence with whole transfers",
			Paper:   thesis, Section: "3.3.3, Algorithm 5",
			Solve: solveDynprog,
		},
	}
}
