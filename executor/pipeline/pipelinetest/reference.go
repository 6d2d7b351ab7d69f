// Package pipelinetest trains a model as a pipeline would, one minibatch after the other on one device: the truth with
// which a pipeline is compared, bit for bit.
//
// Which weights a minibatch sees in a stage is a formula of its number, taken from the papers (Program). The package has no schedule, no
// overlap, no plan and no code of the executor. Every layer has memory of its own, and tensors that pass from layer to layer are copied.
// Every version of the weights lies on the Go side and is uploaded before it is used. The package is slow on purpose, and for tests alone.
//
// The package takes three rules of a pipeline for granted:
//
//   - Each stage works on the minibatches in the order of their numbers, forward as well as backward.
//   - BatchNorm's running statistics are no weights, have one version, and move with every forward.
//   - No update is skipped.
package pipelinetest

import (
	"cmp"
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Reference runs sequential programs.
type Reference struct {
	*trainer
	stages []*stage
	images []float32
	labels []int32
	guard  guard
}

// New prepares a model on a device, which it reserves. Errors: ErrConfig, those of the model, the library and the device.
func New(c Config) (*Reference, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	programs, err := c.Model.Compile(c.Library)
	if err != nil {
		return nil, err
	}
	r := &Reference{
		trainer: &trainer{c, &memory{device: c.Device}},
		images:  make([]float32, c.Model.Input.Elements()*int64(c.Model.Wiring().Inputs())), labels: make([]int32, c.Model.Labels.Elements()),
	}
	b := newBinder(r.trainer, programs)
	for i, s := range c.Stages {
		st := &stage{trainer: r.trainer, index: i}
		for l := s.First; l <= s.Last; l++ {
			st.layers = append(st.layers, b.layer(l))
		}
		st.find()
		r.stages = append(r.stages, st)
	}
	if err := b.size(); err != nil {
		return nil, err
	}
	r.guard.place(b)
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, cmp.Or(b.bind(), r.guard.bind(b))
}

// Run trains on minibatches 0, 1, ..., from the initial weights, whatever has run before. Errors: ErrProgram; ErrNotFinite,
// because an executor would skip the update; those of the device.
func (r *Reference) Run(p Program, minibatches int) (*Outcome, error) {
	last, err := p.lastUses(len(r.stages), minibatches)
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	for _, st := range r.stages {
		if err := st.reset(); err != nil {
			return nil, err
		}
	}
	for i := range minibatches {
		m := p.turn(i)
		if err := r.train(p, m, i+1, out); err != nil {
			return nil, fmt.Errorf("%s, minibatch %d: %w", p.Name, m, err)
		}
		for s, st := range r.stages {
			st.forget(last[s], i)
		}
	}
	p.sort(out)
	return out, r.collect(out)
}

// train runs one minibatch through all stages and back, and the updates that are due when so many are done.
func (r *Reference) train(p Program, m, done int, out *Outcome) error {
	if err := r.feed(p, m); err != nil {
		return err
	}
	for i, st := range r.stages {
		if err := st.forward(p.Forward(i, m)); err != nil {
			return err
		}
	}
	if err := r.loss(out); err != nil {
		return err
	}
	for i, st := range slices.Backward(r.stages) {
		if err := st.backward(p.Backward(i, m), p.replica(i, m)); err != nil {
			return err
		}
	}
	for i, st := range r.stages { // an owner comes before its readers
		if done%p.group(i) == 0 {
			st.allReduce(r.stages)
		}
	}
	var clipped float32
	if r.MaxNorm > 0 && done%p.Group == 0 {
		var err error
		if clipped, err = r.guard.clip(r.trainer, r.stages, 1/float32(p.Group), out); err != nil {
			return err
		}
	}
	for i, st := range r.stages {
		if done%p.group(i) != 0 {
			continue
		}
		scale := 1 / float32(p.group(i))
		if r.MaxNorm > 0 {
			scale = clipped
		}
		if err := st.update(scale); err != nil {
			return err
		}
	}
	return nil
}

// feed uploads a minibatch and the key of its dropout.
func (r *Reference) feed(p Program, m int) error {
	r.Batch(m, r.images, r.labels)
	if err := r.show(); err != nil {
		return err
	}
	if err := r.upload(r.shared[models.Labels], r.labels); err != nil {
		return err
	}
	step, microbatch := p.key(m)
	return r.scalars(kernels.Scalars{Seed: r.Seed, Step: step, Microbatch: microbatch, GradScale: 1})
}

// show uploads the images of every branch.
func (r *Reference) show() error {
	each := int(r.Model.Input.Elements())
	for _, l := range r.stages[0].layers {
		for _, p := range l.inputs {
			if p.from != nil {
				continue
			}
			if err := r.upload(p.input, r.images[p.branch*each:(p.branch+1)*each]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Reference) final() *layer {
	layers := r.stages[len(r.stages)-1].layers
	return layers[len(layers)-1]
}

// loss reads what the last layer has computed.
func (r *Reference) loss(out *Outcome) error {
	value := make([]float32, 2) // as kernels.SoftmaxCrossEntropy leaves them
	if err := r.download(value, r.final().at(models.Output)); err != nil {
		return err
	}
	out.Losses, out.Correct = append(out.Losses, float64(value[0])), append(out.Correct, int(value[1]))
	return finite("the loss", value)
}

// collect reads what a run leaves.
func (r *Reference) collect(out *Outcome) error {
	for _, s := range r.stages {
		trained := 0
		for _, p := range s.params() {
			if p.Trained {
				out.Tensors = append(out.Tensors, Tensor{"weight", p.Name, slices.Clone(s.versions[s.updates][trained])})
				trained++
			} else if err := r.tensor(out, p.Role(), p, p.value); err != nil {
				return err
			}
			for k, state := range p.states {
				if err := r.tensor(out, fmt.Sprintf("state%d", k), p, state); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tensor reads one tensor from the arena.
func (r *Reference) tensor(out *Outcome, role string, p *parameter, at runtime.Span) error {
	values := make([]float32, p.elements())
	out.Tensors = append(out.Tensors, Tensor{role, p.Name, values})
	return r.download(values, at)
}
