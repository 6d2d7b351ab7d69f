package pipeline

import (
	"fmt"
	"slices"
)

// weightBuffers is how many buffers a device has for weights that are divided: those of a turn come while the turn before runs.
const weightBuffers = 2

// dividesWeights reports whether weights are divided among replicas (ZeroWeights).
func (l *layout) dividesWeights() bool { return l.plan.Zero == ZeroWeights }

// weightTurn is a turn of a stage on a device (ZeroWeights), and the messages of its weights.
type weightTurn struct {
	stage       int
	first, last *job
	gathers     []*job
}

// weightTurns returns the turns of a device, in order.
func (l *layout) weightTurns(d int) []*weightTurn {
	if l.inOrder(); l.inTurn == nil { // that may ask for turns itself
		l.inTurn, l.turnOf = make([][]*weightTurn, l.platform.Devices), map[place]*weightTurn{}
		for d := range l.inTurn {
			l.inTurn[d] = l.findTurns(d)
		}
		for _, j := range l.fetched {
			if t := l.turnOf[j.fetches()]; t != nil {
				t.gathers = append(t.gathers, j)
			}
		}
	}
	return l.inTurn[d]
}

// findTurns finds the turns of a device.
func (l *layout) findTurns(d int) (all []*weightTurn) {
	for _, q := range l.inOrder()[resource{d, d}] {
		j := q.job
		if j.kind == W || stageOf(l.divided, j.stage) == nil {
			continue
		}
		if n := len(all) - 1; n >= 0 && all[n].stage == j.stage {
			all[n].last = j
			continue
		}
		t := &weightTurn{stage: j.stage, first: j, last: j}
		all, l.turnOf[j.place()] = append(all, t), t
	}
	return all
}

// fetches returns the first task of the turn that a message says it is for.
func (j *job) fetches() place { return place{j.bucket.Before, j.stage, j.residue} }

// mistaken says why a message of a stage, along the line of its devices, cannot be for a turn, or for none.
func (a *arranger) mistaken(m *Synchronization, line []int) (reason string) {
	fetches := a.dividesWeights() && m.Kind == Gather
	switch {
	case !fetches && m.Before != 0:
		return fmt.Sprintf("field \"before\" is %v: it is for a gather of weights, with \"zero\" of %d", m.Before, ZeroWeights)
	case !fetches:
		return ""
	case m.Before == 0:
		return "field \"before\" is missing: it names the first task, F or B, of the turn that the weights are for"
	case m.Before != F && m.Before != B:
		return fmt.Sprintf("field \"before\" is %v: it names the first task, F or B, of the turn that the weights are for", m.Before)
	case m.From != line[m.Part-1]:
		return fmt.Sprintf("field \"from\" is %d: device %d owns part %d", m.From, line[m.Part-1], m.Part)
	case a.at[place{m.Before, m.Stage, m.Shift}].device != m.To:
		return fmt.Sprintf("field \"to\" is %d: %v of microbatch %d is on device %d", m.To, m.Before, m.Shift, a.at[place{m.Before, m.Stage, m.Shift}].device)
	}
	return ""
}

// fetches: before each turn all parts of the weights come that the device does not own, once.
func (a *arranger) fetches() {
	if !a.dividesWeights() {
		return
	}
	for d := range a.platform.Devices {
		for _, t := range a.weightTurns(d) {
			line := stageOf(a.divided, t.stage).line
			for part, owner := range line {
				n := 0
				for _, j := range t.gathers {
					if j.bucket.Part == part+1 {
						n++
					}
				}
				switch {
				case n == 0 && owner != d:
					a.unsummed(None, "stage %d on device %d: part %d of the weights does not come before %v of microbatch %d", t.stage, d, part+1, t.first.kind, t.first.residue)
					return
				case n > 1:
					a.unsummed(t.gathers[0].task, "stage %d on device %d: part %d of the weights comes %d times before %v of microbatch %d", t.stage, d, part+1, n, t.first.kind, t.first.residue)
					return
				}
			}
		}
	}
	for _, j := range a.fetched {
		m, of := j.bucket, a.sumsOf(j.stage, []int{0})[0] // of the first round
		switch {
		case a.turnOf[j.fetches()] == nil:
			a.unsummed(j.task, "%s: the device has the weights then, from the task before", a.name(j))
			return
		case m.First != of.first || m.Last != of.last:
			a.unsummed(j.task, "%s: the bucket of the stage has layers %d to %d", a.name(j), of.first, of.last)
			return
		}
	}
}

