// Package remat plans by rematerialization: forwards are run again instead of keeping what they computed.
//
// A strategy is a file, named as the literature names it, and an entry of Strategies. Everything here is a pure
// function of the costs of a chain; the package knows no device, no clock and no offloading. Sequences hold compute ops only.
package remat

import (
	"slices"

	"plimsoll/planner/milp"
	"plimsoll/planner/strategy"
)

const thesis = `A. Shilova, "Memory saving strategies for deep neural network training", Université de Bordeaux, 2021`

// Strategies returns the registry entries of this package that this build can run, from the simplest to the most
// thorough, and those of other systems last.
func Strategies() []strategy.Sequencer {
	if milp.Built {
		return append(always(), strategy.Sequencer{
			Name:    Checkmate,
			Summary: "an integer program up to 8 layers; beyond, its relaxation rounded: a weak peer, not the hour-long solver's optimum",
			Paper:   `P. Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys, 2020`, Section: "4 and 5",
			Solve: solveCheckmate,
		})
	}
	return always()
}

// Checkmate is the strategy that needs a solver of linear programs: see milp.Built.
const Checkmate = "checkmate"

func always() []strategy.Sequencer { return slices.Concat(classics(), rotors(), others()) }

// classics are the methods of frameworks themselves, of most of their users, and of automatic differentiation.
func classics() []strategy.Sequencer {
	return []strategy.Sequencer{
		{
			Name:    "store-all",
			Summary: "no recomputation: the fastest, and the most memory",
			Paper:   thesis, Section: `2.4.4 ("PyTorch")`,
			Solve: solveStoreAll,
		},
		{
			Name:    "periodic",
			Summary: "equal segments, each recomputed once; the number of segments given or the best",
			Paper:   `T. Chen et al., "Training deep nets with sublinear memory cost", 2016`, Section: "4",
			Solve: solvePeriodic,
		},
		{
			Name:    "revolve",
			Summary: "the optimum of automatic differentiation, with a forward_all before each backward",
			Paper:   `A. Griewank and A. Walther, "Evaluating derivatives", SIAM, 2008`, Section: "thesis of A. Shilova, 2.4.4",
			Solve: revolve.solve,
		},
	}
}

// rotors are the optimal sequences of the thesis.
func rotors() []strategy.Sequencer {
	return []strategy.Sequencer{
		{
			Name:    "rotor",
			Summary: "the best persistent sequence, sizes rounded up to memory slots",
			Paper:   thesis, Section: "Theorem 6, Algorithms 3 and 4",
			Solve: solveRotor,
		},
		{
			Name:    "rotor-exact",
			Summary: "the best persistent sequence, to the byte",
			Paper:   thesis, Section: "Theorem 6, Algorithms 3 and 4, memory as step functions",
			Solve: rotorExact.solve,
		},
		{
			Name:    "rotor-floating",
			Summary: "the best sequence in which stored activations may also move on, to the byte",
			Paper:   thesis, Section: "Theorem 5 repaired, Algorithms 1 and 2",
			Solve: rotorFloating.solve,
		},
	}
}

func others() []strategy.Sequencer {
	return []strategy.Sequencer{
		{
			Name:    BranchAndBound,
			Summary: "the best of all sequences of short chains, proved; improves rotor's plan of longer ones",
			Paper:   `P. E. Hart, N. J. Nilsson, B. Raphael, "A formal basis for the heuristic determination of minimum cost paths", 1968`,
			Section: "A*; docs/strategies.md",
			Solve:   solveOptimal,
		},
		{
			Name:    "dtr",
			Summary: "evicts what is cheap, large and unused for long, as Dynamic Tensor Rematerialization does at run time",
			Paper:   `M. Kirisame et al., "Dynamic Tensor Rematerialization", ICLR, 2021`, Section: "2 and 4.1",
			Solve: solveDTR,
		},
	}
}
