package pipelinetest

import (
	"encoding/binary"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// guard measures and clips the gradients of all stages together, as those of one device.
type guard struct {
	kernels.GuardOperands
	launch []runtime.Launch
}

// place gives it memory.
func (g *guard) place(b *binder) {
	o := &g.GuardOperands
	for _, l := range b.layers {
		for _, p := range l.params {
			if p.Trained {
				o.Grads = append(o.Grads, p.grad)
			}
		}
	}
	o.Partials, o.Norm, o.Scalars = b.take(8*o.Parts()), b.take(kernels.Float32.Size()), b.shared[models.Scalars]
}

// bind prepares its launch.
func (g *guard) bind(b *binder) error {
	if b.MaxNorm == 0 {
		return nil
	}
	launch, err := b.Library.PrepareGuard(kernels.Guard{MaxNorm: b.MaxNorm}, g.GuardOperands)
	g.launch = []runtime.Launch{launch}
	return err
}

// clip returns the scale of clipped gradients, in place of the one without clipping, and keeps their norm.
func (g *guard) clip(r *trainer, stages []*stage, scale float32, out *Outcome) (float32, error) {
	for _, s := range stages {
		if err := s.setGradients(s.total); err != nil {
			return 0, err
		}
	}
	if err := r.scalars(kernels.Scalars{GradScale: scale}); err != nil {
		return 0, err
	}
	if err := r.run(g.launch); err != nil {
		return 0, err
	}
	norm, scaled := make([]float32, 1), make([]float32, kernels.ScalarsBytes/4)
	if err := r.download(norm, g.Norm); err != nil {
		return 0, err
	}
	out.Norms = append(out.Norms, float64(norm[0]))
	err := r.download(scaled, g.Scalars)
	bytes, _ := binary.Append(nil, binary.LittleEndian, scaled) // floats have a size
	return kernels.GetScalars(bytes).GradScale, err
}
