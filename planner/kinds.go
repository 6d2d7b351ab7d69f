package planner

import (
	"context"
	"errors"
	"math"
	"slices"

	"plimsoll/planner/auto"
	"plimsoll/planner/chain"
	"plimsoll/planner/multichain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pofo"
	"plimsoll/planner/remat"
	"plimsoll/planner/residency"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Recompute is the name of the kind that every chain has.
const Recompute = "recompute"

// Kinds returns the ways in which a chain can need less memory, the one that does nothing first. Where branches meet, there is one.
func Kinds(c *chain.Chain) []strategy.Kind {
	if len(c.Branches) == 0 {
		return kinds(c.Len() <= ExactLayers)
	}
	joins := Joins()
	return []strategy.Kind{{Name: Recompute, Strategies: joins, Fastest: joins[0], Smallest: smallestOf(joins)}}
}

// MovesState is the name of the kind that MovingState returns.
const MovesState = "move weights and state, too"

// MovingState returns the kind whose plans say where weights, gradients and optimizer state are. It is for one device and a chain without
// branches. Least of its strategy has its smallest limit.
func MovingState() strategy.Kind {
	s := mustLookup(residency.Search)
	return strategy.Kind{Name: MovesState, Strategies: []pipeline.Strategy{s}, Fastest: s}
}

// ExactLayers is the length of chains up to which exact plans take no time to speak of.
const ExactLayers = 40

// kinds are the kinds of plans for chains without branches. If a chain is short, rotor-exact is asked beside the sequence of least
// memory: the layout of another sequence can be the smaller one.
func kinds(short bool) []strategy.Kind {
	recompute := func(c *chain.Chain) (int64, error) {
		bytes, _, err := pofo.Smallest(c)
		return bytes, err
	}
	both := func(c *chain.Chain) (int64, error) {
		_, bytes, err := pofo.Smallest(c)
		return bytes, err
	}
	alone := []pipeline.Strategy{pofo.Alone().Strategy()}
	if short {
		alone = append(alone, mustLookup("rotor-exact"))
	}
	return []strategy.Kind{
		kind("store-all", storeAllPeak, "store-all", mustLookup("store-all")),
		kind(Recompute, recompute, "rotor-exact", alone...),
		kind("offload", offload.Smallest, "offload-dynprog", mustLookup("offload-greedy")),
		kind("recompute and offload", both, auto.Name, append(slices.Concat([]pipeline.Strategy{mustLookup("least-memory")}, alone), mustLookup("offload-greedy"))...),
	}
}

// KindOf returns the kind that a strategy is of, with the strategy itself.
func KindOf(s pipeline.Strategy) strategy.Kind {
	all := kinds(false)
	kind := all[len(all)-1] // auto, and the strategies of pofo
	is := func(list []strategy.Sequencer) bool {
		return slices.ContainsFunc(list, func(o strategy.Sequencer) bool { return o.Name == s.Name })
	}
	switch {
	case is(multichain.Strategies()):
		kind.Smallest = smallestOf([]pipeline.Strategy{s})
	case s.Name == all[0].Strategies[0].Name:
		kind = all[0]
	case is(remat.Strategies()):
		kind = all[1]
	case is(offload.Strategies()):
		kind = all[2]
	}
	kind.Strategies, kind.Fastest = []pipeline.Strategy{s}, s
	return kind
}

func kind(name string, smallest func(*chain.Chain) (int64, error), fastest string, by ...pipeline.Strategy) strategy.Kind {
	return strategy.Kind{Name: name, Strategies: by, Smallest: smallest, Fastest: mustLookup(fastest)}
}

func mustLookup(name string) pipeline.Strategy {
	s, err := Lookup(name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return s
}

// smallestOf asks strategies for the least that they refuse everything below.
func smallestOf(list []pipeline.Strategy) func(*chain.Chain) (int64, error) {
	return func(c *chain.Chain) (int64, error) {
		least := int64(math.MaxInt64)
		for _, s := range list {
			_, err := s.Solve(context.Background(), pipeline.Request{Chain: c, Platform: pipeline.OneDevice(schedule.Limits{})})
			small, ok := errors.AsType[*pipeline.InfeasibleError](err)
			if !ok {
				return 0, err
			}
			least = min(least, small.Smallest)
		}
		return least, nil
	}
}

func storeAllPeak(c *chain.Chain) (int64, error) {
	r, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return 0, err
	}
	return r.Peak, nil
}
