package pipelinetest

import (
	"fmt"
	"math"
	"slices"
)

// Versions says which version of a stage's weights a minibatch uses: how many updates of the stage are in them. Stages
// and minibatches count from 0.
type Versions func(stage, minibatch int) int

// Program is a way of training: which weights each minibatch sees in each stage, and when they are updated.
//
// If m+1 is a multiple of Group, every stage is updated after the backward of minibatch m. Update k, from 0, makes
// version k+1 from version k, whatever version the gradients were computed with. It uses the mean of the gradients of
// minibatches k·Group to (k+1)·Group-1. The optimizer's state follows that sequence.
type Program struct {
	Name  string
	Group int // minibatches of an update
	// Groups has the group of each stage, if they differ; nil: Group.
	Groups []int
	// Forward and Backward are the versions that the two halves of a minibatch use. The backward works on the activations
	// that the forward has saved, and needs the version itself where a derivative reads weights.
	Forward, Backward Versions
	// Steps says that dropout counts steps and microbatches, as where the pipeline empties: minibatch m is microbatch
	// m mod Group of step m div Group. Otherwise it is microbatch 0 of step m.
	Steps bool
	// Replica is the replica of a stage that works on a minibatch; nil: there is one. Each replica adds up the gradients of
	// its own minibatches, and the sums are added in the order of the replicas' numbers.
	Replica func(stage, minibatch int) int

	delays []int // of the stages, where the versions follow from them
	// Reversed runs the minibatches of an update from the last to the first, as GPipe runs its backwards: sums of floating
	// point numbers depend on the order. BatchNorm's running statistics then move in that order too, unlike GPipe's.
	Reversed bool

	begins []int // the minibatches before which the pipeline is empty, besides 0
}

// Flush is gradient accumulation: all microbatches of a step see the same weights. GPipe, 1F1B with a flush and all that
// reorder them, in minibatches that are microbatches.
func Flush(microbatches int) Program {
	now := func(_, m int) int { return m / microbatches }
	return Program{Name: "flush", Group: microbatches, Forward: now, Backward: now, Steps: true}
}

// Delayed is the general form with stashed weights and an update after each minibatch: forward and backward use the same
// version.
func Delayed(name string, version Versions) Program {
	return Program{Name: name, Group: 1, Forward: version, Backward: version}
}

// Depths returns the delays of a straight pipeline of n stages with 1F1B. After stage s, from 0, come n-1-s other
// stages. When a minibatch enters s, n-1-s minibatches have passed it forward and not yet backward.
func Depths(n int) []int {
	delays := make([]int, n)
	for s := range delays {
		delays[s] = n - 1 - s
	}
	return delays
}

// late returns the version of a minibatch that sees all updates but those of the latest so many.
func late(minibatch, delay int) int { return max(0, minibatch-delay) }

// Stashing is PipeDream's weight stashing. A minibatch sees in every stage the latest weights that are there when it enters
// the stage:
//
//	w^(t+1) = w^(t) - ν ∇f(w_1^(t-n+1), w_2^(t-n+2), ..., w_n^(t))
//
// for the delays Depths(n) (Narayanan et al. 2019, section 3.3); in general the delay of a stage is the number of minibatches
// in flight there, without the one that enters. Before update 0 there are only the initial weights.
func Stashing(delays []int) Program {
	p := Delayed("stash", func(s, m int) int { return late(m, delays[s]) })
	p.delays = delays
	return p
}

// VerticalSync is PipeDream's: a minibatch uses in every stage the version that is the latest at the input stage when it
// enters (ibid.):
//
//	w^(t+1) = w^(t) - ν ∇f(w_1^(t-n+1), w_2^(t-n+1), ..., w_n^(t-n+1))
func VerticalSync(delays []int) Program {
	p := Delayed("vertical_sync", func(_, m int) int { return late(m, delays[0]) })
	p.delays = delays
	return p
}

// DoubleBuffered is PipeDream-2BW, where gradients of a group of minibatches (there: microbatches) make one update:
//
//	W^(t+1) = W^(t) - ν ∇f(W^(t-1)),  W^(-1) = W^(0)
//
// (Narayanan et al. 2021, section 3.1). The delays count updates, stage by stage. A delay is 1 in the paper, whose groups have
// at least as many minibatches as the pipeline has stages. It is more if a stage has more minibatches in flight than a group.
func DoubleBuffered(group int, delays []int) Program {
	p := Delayed("double_buffered", func(s, m int) int { return late(m/group, delays[s]) })
	p.Group, p.delays = group, delays
	return p
}

// Latest keeps one version of the weights, as AMPNet does (Gaunt et al. 2017, section 3), and PipeMare without its
// correction T2 (Yang et al. 2021). A forward uses the weights at the time when its minibatch enters the stage. Its
// backward uses weights with the updates of all minibatches before it. The delays are those of Stashing.
func Latest(delays []int) Program {
	p := Stashing(delays)
	p.Name = "latest"
	p.Backward = func(_, m int) int { return m }
	return p
}

// Emptied returns the program of a pipeline that is empty before each of the given minibatches, as if training stopped
// and went on there. Each given minibatch sees all updates before it, and the delays of later minibatches count from it.
// The minibatches must ascend and begin a group.
func (p Program) Emptied(begins ...int) Program {
	again := func(v Versions) Versions {
		return func(s, m int) int {
			begin := 0
			for _, b := range begins {
				if b <= m {
					begin = b
				}
			}
			return begin/p.Group + v(s, m-begin)
		}
	}
	p.begins, p.Forward, p.Backward = begins, again(p.Forward), again(p.Backward)
	return p
}

