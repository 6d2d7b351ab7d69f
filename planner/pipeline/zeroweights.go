package pipeline

import (
	"fmt"
	"slices"
)

// withWeights returns a plan with the messages of weights that its turns need, and all times for them.
//
// Tasks of no time may then start at one instant that did not before. Such tasks stand in one order alone (inOrder). So turns may be other
// ones than before, which need other messages and times. No two tasks change their order twice, so this ends.
func (l division) withWeights(p *Plan, stages []replicatedStage) (*Plan, error) {
	const most = 1 << 10
	for range most {
		p.Synchronization = append(reducesOf(p), l.fetching(stages)...)
		timed, err := Timed(l.chain, l.platform, p)
		if err != nil {
			return nil, err
		}
		then, err := arrangeBare(l.chain, l.platform, timed.bare())
		if err != nil {
			return nil, err
		}
		if then.divided = stages; slices.Equal(l.endsOfTurns(), divisionOf(then).endsOfTurns()) {
			return timed, nil
		}
		l, p = divisionOf(then), timed
	}
	return nil, fmt.Errorf("BUG: the turns of a plan change %d times", most)
}

// endsOfTurns returns the first and the last tasks of all turns.
func (l division) endsOfTurns() (all []place) {
	for d := range l.platform.Devices {
		for _, t := range l.weightTurns(d) {
			all = append(all, t.first.place(), t.last.place())
		}
	}
	return all
}

// fetching returns messages of weights for all turns, in the order in which their buffers are free.
func (l division) fetching(stages []replicatedStage) (all []Synchronization) {
	l.divided, l.found.of = stages, nil
	for d := range l.platform.Devices {
		turns := l.weightTurns(d)
		for i, t := range turns {
			m := Synchronization{Kind: Gather, Stage: t.stage, To: d, Shift: t.first.residue, Before: t.first.kind}
			if i >= WeightBuffers {
				m.Start = l.seconds(turns[i-WeightBuffers].last.end())
			}
			st := l.plan.Stages[t.stage]
			for m.First = st.First; l.chain.SummedWeights(m.First) == 0; {
				m.First++
			}
			for m.Last = st.Last; l.chain.SummedWeights(m.Last) == 0; {
				m.Last--
			}
			for part, owner := range stageOf(stages, t.stage).line {
				if m.Part, m.From = part+1, owner; owner != d {
					all = append(all, m)
				}
			}
		}
	}
	return all
}

// reducesOf returns the messages of gradients of a plan that divides weights.
func reducesOf(p *Plan) []Synchronization {
	return slices.DeleteFunc(slices.Clone(p.Synchronization), func(m Synchronization) bool { return m.Kind == Gather })
}
