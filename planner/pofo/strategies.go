// Package pofo plans by rematerialization and offloading together: activations are dropped and computed again, or
// leave the device and come back, whichever costs less.
//
// A strategy is a file, named as the literature names it, and an entry of Strategies. Everything here is a pure
// function of the costs of a chain and its link. Models of transfers only propose; every candidate is simulated
// under the rules for whole transfers, and the fastest wins.
package pofo

import "plimsoll/planner/strategy"

const thesis = `A. Shilova, "Memory saving strategies for deep neural network training", Université de Bordeaux, 2021`

// Strategies returns the registry entries of this package, the simple heuristics first.
func Strategies() []strategy.Sequencer {
	return []strategy.Sequencer{
		{
			Name:    "least-memory",
			Summary: "the least memory that recomputing and offloading can do with, whatever it takes",
			Paper:   thesis, Section: "Theorems 6 and 12, without times",
			Sizes: true, Solve: solveLeast,
		},
		{
			Name:    "opportunist",
			Summary: "keeps the link busy: offloads a layer whenever it is free, recomputes the layers between",
			Paper:   thesis, Section: "4.3",
			Solve: solveOpportunist,
		},
		{
			Name:    "capper",
			Summary: "a rematerialization for a higher limit, offloaded until it fits",
			Paper:   thesis, Section: "4.3",
			Solve: solveCapper,
		},
		{
			Name:    "autocapper",
			Summary: "capper at 40 higher limits, the fastest by simulation",
			Paper:   thesis, Section: "4.3",
			Solve: solveAutocapper,
		},
		{
			Name:    "pofo",
			Summary: "the best persistent sequence that offloads in the forward phase, made whole and improved",
			Paper:   thesis, Section: "4.1 and 4.2, Theorem 12",
			Solve: solvePofo,
		},
	}
}

// Alone is least-memory for problems without a link: it only recomputes. Up to 1,024 layers it has a sequence wherever a persistent
// one fits.
func Alone() strategy.Sequencer {
	s := Strategies()[0]
	s.Summary, s.Solve = "the least memory that recomputing can do with, whatever it takes", solveAlone
	return s
}
