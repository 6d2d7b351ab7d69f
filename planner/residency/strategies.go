package residency

import (
	"math"
	"slices"
)

// Strategy is a way to plan weights, gradients and state.
type Strategy struct {
	Name, Summary string
	Source        string
	run           func(*trials)
}

// Strategies returns the named strategies, those of the literature, and auto.
func Strategies() []Strategy {
	return append(named(),
		Strategy{Auto, "starts from all other strategies and searches", "", nil})
}

func named() []Strategy {
	return []Strategy{
		{"resident", "weights, gradients and state stay on the device", "", (*trials).resident},
		{"zero-offload", "weights stay; the host has the state and updates every layer",
			"J. Ren et al., \"ZeRO-Offload: democratizing billion-scale model training\", USENIX ATC, 2021", (*trials).zeroOffload},
		{"layer-window", "the weights of two layers are on the device at a time; the host updates every layer",
			"MegaTrain, arXiv 2604.05091; SlideFormer, arXiv 2603.16428", (*trials).layerWindow},
		{"protrain", "four numbers: layers that stay, layers fetched ahead, layers whose activations are offloaded, layers computed again",
			"ProTrain, arXiv 2406.08334", (*trials).proTrain},
		{"greedysnake", "all microbatches of a layer before the next, forwards computed again, a share of the updates in the next step",
			"GreedySnake, arXiv 2512.17570", (*trials).greedySnake},
		{"weight-offload", "weights alone leave the device",
			"O. Beaumont, L. Eyraud-Dubois, A. Shilova, X. Zhao, \"Weight offloading strategies for training large DNN models\", hal-03580767, 2022",
			(*trials).weightOffload},
	}
}

// runNamed times the plans of one strategy.
func (s *trials) runNamed(name string) error {
	for _, x := range named() {
		if x.Name == name {
			s.budget = math.MaxInt
			x.run(s)
			return s.ctx.Err()
		}
	}
	return unknown(name)
}

func unknown(name string) error {
	e := &UnknownError{Name: name}
	for _, x := range Strategies() {
		e.Known = append(e.Known, x.Name)
	}
	return e
}

// resident keeps weights, gradients and state on the device. Where memory is short, layers are computed again from their inputs.
func (s *trials) resident() {
	s.eachLevel("resident", func(o *order) *choice { return s.blank(o) })
}

// zeroOffload keeps the weights from a layer's forward to its backward and lets the host update them.
func (s *trials) zeroOffload() {
	s.eachLevel("zero-offload", func(o *order) *choice {
		x := s.blank(o)
		s.updateOnHost(x, every)
		x.moves[stateItem] = true // of layers that the host cannot update
		return x
	})
}

// layerWindow fetches the weights of a layer while the one before it computes, and drops them behind each use.
func (s *trials) layerWindow() {
	s.eachLevel("layer-window", func(o *order) *choice {
		x := s.blank(o)
		s.updateOnHost(x, every)
		x.moves[weightsItem], x.moves[stateItem], x.moves[gradientItem] = true, true, s.microbatches > 1
		x.policy = policy{window: 1, whole: true, most: 0}
		return x
	})
}

// greedySnake runs all microbatches of a layer before the next. Each share of the updates that is delayed to the next step is tried.
func (s *trials) greedySnake() {
	o := s.arrange(s.levels(s.microbatches)[len(s.levels(s.microbatches))-1])
	if o == nil {
		return
	}
	for share := 0.0; share <= 1 && !s.over(); share += 0.25 {
		x := s.blank(o)
		s.updateOnHost(x, every)
		x.moves[weightsItem], x.moves[stateItem], x.moves[activationItem] = true, true, true
		for i := range s.owners {
			if float64(i) >= (1-share)*float64(len(s.owners)) { // the last layers need their weights last
				x.delay[s.owners[i]] = len(o.ops)
			}
		}
		s.try(x, "greedysnake")
	}
}

// weightOffload moves weights alone; the device updates them.
func (s *trials) weightOffload() {
	s.eachLevel("weight-offload", func(o *order) *choice {
		x := s.blank(o)
		x.moves[weightsItem] = true
		return x
	})
}

// eachLevel tries a choice for each level of recomputation, the least first, until one fits and the next is slower.
func (s *trials) eachLevel(name string, choose func(*order) *choice) {
	for _, t := range s.levels(1) {
		o := s.arrange(t)
		if o == nil || s.over() || s.best != nil && o.total >= s.best.period {
			continue
		}
		if x := choose(o); x != nil {
			s.try(x, name)
		}
	}
}

// proTrain searches the four numbers on a grid.
func (s *trials) proTrain() {
	for _, swapped := range grid(s.n-1, 2) {
		for _, checkpointed := range grid(s.n-1-swapped, 4) {
			t := pattern{group: 1, segment: make([]int, s.n+1)}
			for l := swapped + 1; l <= swapped+checkpointed; l++ {
				t.segment[l] = l
			}
			if o := s.arrange(t); o != nil {
				s.proTrainOn(o, swapped)
			}
		}
	}
}

// proTrainOn searches the layers that stay and those that are fetched ahead.
func (s *trials) proTrainOn(o *order, swapped int) {
	for _, stay := range grid(len(s.owners), 4) {
		for _, ahead := range []int{1, 2, 4} {
			if s.over() || s.best != nil && o.total >= s.best.period {
				return
			}
			x := s.blank(o)
			s.updateOnHost(x, func(l int) bool { return slices.Index(s.owners, l) >= stay })
			x.moves = [itemKinds]bool{weightsItem: true, stateItem: true, activationItem: swapped > 0}
			x.policy = policy{window: ahead, whole: true, most: stay}
			x.forced = map[gapKey]hint{}
			for _, s := range o.leaves {
				key := gapKey{activationItem, s.activation + 1, s.microbatch, 0}
				if x.forced[key] = stays; s.activation <= swapped && s.activation > 0 {
					x.forced[key] = leaves
				}
			}
			s.try(x, "protrain")
		}
	}
}

// grid returns up to steps+1 numbers from 0 to most.
func grid(most, steps int) (numbers []int) {
	steps = min(steps, most)
	for k := 0; k <= steps; k++ {
		numbers = append(numbers, most*k/max(steps, 1))
	}
	return numbers
}
