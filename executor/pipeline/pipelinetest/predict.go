package pipelinetest

import (
	"fmt"
	"slices"

	"plimsoll/models"
)

// Predict gives the logits of minibatch m in evaluation mode, with the weights and buffers of an outcome: N,Classes, of tokens N,T,Classes.
func (r *Reference) Predict(with []Tensor, m int) ([]float32, error) {
	if err := r.load(with); err != nil {
		return nil, err
	}
	r.Batch(m, r.images, r.labels)
	if err := r.show(); err != nil {
		return nil, err
	}
	loss := r.final()
	var last *layer
	for _, st := range r.stages {
		for _, l := range st.layers {
			if l == loss {
				break
			}
			if err := r.enter(l); err != nil {
				return nil, err
			}
			if err := r.run(l.predict); err != nil {
				return nil, fmt.Errorf("prediction of layer %s: %w", l.name, err)
			}
			last = l
		}
	}
	logits := make([]float32, r.Model.Logits())
	return logits, r.download(logits, last.at(models.Output))
}

// load puts weights and buffers where the launches read them.
func (r *Reference) load(with []Tensor) error {
	for _, st := range r.stages {
		for _, p := range st.params() {
			i := slices.IndexFunc(with, func(t Tensor) bool { return t.Name == p.Name && t.Role == p.Role() })
			if i < 0 {
				return fmt.Errorf("%w: no weights of %s", ErrConfig, p.Name)
			}
			if err := r.upload(p.value, with[i].Values); err != nil {
				return err
			}
		}
	}
	return nil
}
