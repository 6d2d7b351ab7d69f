package pipelinetest

import (
	"fmt"
	"maps"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
)

// stage is a range of layers whose weights are updated together.
type stage struct {
	*trainer
	index    int
	layers   []*layer
	trained  []*parameter
	tied     []*parameter    // trained ones that are another layer's
	versions map[int]tensors // of the weights, by the number of updates that made them
	updates  int             // so far: the number of the latest version
	drift    drift           // for corrected backwards
	estimate tensors         // their weights; nil until the first update
	sums     map[int]tensors // of the gradients since the last update, by replica
	total    tensors         // of these, for the next update, with those of layers that share the parameters
}

// tensors are the values of all trained parameters of a stage, in the order of stage.trained.
type tensors [][]float32

// find collects the trained parameters of the layers.
func (s *stage) find() {
	for _, p := range s.params() {
		if p.Trained {
			s.trained = append(s.trained, p)
		}
	}
	for _, l := range s.layers {
		for _, p := range l.tied {
			if p.Trained {
				s.tied = append(s.tied, p)
			}
		}
	}
}

func (s *stage) params() (all []*parameter) {
	for _, l := range s.layers {
		all = append(all, l.params...)
	}
	return all
}

// reset gives the stage its initial weights, buffers and optimizer states.
func (s *stage) reset() error {
	s.updates, s.sums = 0, map[int]tensors{}
	s.drift, s.estimate = nil, nil
	s.versions = map[int]tensors{0: nil}
	for _, p := range s.params() {
		for _, state := range p.states {
			if err := s.upload(state, make([]float32, p.elements())); err != nil {
				return err
			}
		}
		if p.Trained {
			s.versions[0] = append(s.versions[0], p.start)
		} else if err := s.upload(p.value, p.start); err != nil {
			return err
		}
	}
	return nil
}

// install puts a version of the weights where the launches read them.
func (s *stage) install(version int) error {
	weights, ok := s.versions[version]
	if !ok {
		return fmt.Errorf("BUG: stage %d has versions %v, not %d", s.index, slices.Sorted(maps.Keys(s.versions)), version)
	}
	return s.put(weights)
}

func (s *stage) put(weights tensors) error {
	for i, p := range s.trained {
		if err := s.upload(p.value, weights[i]); err != nil {
			return err
		}
	}
	return nil
}

// forward runs the layers with a version of the weights.
func (s *stage) forward(version int) error {
	if err := s.install(version); err != nil {
		return err
	}
	for _, l := range s.layers {
		if err := s.enter(l); err != nil {
			return err
		}
		if err := s.run(l.forward); err != nil {
			return fmt.Errorf("forward of layer %s: %w", l.name, err)
		}
	}
	return nil
}

// enter copies what a layer reads from the layers before it.
func (r *trainer) enter(l *layer) error {
	for _, p := range l.inputs {
		if p.from == nil {
			continue
		}
		if err := r.copy(p.input, p.from.at(models.Output).Part(0, p.input.Bytes)); err != nil {
			return err
		}
	}
	return nil
}

// backward runs the backward of the layers with a version of the weights, on the saved sets of their forward. It adds
// the gradients to the sums of the replica since the last update.
func (s *stage) backward(version, replica int) error {
	if err := s.install(version); err != nil {
		return err
	}
	if s.estimate != nil {
		if err := s.put(s.estimate); err != nil {
			return err
		}
	}
	sum, add := s.sums[replica]
	if add {
		if err := s.setGradients(sum); err != nil {
			return err
		}
	}
	for _, l := range slices.Backward(s.layers) {
		if l.after != nil {
			from := l.after.gradient
			if err := s.copy(l.at(models.GradOutput).Part(0, from.Bytes), from); err != nil {
				return err
			}
		}
		launches := l.writing
		if add {
			launches = l.adding
		}
		if err := s.run(launches); err != nil {
			return fmt.Errorf("backward of layer %s: %w", l.name, err)
		}
	}
	var err error
	s.sums[replica], err = s.gradients()
	return err
}

func (s *stage) setGradients(sum tensors) error {
	for i, p := range slices.Concat(s.trained, s.tied)[:len(sum)] {
		if err := s.upload(p.grad, sum[i]); err != nil {
			return err
		}
	}
	return nil
}

// gradients reads those of all trained parameters, and behind them those of parameters that are another layer's.
func (s *stage) gradients() (all tensors, err error) {
	for _, p := range slices.Concat(s.trained, s.tied) {
		g := make([]float32, p.elements())
		if err := s.download(g, p.grad); err != nil {
			return nil, err
		}
		if err := finite("the gradient of "+p.Name, g); err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// allReduce sums the gradients of the replicas, in the order of their numbers. Then it adds those of parameters that are another layer's to the
// sums of their owners, which are among stages before this one or in it.
func (s *stage) allReduce(stages []*stage) {
	order := slices.Sorted(maps.Keys(s.sums))
	total := s.sums[order[0]]
	for _, r := range order[1:] {
		for i, g := range s.sums[r] {
			add(total[i], g)
		}
	}
	s.sums, s.total = nil, total[:len(s.trained)]
	for i, g := range total[len(s.trained):] {
		for _, of := range stages {
			if k := slices.Index(of.trained, s.tied[i].of); k >= 0 {
				add(of.total[k], g)
			}
		}
	}
}

// add adds numbers to others.
func add(to, from []float32) {
	for k, x := range from {
		to[k] += x
	}
}

// update makes the next version of the weights from the latest one and the gradients of a group of minibatches, scaled.
func (s *stage) update(scale float32) error {
	if err := s.install(s.updates); err != nil {
		return err
	}
	if err := s.setGradients(s.total); err != nil {
		return err
	}
	err := s.scalars(kernels.Scalars{
		LR: s.LR(s.index, s.updates), GradScale: scale, Update: uint64(s.updates),
	})
	if err != nil {
		return err
	}
	var next tensors
	for _, p := range s.trained {
		if err := s.run(p.update); err != nil {
			return fmt.Errorf("update of %s: %w", p.Name, err)
		}
		w := make([]float32, p.elements())
		if err := s.download(w, p.value); err != nil {
			return err
		}
		next = append(next, w)
	}
	if s.Corrected != nil && s.Corrected.Delays[s.index] > 0 {
		s.estimate = s.Corrected.follow(s.index, &s.drift, s.versions[s.updates], next)
	}
	s.updates++
	s.versions[s.updates], s.sums = next, map[int]tensors{}
	return nil
}

// forget drops the versions that no minibatch after m uses, but not the latest.
func (s *stage) forget(last map[int]int, m int) {
	maps.DeleteFunc(s.versions, func(version int, _ tensors) bool { return version != s.updates && last[version] <= m })
}