// beforeTurns calls do for pairs of jobs of which the second waits for the first. A turn needs its weights. They come when the turn before the one
// before has ended, whose buffer they take.
func (l *layout) beforeTurns(do func(x, y *job)) {
	if !l.dividesWeights() {
		return
	}
	for d := range l.platform.Devices {
		turns := l.weightTurns(d)
		for i, t := range turns {
			for _, j := range t.gathers {
				do(j, t.first)
				if i >= weightBuffers {
					do(turns[i-weightBuffers].last, j)
				}
			}
		}
	}
}

// withWeights returns a plan with the messages of weights that its turns need, and all times for them.
//
// Tasks of no time may then start at one instant that did not before. Such tasks stand in one order alone (inOrder). So turns may be other
// ones than before, which need other messages and times. No two tasks change their order twice, so this ends.
func (l *layout) withWeights(p *Plan, stages []replicatedStage) (*Plan, error) {
	for {
		p.Synchronization = append(p.reduces(), l.fetching(stages)...)
		timed, err := Timed(l.chain, l.platform, p)
		if err != nil {
			return nil, err
		}
		then, err := arrangeBare(l.chain, l.platform, timed.bare())
		if err != nil {
			return nil, err
		}
		if then.divided = stages; slices.Equal(l.endsOfTurns(), then.endsOfTurns()) {
			return timed, nil
		}
		l, p = then, timed
	}
}

// endsOfTurns returns the first and the last tasks of all turns.
func (l *layout) endsOfTurns() (all []place) {
	for d := range l.platform.Devices {
		for _, t := range l.weightTurns(d) {
			all = append(all, t.first.place(), t.last.place())
		}
	}
	return all
}

// reduces returns the messages of gradients of a plan that divides weights.
func (p *Plan) reduces() []Synchronization {
	return slices.DeleteFunc(slices.Clone(p.Synchronization), func(m Synchronization) bool { return m.Kind == Gather })
}

// fetching returns messages of weights for all turns, in the order in which their buffers are free.
func (l *layout) fetching(stages []replicatedStage) (all []Synchronization) {
	l.divided, l.inTurn = stages, nil
	for d := range l.platform.Devices {
		turns := l.weightTurns(d)
		for i, t := range turns {
			m := Synchronization{Kind: Gather, Stage: t.stage, To: d, Shift: t.first.residue, Before: t.first.kind}
			if i >= weightBuffers {
				m.Start = l.seconds(turns[i-weightBuffers].last.end())
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

// addTurns adds the messages of weights for turns. A device lets them come behind the turn whose buffer they take. They are sent behind that,
// and before the first task of their own turn.
func (o *orderer) addTurns() {
	for d := range o.platform.Devices {
		turns := o.weightTurns(d)
		for i, t := range turns {
			for _, j := range t.gathers {
				start, free, sent := o.moments.number(j.start), o.freeFor(o.moments, turns, i), o.placeOfWeights(o.moments, turns, i, j)
				o.add(d, o.messageWork(Admitting, j, j.from, free.Rank), j.residue, start, free.Half)
				o.add(j.from, o.messageWork(Gathering, j, d, sent.Rank), j.residue, start, sent.Half)
			}
		}
	}
}

// placesOfWeights returns the places of all messages of weights.
func (l *layout) placesOfWeights(m *moments) map[*job]Place {
	all := map[*job]Place{}
	for d := range l.platform.Devices {
		turns := l.weightTurns(d)
		for i, t := range turns {
			for _, j := range t.gathers {
				all[j] = l.placeOfWeights(m, turns, i, j)
			}
		}
	}
	return all
}

// freeFor returns the place from which on a turn has its buffer: behind the last task of the turn before that has it.
func (l *layout) freeFor(m *moments, turns []*weightTurn, i int) Place {
	if i < weightBuffers {
		return Place{Rank: i - 2*weightBuffers} // before all tasks, in the order of turns
	}
	last := turns[i-weightBuffers].last
	return Place{m.begin(last), 2*l.rank(last) + 1}
}

// placeOfWeights returns the place of a message of weights. If the first task of its turn begins in the same half moment, or in the one
// before, it stands just before that. Else it stands behind the tasks that begin when it does, in the order of turns. It stands behind the place from which on its buffer is free:
// tasks of no time may all begin then.
func (l *layout) placeOfWeights(m *moments, turns []*weightTurn, i int, j *job) Place {
	first, free := turns[i].first, l.freeFor(m, turns, i)
	at := Place{m.begin(j), 2*l.rank(&job{kind: W}) + 1 + i}
	if half := m.begin(first); half/2 == at.Half/2 && half <= at.Half {
		at = Place{half, 2*l.rank(first) - 1}
	}
	if at.Compare(free) <= 0 {
		return Place{free.Half, free.Rank + 1}
	}
	return at
}
