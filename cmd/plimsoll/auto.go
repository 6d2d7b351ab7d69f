package main

import (
	"errors"
	"fmt"

	"plimsoll/planner"
	"plimsoll/planner/remat"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// auto is the strategy of users who do not want to choose: the most thorough one whose tables stay reasonable for the
// chain.
const auto = "auto"

var autoOrder = []string{"rotor-floating", "rotor-exact", "rotor"}

// autoExactLayers is the longest chain for which auto waits for rotor-exact: on 340 layers it takes a minute, rotor less
// than a second, for plans about 1 % apart.
const autoExactLayers = 150

// candidates returns the strategies that a name stands for, in the order in which they are tried.
func candidates(name string) ([]strategy.Strategy, error) {
	names := []string{name}
	if name == auto {
		names = autoOrder
	}
	var list []strategy.Strategy
	for _, n := range names {
		s, err := planner.Lookup(n)
		if err != nil {
			return nil, fmt.Errorf("%w, and %s", err, auto)
		}
		list = append(list, s)
	}
	return list, nil
}

// first plans a chain of so many layers with the first candidate that can deal with it.
func first(layers int, list []strategy.Strategy, plan func(strategy.Strategy) (*schedule.Plan, error)) (p *schedule.Plan, err error) {
	for i, s := range list {
		if s.Name == "rotor-exact" && layers > autoExactLayers && i+1 < len(list) {
			continue
		}
		if p, err = plan(s); !errors.Is(err, remat.ErrTooLarge) {
			break
		}
	}
	return p, err
}
