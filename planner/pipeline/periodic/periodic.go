// Package periodic says when the tasks of given stages run, in a pattern that repeats. It has 1f1b, 1f1b*, k-periodic schedules, schedules
// of allocations that are not contiguous, and a simulator of eager PipeDream.
//
// One file per algorithm; each is a pure function of costs, platform and stages. It does not choose stages (package
// partition does), except that a request without stages gets those of equal load.
//
// Sources: the thesis, chapter 5 (1F1B*, Algorithms 6 and 7, Theorems 15 and 16) and section 7.2; PipeDream, section 3.2
// (1F1B, 1F1B-RR, NOAM).
package periodic

import "plimsoll/planner/pipeline"

const (
	thesis    = `A. Shilova, "Memory saving strategies for deep neural network training", Université de Bordeaux, 2021`
	pipedream = `D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019`
	ours      = "Plimsoll"
)

// Strategies returns the registry entries of this package.
func Strategies() []pipeline.Strategy {
	return []pipeline.Strategy{
		{
			Name: "1f1b", Type: pipeline.Periodic,
			Summary: "NOAM minibatches in flight, then one forward, one backward; 1F1B-RR where stages have replicas",
			Paper:   pipedream, Section: "3.2",
			Solve: solve1F1B,
		},
		{
			Name: "1f1b*", Type: pipeline.Periodic,
			Summary: "the smallest period that fits, with the fewest live minibatches of all schedules that repeat with each one",
			Paper:   thesis, Section: "5.2.1, Algorithms 6 and 7, Theorem 15",
			Solve: solveStar,
		},
		{
			Name: "k-periodic", Type: pipeline.Periodic,
			Summary: "1f1b* without every (k+1)-th minibatch: fewer live ones for a longer period",
			Paper:   thesis, Section: "5.2.2, Theorem 16",
			Solve: solveKPeriodic,
		},
		{
			Name: "list", Type: pipeline.Periodic,
			Summary: "several stages on a device: tasks are placed one after the other from the loss outwards, by beam search",
			Paper:   ours, Section: "where the thesis, section 7.2, has an integer program",
			Solve: solveList,
		},
		{
			Name: "milp", Type: pipeline.Periodic,
			Summary: "the best schedule that repeats with each minibatch, for any allocation, by integer programs; needs HiGHS",
			Paper:   thesis, Section: "7.2, on the program of chapter 6",
			Solve: solveMILP,
		},
		{
			Name: "eager", Type: pipeline.Periodic,
			Summary: "what PipeDream does with NOAM minibatches in flight when each device starts whatever it can, backward first",
			Paper:   thesis, Section: "6.5, on PipeDream",
			Solve: solveEager,
		},
	}
}
