package measure

import (
	"context"
	"time"

	"plimsoll/executor"
	"plimsoll/internal/stats"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// besideWays are the directions that copy while a step runs: none, and as the factors of chain.Beside.
var besideWays = [...][]int{nil, {chain.ToHost}, {chain.ToDevice}, {chain.ToHost, chain.ToDevice}}

// Rounds of a measurement of contention, each a step alone and one beside copies of every way. There are two for each measured step of an
// exercise, at most besideRounds. After enoughRounds no other begins when they have taken besideFor.
const (
	besideRounds = 8
	enoughRounds = 4
	besideFor    = time.Second
	linkSteps    = besideRounds * len(besideWays)
)

// besides are the seconds of the steps of an exercise, alone and beside copies.
type besides struct {
	exercise *Exercise
	ops      [len(besideWays)][][]float64 // by op of the sequence
	whole    [len(besideWays)][]float64
	rates    [2][]float64 // bytes/s of copies one way, beside the step
}

// inRounds calls measure for at most so many rounds, in each of which things are measured in turns, as machines drift. When they have taken
// enough, if that is above 0, no other round begins. It returns how many there were.
func inRounds(most int, enough time.Duration, measure func(round int) error) (rounds int, err error) {
	for begun := time.Now(); rounds < most; rounds++ {
		took := time.Since(begun)
		if rounds > 0 && enough > 0 && took >= enough || rounds >= enoughRounds && took >= besideFor {
			break
		}
		if err := measure(rounds); err != nil {
			return rounds, err
		}
	}
	return rounds, nil
}

// besides measures steps alone and beside copies in rounds. step is called linkSteps times.
func (m *prober) besides(ctx context.Context, x *Exercise, opt *ProfileOptions, step func()) (*besides, error) {
	b := &besides{exercise: x}
	for way := range b.ops {
		b.ops[way] = make([][]float64, len(x.Seq))
	}
	rounds, err := inRounds(min(besideRounds, 2*max(opt.Repeats, 1)), opt.Enough, func(round int) error {
		for i := range besideWays {
			if err := m.stepBeside(ctx, b, (round+i)%len(besideWays)); err != nil {
				return err
			}
			step()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for range (besideRounds - rounds) * len(besideWays) {
		step()
	}
	return b, nil
}

// stepBeside measures one step while copies run.
func (m *prober) stepBeside(ctx context.Context, b *besides, way int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var copies []*probe
	for _, i := range besideWays[way] {
		copies = append(copies, m.direction[i])
	}
	var r *OpTimes
	rates, err := whileCopying(copies, func() (err error) {
		r, err = m.Step()
		return err
	})
	if err != nil {
		return err
	}
	for p, seconds := range r.Ops {
		b.ops[way][p] = append(b.ops[way][p], seconds)
	}
	b.whole[way] = append(b.whole[way], r.Sequence)
	if len(besideWays[way]) == 1 {
		i := besideWays[way][0]
		b.rates[i] = append(b.rates[i], rates[0])
	}
	return nil
}

// slowdown returns the time of a step while both directions copy divided by its time alone.
func (b *besides) slowdown() float64 {
	alone := stats.Median(b.whole[0])
	if !(alone > 0) {
		return 0
	}
	return stats.Median(b.whole[len(besideWays)-1]) / alone
}

// Classes of ops by what bounds them. Ops of a class are slowed alike, so that the many ops of a class are measured together: what
// slows a single one in a few steps is mostly chance.
const (
	boundByProducts = iota
	boundByMemory
	boundByLatency
	opClasses
)

// shortest is the time of ops, seconds, below which launches count more than what they do.
const shortest = 50e-6

// classes tells what bounds the ops of a measured chain: memory, where they pass at least half as many bytes a second as the op that
// passes most.
type classes struct {
	c       *chain.Chain
	fastest float64 // bytes/s
}

func newClasses(c *chain.Chain) *classes {
	k := &classes{c: c}
	for l := 1; l <= c.Len(); l++ {
		for _, op := range []schedule.Op{{Kind: schedule.ForwardAll, Layer: l}, {Kind: schedule.Backward, Layer: l}} {
			if op.Seconds(c) >= shortest {
				k.fastest = max(k.fastest, k.rate(op))
			}
		}
	}
	return k
}

// rate returns bytes/s of what an op reads and writes at least once.
func (k *classes) rate(op schedule.Op) float64 {
	layer := k.c.Layer(op.Layer)
	bytes := k.c.Activation(op.Layer-1) + layer.SavedBytes + layer.WeightBytes
	if op.Kind == schedule.Backward {
		bytes += k.c.Gradient(op.Layer-1) + k.c.Gradient(op.Layer) + layer.WeightBytes
	}
	return float64(bytes) / op.Seconds(k.c)
}

func (k *classes) of(op schedule.Op) int {
	switch {
	case op.Seconds(k.c) < shortest:
		return boundByLatency
	case k.rate(op) >= k.fastest/2:
		return boundByMemory
	}
	return boundByProducts
}

// contend writes into a chain what was measured: the factors of every op by its class, and those of copies, which alone had the rates
// of the link.
func (b *besides) contend(c *chain.Chain, link *executor.LinkProfile) {
	if len(c.Branches) > 0 { // whose plans transfer nothing
		return
	}
	k := newClasses(c)
	var sums [opClasses + 1][len(besideWays)][]float64 // by round; the last of all classes
	for p, op := range b.exercise.Seq {
		if op.Layer > b.exercise.count {
			continue // of a window's head, which no layer of the chain is
		}
		op.Layer += b.exercise.first
		for way := range b.ops {
			for round, seconds := range b.ops[way][p] {
				for _, class := range []int{k.of(op), opClasses} {
					add(&sums[class][way], round, seconds)
				}
			}
		}
	}
	factors := func(op schedule.Op) *chain.Beside {
		of := sums[k.of(op)]
		if len(of[0]) == 0 {
			of = sums[opClasses]
		}
		beside := chain.Beside{}
		for i := range beside {
			beside[i] = factor(of[i+1], of[0])
		}
		return &beside
	}
	for l := 1; l <= c.Len(); l++ {
		layer := c.Layer(l)
		layer.ForwardBeside = factors(schedule.Op{Kind: schedule.ForwardAll, Layer: l})
		layer.BackwardBeside = factors(schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	c.CopiesBeside = &chain.CopiesBeside{
		slowed(link.ToHost, b.rates[chain.ToHost]), slowed(link.ToDevice, b.rates[chain.ToDevice]),
	}
}

// factor returns how many times as long something takes beside something else, the median over rounds; what is faster then is so by chance.
// Both times of a round are near each other, so that what else the machine does, and how fast it is then, is mostly in both.
func factor(beside, alone []float64) float64 {
	var ratios []float64
	for i := range min(len(beside), len(alone)) {
		if alone[i] > 0 {
			ratios = append(ratios, beside[i]/alone[i])
		}
	}
	return max(1, min(stats.Median(ratios), mostFactor))
}

// slowed returns how many times as long a copy takes that alone has a rate of the link, and beside something else others.
func slowed(alone float64, rates []float64) float64 {
	return factor([]float64{alone}, []float64{stats.Median(rates)})
}

// add adds to a sum of a round.
func add(sums *[]float64, round int, seconds float64) {
	for len(*sums) <= round {
		*sums = append(*sums, 0)
	}
	(*sums)[round] += seconds
}

// mostFactor is far above what shared memory and cores do.
const mostFactor = 1000
