package pipeline

import (
	"slices"

	"plimsoll/runtime"
)

// memoryAccess is a use of bytes.
type memoryAccess struct {
	span  runtime.Span
	write bool
}

// dependencies holds the issued steps, and for each stream the steps that it is known to follow. Steps of a stream are
// numbered from 1.
type dependencies struct {
	steps [][]stepRef
	known []vectorClock
	after [][]vectorClock // by step: what is known to have ended when it has
}

// newDependencies is for so many streams.
func newDependencies(streams int) *dependencies {
	h := &dependencies{steps: make([][]stepRef, streams), known: make([]vectorClock, streams), after: make([][]vectorClock, streams)}
	for i := range h.known {
		h.known[i] = make(vectorClock, streams)
	}
	return h
}

// vectorClock is the numbers of the latest steps of all streams.
type vectorClock []int

func (n vectorClock) join(m vectorClock) {
	for s := range n {
		n[s] = max(n[s], m[s])
	}
}

// add adds a step and returns the steps that it waits for. These are the latest step of each other stream that it conflicts
// with, unless that has ended when another one has. With behind, the latest step of compute is one of them.
func (p *dependencies) add(at stepRef, on stream, accessed [][][]memoryAccess, behind bool) (waits []stepRef) {
	known, needs := p.known[on], make(vectorClock, len(p.steps))
	for other := range p.steps {
		if stream(other) != on {
			needs[other] = latest(p.steps[other], known[other], accessed, accessed[at.step][at.slot])
		}
	}
	if n := len(p.steps[onCompute]); behind && n > known[onCompute] {
		needs[onCompute] = n
	}
	for other, k := range needs {
		if k > 0 && !p.implied(other, needs) {
			waits = append(waits, p.steps[other][k-1])
		}
	}
	for other, k := range needs {
		if k > 0 {
			known.join(p.after[other][k-1])
		}
	}
	p.steps[on] = append(p.steps[on], at)
	known[on] = len(p.steps[on])
	p.after[on] = append(p.after[on], slices.Clone(known))
	return waits
}

// implied reports whether what a step needs of a stream has ended when it has what it needs of another one.
func (p *dependencies) implied(of int, needs vectorClock) bool {
	for other, k := range needs {
		if other != of && k > 0 && p.after[other][k-1][of] >= needs[of] {
			return true
		}
	}
	return false
}

// latest returns the number of the latest step, behind one, that some bytes must wait for; 0: there is none.
func latest(steps []stepRef, behind int, accessed [][][]memoryAccess, bytes []memoryAccess) int {
	for k := len(steps); k > behind; k-- {
		for _, x := range accessed[steps[k-1].step][steps[k-1].slot] {
			for _, y := range bytes {
				if (x.write || y.write) && x.span.Overlaps(y.span) {
					return k
				}
			}
		}
	}
	return 0
}
