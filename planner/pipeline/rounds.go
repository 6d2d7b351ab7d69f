package pipeline

import (
	"math"
	"slices"
)

// Round returns how many minibatches, counted off from number 0, make a round of a stage: the fewest that give each of its devices that
// work one at least, which is their number where they take turns. Replicas make one update of a round.
func (p *Plan) Round(stage int) int {
	on := make([]int, p.Repeats())
	for _, t := range p.Tasks {
		if t.Kind == F && t.Stage == stage {
			on[modulus(t.Shift, len(on))] = t.Device
		}
	}
	all := slices.Compact(slices.Sorted(slices.Values(on)))
	for n := len(all); ; n++ {
		if len(on)%n == 0 && everyone(on, n, all) {
			return n
		}
	}
}

// everyone reports whether each chunk of n minibatches has some for all devices.
func everyone(on []int, n int, all []int) bool {
	for some := range slices.Chunk(on, n) {
		for _, d := range all {
			if !slices.Contains(some, d) {
				return false
			}
		}
	}
	return true
}

func modulus(x, n int) int { return (x%n + n) % n }

// missed returns, for every stage of a periodic plan, the fewest and the most updates of rounds before its own that a minibatch misses in
// the steady state: those that are not made yet when its forward starts. An update is made when all of its round, with the messages
// between replicas, and all rounds before, have ended in the stage. What a minibatch ends at an instant, within the tolerance, one that
// starts then sees.
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

// unmade returns the first round of a stage, counted from the one of minibatch 0, whose update is not made at an instant; it knows when
// those of a period are.
func (l *layout) unmade(made []ticks, at ticks) int {
	first := math.MaxInt
	for i, end := range made {
		// Round i + j·rounds ends j periods later: the first that has not ended is behind all whole periods until then.
		first = min(first, i+(int(periods(sub(at, end), l.period).Int64())+1)*len(made))
	}
	return first
}
