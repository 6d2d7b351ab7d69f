package pipeline

import (
	"math"
)

// missed returns, for every stage of a periodic plan, the fewest and the most updates of earlier rounds that a minibatch misses in the
// steady state. A missed update is not made yet when the minibatch's forward starts. An update is made when all of its round, with the
// messages between replicas, and all rounds before, have ended in the stage. A minibatch that starts at an instant sees an update that
// is made at that instant, within the tolerance.
func (k *check) missed() [][2]int {
	all := make([][2]int, len(k.plan.Stages))
	for s := range all {
		size := k.plan.Round(s)
		var made []ticks // of the rounds of a period
		for _, round := range rounds(k.repeats, size) {
			made = append(made, k.updated(s, round))
		}
		least, most := math.MaxInt, 0
		for r := range k.repeats {
			n := max(0, r/size-k.unmade(made, add(k.at[place{F, s, r}].start, k.eps))) // a round that takes no time has ended
			least, most = min(least, n), max(most, n)
		}
		all[s] = [2]int{least, most}
	}
	return all
}

// unmade returns the first round of a stage, counted from the one of minibatch 0, whose update is not made at an instant. Argument made
// has the times of a period's updates.
func (l *layout) unmade(made []ticks, at ticks) int {
	first := math.MaxInt
	for i, end := range made {
		// Round i + j·rounds ends j periods later: the first that has not ended is behind all whole periods until then.
		first = min(first, i+(int(periods(sub(at, end), l.period).Int64())+1)*len(made))
	}
	return first
}
