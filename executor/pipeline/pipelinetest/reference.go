// Package pipelinetest trains a model as a pipeline would, one minibatch after the other on one device: the truth with
// which a pipeline is compared, bit for bit.
//
// Which weights a minibatch sees in a stage is a formula of its number, taken from the papers (Program). There is no
// schedule here, no overlap, no plan and no code of the executor: every layer has memory of its own, what passes from
// layer to layer is copied, every version of the weights lies on the Go side and is uploaded before it is used. It is
// slow on purpose, and for tests alone.
//
// What it takes from a pipeline for granted: each stage works on the minibatches in the order of their numbers, forward
// as well as backward; BatchNorm's running statistics are no weights, have one version, and move with every forward; no
// update is skipped.
package pipelinetest

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Stage is a range of layers, counted from 1, both ends included.
type Stage struct{ First, Last int }

// Config is what is trained, and how. A minibatch has the model's batch; it is the unit that flows through a pipeline, so
// in a program that flushes it is a microbatch.
type Config struct {
	Model     *models.Model
	Device    runtime.Device // not reserved yet; nothing else may use it before it is closed, which is the caller's to do
	Library   kernels.Library
	Optimizer kernels.Update
	Seed      uint64 // of the weights and of dropout
	// Stages divide the layers; the last one ends with the loss.
	Stages []Stage
	// LR is the learning rate of an update of a stage, both counted from 0. PipeMare's differs from stage to stage.
	LR func(stage, update int) float32
	// Corrected, if not nil, are the weights of backwards, in place of the latest. Other programs than Latest have none.
	Corrected *Corrected
	// MaxNorm clips the gradients of all stages together before their updates, which all have one group; 0: no clipping.
	MaxNorm float32
	// Batch fills a minibatch, counted from 0: images N,H,W,C, labels N. The same number gives the same minibatch.
	Batch func(minibatch int, images []float32, labels []int32)
}

// Reference runs sequential programs.
type Reference struct {
	Config
	*memory
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
		Config: c, memory: &memory{device: c.Device},
		images: make([]float32, c.Model.Input.Elements()*int64(c.Model.Wiring().Inputs())), labels: make([]int32, c.Model.Labels.Elements()),
	}
	b := newBinder(r, programs)
	for i, s := range c.Stages {
		st := &stage{Reference: r, index: i}
		for l := s.First; l <= s.Last; l++ {
			st.layers = append(st.layers, b.layer(l))
		}
		st.find()
		r.stages = append(r.stages, st)
	}
	if err := b.size(); err != nil {
		return nil, err
	}
	b.placeGuard()
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, b.bind()
}

func (c *Config) check() error {
	switch {
	case c.Model == nil || c.Device == nil || c.Library == nil || c.Optimizer == nil || c.LR == nil || c.Batch == nil:
		return fmt.Errorf("%w: Model, Device, Library, Optimizer, LR and Batch must all be given", ErrConfig)
	case c.Model.Wiring().Joins() && len(c.Stages) > 1:
		return fmt.Errorf("%w: model %s has branches %v, and %d stages are for a chain", ErrConfig, c.Model.Name, c.Model.Branches, len(c.Stages))
	}
	next := 1
	for i, s := range c.Stages {
		if s.First != next || s.Last < s.First {
			return fmt.Errorf("%w: stage %d has layers %d to %d, want it to begin with layer %d", ErrConfig, i, s.First, s.Last, next)
		}
		next = s.Last + 1
	}
	if loss := len(c.Model.Layers); next != loss+1 {
		return fmt.Errorf("%w: the stages end with layer %d, want the loss, layer %d", ErrConfig, next-1, loss)
	}
	return nil
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
	var clipped float32
	if r.MaxNorm > 0 && done%p.Group == 0 {
		var err error
		if clipped, err = r.clip(1/float32(p.Group), out); err != nil {
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
