package pipeline

import "math/big"

// before calls do for every pair of jobs of which the second needs the first, minibatch by minibatch. Pairs are F_s ->
// CF_s -> F_{s+1}; F_last -> B_last; B_{s+1} -> CB_s -> B_s; F_s -> B_s; B_s -> W_s. Through a portal from s to u they are
// F_s -> CF -> F_u and B_u -> CB -> B_s. Then follow the pairs of the sums of replicas.
func (l *layout) before(do func(x, y *job)) {
	for r := range l.repeats {
		for s := range l.plan.Stages {
			f, b, w := l.at[place{F, s, r}], l.at[place{B, s, r}], l.at[place{W, s, r}]
			if s+1 < len(l.plan.Stages) {
				through(do, f, l.at[place{CF, s, r}], l.at[place{F, s + 1, r}])
				through(do, l.at[place{B, s + 1, r}], l.at[place{CB, s, r}], b)
			}
			do(f, b)
			if w != nil {
				do(b, w)
			}
		}
		for _, p := range l.plan.Portals {
			through(do, l.at[place{F, p.From, r}], l.gates[gate{CF, p.From, p.To, r}], l.at[place{F, p.To, r}])
			through(do, l.at[place{B, p.To, r}], l.gates[gate{CB, p.From, p.To, r}], l.at[place{B, p.From, r}])
		}
	}
	for _, x := range l.sums {
		l.beforeSum(x, do)
	}
	divisionOf(l).beforeTurns(do)
}

// lead returns how long before the end of x, which y waits for, y may start. A backward may start earlier by its recomputation, a
// message of gradients by the rest of the backward that makes them.
func (l *layout) lead(x, y *job) ticks {
	switch {
	case brings(x, y):
		return y.early
	case y.bucket != nil && x.bucket == nil && !l.renews(y):
		return l.after(x, y.bucket.First)
	}
	return new(big.Int)
}

// through calls do for x before y, by way of a communication where there is one.
func through(do func(x, y *job), x, communication, y *job) {
	if communication == nil {
		do(x, y)
		return
	}
	do(x, communication)
	do(communication, y)
}

// beforeTurns calls do for pairs of jobs of which the second waits for the first. A turn needs its weights. They come when the turn before the one
// before has ended, whose buffer they take, and from each owner in the order of turns.
func (l division) beforeTurns(do func(x, y *job)) {
	if !l.plan.Zero.dividesWeights() {
		return
	}
	for d := range l.platform.Devices {
		turns, before := l.weightTurns(d), map[int]*job{}
		for i, t := range turns {
			for _, j := range t.gathers {
				if PartBytes(weights(l.chain, j.bucket.First, j.bucket.Last), j.bucket.Part, len(stageOf(l.divided, j.stage).line)) > 0 {
					if x := before[j.from]; x != nil {
						do(x, j)
					}
					before[j.from] = j
				}
				do(j, t.first)
				if i >= WeightBuffers {
					do(turns[i-WeightBuffers].last, j)
				}
			}
		}
	}
}
