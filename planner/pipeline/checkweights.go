package pipeline

// checkFetches: before each turn all parts of the weights come that the device does not own, once.
func checkFetches(a *arranger) {
	if !a.plan.Zero.dividesWeights() {
		return
	}
	for d := range a.platform.Devices {
		for _, t := range divisionOf(a.layout).weightTurns(d) {
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
					a.broken.add(RuleSynchronization, None, None, "stage %d on device %d: part %d of the weights does not come before %v of microbatch %d: add a gather of it", t.stage, d, part+1, t.first.kind, t.first.residue)
					return
				case n > 1:
					a.broken.add(RuleSynchronization, t.gathers[0].task, None, "stage %d on device %d: part %d of the weights comes %d times before %v of microbatch %d: leave all but one out", t.stage, d, part+1, n, t.first.kind, t.first.residue)
					return
				}
			}
		}
	}
	for _, j := range a.found.messages {
		m, of := j.bucket, a.sumsOf(j.stage, []int{0})[0] // of the first round
		switch {
		case a.found.by[j.fetches()] == nil:
			a.broken.add(RuleSynchronization, j.task, None, "%s: the device has the weights then, from the task before: leave it out", a.name(j))
			return
		case m.First != of.first || m.Last != of.last:
			a.broken.add(RuleSynchronization, j.task, None, "%s: the bucket of the stage has layers %d to %d: name these", a.name(j), of.first, of.last)
			return
		}
	}
}
