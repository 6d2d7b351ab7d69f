// Package partition says which layers go to which device: balance, pipedream, contiguous, madpipe.
//
// One file per algorithm; each is a pure function of costs and platform. When tasks run is said by package periodic: a
// partitioner returns its stages with the best periodic schedule for them.
//
// Sources: the thesis, chapters 5 to 7; the MadPipe paper; PipeDream, section 3.1, and its authors' program; torchgpipe.
package partition

import "plimsoll/planner/pipeline"

const (
	thesis    = `A. Shilova, "Memory saving strategies for deep neural network training", Université de Bordeaux, 2021`
	madpipe   = `O. Beaumont, L. Eyraud-Dubois, A. Shilova, "MadPipe: memory aware dynamic programming algorithm for pipelined model parallelism", 2021`
	pipedream = `D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019`
	gpipe     = `C. Kim et al., "torchgpipe: on-the-fly pipeline parallelism for training giant models", 2020`
)

// PipeDream is the name of the strategy that knows operator graphs; see PipeDreamChain.
const PipeDream = "pipedream"

// Strategies returns the registry entries of this package.
func Strategies() []pipeline.Strategy {
	return []pipeline.Strategy{
		{
			Name: "balance", Type: pipeline.Partitioner,
			Summary: "blocks of layers whose loads differ by one layer's at most; looks at neither memory nor links",
			Paper:   gpipe, Section: "torchgpipe.balance, after Bárány and Grinberg, \"Block partitions of sequences\"",
			Solve: solveBalance,
		},
		{
			Name: PipeDream, Type: pipeline.Partitioner,
			Summary: "PipeDream's optimizer: stages and replicas level by level of the topology, all-reduce included, as its program computes it",
			Paper:   pipedream, Section: "3.1 and the authors' optimizer",
			Solve: solvePipeDream,
		},
		{
			Name: "contiguous", Type: pipeline.Partitioner,
			Summary: "the best stages with one on each device, with the exact memory of 1f1b*",
			Paper:   thesis, Section: "5.2.1 and 7.1.1, without the special processor",
			Solve: solveContiguous,
		},
		{
			Name: "madpipe", Type: pipeline.Partitioner,
			Summary: "one device may have several stages: dynamic program for the stages, then a schedule for them; never worse than contiguous",
			Paper:   madpipe, Section: "4, and the thesis, chapter 7",
			Solve: solveMadPipe,
		},
	}
}