// RoundRobin is weight stashing with replicas of stages that take turns (1F1B-RR, Narayanan et al. 2019, section 3.2). A round is one
// minibatch for each of the r_s replicas of stage s, and makes one update from the mean of its gradients. The update is synchronized
// "across replicas prior to being applied" (section 4), so that no replica begins a round before all
// replicas have the update that the round sees.
// With n_s minibatches in flight on each replica, counted as NOAM is, a stage is a stage of Stashing whose minibatches are rounds:
//
//	minibatch m sees W(max(0, floor(m/r_s) - (n_s-1)))
//
// One stage on all devices has n = 1: data parallelism with synchronous updates.
func RoundRobin(replicas, flying []int) Program {
	version := func(s, m int) int { return late(m/replicas[s], flying[s]-1) }
	p := Program{Name: "round robin", Group: 1, Groups: replicas, Forward: version, Backward: version, delays: flying}
	for _, r := range replicas {
		p.Group *= r // a common multiple
	}
	p.Replica = func(s, m int) int { return m % replicas[s] }
	return p
}

// Rescheduled returns the learning rates of PipeMare's first technique, T1 (Yang et al. 2021, section 3.1), for Config.LR:
//
//	α_{k,s} = α_k / τ_s^{p_k},  p_k = 1 - min(k/K, 1)
//
// for update k of stage s. The base rate is α_k; τ_s is the delay of the stage's forward, in updates; K is the number of
// updates over which the technique is phased out. In the paper τ_s is (2(P-i)+1)/N for stage i of P, from 1, with N
// microbatches in a minibatch. The rate is computed in float64 and rounded once.
func Rescheduled(base func(update int) float32, delays []float64, phaseOut int) func(stage, update int) float32 {
	return func(s, k int) float32 {
		p := 1 - min(float64(k)/float64(phaseOut), 1)
		return float32(float64(base(k)) / math.Pow(delays[s], p))
	}
}

// key returns the step and the microbatch that dropout draws for.
func (p *Program) key(m int) (step, microbatch uint64) {
	if p.Steps {
		return uint64(m / p.Group), uint64(m % p.Group)
	}
	return uint64(m), 0
}

// Rate returns, for Config.LR, the learning rates of a schedule of steps. In a program that flushes, each update is a step.
// Otherwise each minibatch is a step, and an update has the rate of its first minibatch.
func (p Program) Rate(schedule func(step int) float32) func(stage, update int) float32 {
	return func(s, k int) float32 {
		if p.Steps {
			return schedule(k)
		}
		return schedule(k * p.group(s))
	}
}

func (p *Program) replica(stage, m int) int {
	if p.Replica == nil {
		return 0
	}
	return p.Replica(stage, m)
}

// group returns how many minibatches make an update of a stage.
func (p *Program) group(stage int) int {
	if p.Groups == nil {
		return p.Group
	}
	return p.Groups[stage]
}

func (p *Program) check(stages, minibatches int) error {
	if p.delays != nil && len(p.delays) != stages {
		return fmt.Errorf("%w: %s: delays %v, want one for each of the %d stages", ErrProgram, p.Name, p.delays, stages)
	}
	if p.Group < 1 || p.Forward == nil || p.Backward == nil {
		return fmt.Errorf("%w: %q has groups of %d minibatches and needs Forward and Backward", ErrProgram, p.Name, p.Group)
	}
	if p.Groups != nil && (len(p.Groups) != stages || slices.ContainsFunc(p.Groups, func(g int) bool { return g < 1 || p.Group%g != 0 })) {
		return fmt.Errorf("%w: %s: groups %v, want one for each of the %d stages that divides the group of %d", ErrProgram, p.Name, p.Groups, stages, p.Group)
	}
	if minibatches < 1 || minibatches%p.Group != 0 {
		return fmt.Errorf("%w: %s: %d minibatches, want a multiple of the group of %d", ErrProgram, p.Name, minibatches, p.Group)
	}
	before := 0
	for _, b := range p.begins {
		if b <= before || b%p.Group != 0 {
			return fmt.Errorf("%w: %s: empty before minibatches %v, want ascending multiples of the group of %d", ErrProgram, p.Name, p.begins, p.Group)
		}
		before = b
	}
	return nil
}

// lastUses returns for every stage the last minibatch that uses a version. Error: ErrProgram.
func (p *Program) lastUses(stages, minibatches int) ([]map[int]int, error) {
	if err := p.check(stages, minibatches); err != nil {
		return nil, err
	}
	last := make([]map[int]int, stages)
	for s := range last {
		last[s] = map[int]int{}
		for m := range minibatches {
			for _, v := range []int{p.Forward(s, m), p.Backward(s, m)} {
				if latest := m / p.group(s); v < 0 || v > latest {
					return nil, fmt.Errorf("%w: %s: minibatch %d uses version %d in stage %d, which has versions 0 to %d", ErrProgram, p.Name, m, v, s, latest)
				}
				last[s][v] = m
			}
		}
	}
	return last, nil
}

// turn returns the minibatch that is worked on as number i.
func (p Program) turn(i int) int {
	if !p.Reversed {
		return i
	}
	return i/p.Group*p.Group + p.Group - 1 - i%p.Group
}

// sort puts what minibatches gave in the order of their numbers.
func (p Program) sort(out *Outcome) {
	losses, correct := slices.Clone(out.Losses), slices.Clone(out.Correct)
	for i := range losses {
		out.Losses[p.turn(i)], out.Correct[p.turn(i)] = losses[i], correct[i]
	}
}
