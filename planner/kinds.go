package planner

import (
	"slices"

	"plimsoll/planner/chain"
	"plimsoll/planner/offload"
	"plimsoll/planner/pofo"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// Kinds returns the ways to need less memory, the one that does nothing first.
func Kinds() []strategy.Kind {
	recompute := func(c *chain.Chain) (int64, error) {
		bytes, _, err := pofo.Smallest(c)
		return bytes, err
	}
	both := func(c *chain.Chain) (int64, error) {
		_, bytes, err := pofo.Smallest(c)
		return bytes, err
	}
	return []strategy.Kind{
		kind("store-all", "store-all", storeAllPeak),
		kind("recompute", "rotor-exact", recompute),
		kind("offload", "offload-greedy", offload.Smallest),
		kind("recompute and offload", "pofo", both),
	}
}

// KindOf returns the kind that a strategy is of, with the strategy itself.
func KindOf(s strategy.Strategy) strategy.Kind {
	all := Kinds()
	kind := all[len(all)-1] // auto, and the strategies of pofo
	is := func(list []strategy.Strategy) bool {
		return slices.ContainsFunc(list, func(o strategy.Strategy) bool { return o.Name == s.Name })
	}
	switch {
	case s.Name == all[0].Strategy.Name:
		kind = all[0]
	case is(remat.Strategies()):
		kind = all[1]
	case is(offload.Strategies()):
		kind = all[2]
	}
	kind.Strategy = s
	return kind
}

func kind(name, of string, smallest func(*chain.Chain) (int64, error)) strategy.Kind {
	s, err := Lookup(of)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return strategy.Kind{Name: name, Strategy: s, Smallest: smallest}
}

func storeAllPeak(c *chain.Chain) (int64, error) {
	r, err := schedule.Simulate(c, remat.StoreAll(c), schedule.Limits{Memory: schedule.NoLimit})
	if err != nil {
		return 0, err
	}
	return r.Peak, nil
}
