package modeltest

import (
	"encoding/binary"
	"fmt"

	"plimsoll/kernels"
	"plimsoll/models"
)

// Chain is a whole model in memory, a frame for each layer, which remembers everything.
type Chain struct {
	Model  *models.Model
	Frames []*Frame
}

// NewChain returns a chain whose parameters have their initial values.
func NewChain(m *models.Model, programs []*models.Programs, seed uint64, lib func(Memory) kernels.Library) *Chain {
	c := &Chain{Model: m}
	for l := range programs {
		f := NewFrame(m, programs, l+1, lib)
		for _, p := range f.Layer.Params() {
			v := make([]float32, p.Desc.Elements())
			models.Init(p, seed, v)
			Put(f.Slice(p.Value), v)
		}
		c.Frames = append(c.Frames, f)
	}
	return c
}

// Step runs forward_all through the chain and backward through it again, and returns the loss. Every frame then holds
// its gradients.
func (c *Chain) Step(input []float32, labels []int32) (float32, error) {
	if err := c.Forward(input, labels); err != nil {
		return 0, err
	}
	last := c.Frames[len(c.Frames)-1]
	loss := Floats(last.Bytes(models.Output)[:4])[0]
	for i := len(c.Frames) - 1; i >= 0; i-- {
		if err := c.Backward(i, &c.Frames[i].Programs.Back); err != nil {
			return 0, err
		}
	}
	return loss, nil
}

// Forward runs forward_all through the chain.
func (c *Chain) Forward(input []float32, labels []int32) error {
	last := c.Frames[len(c.Frames)-1]
	PutValues(c.Model.Input.DType, c.Frames[0].Bytes(models.Input), input)
	for i, label := range labels {
		binary.LittleEndian.PutUint32(last.Bytes(models.Labels)[4*i:], uint32(label))
	}
	for i, f := range c.Frames {
		if i > 0 {
			copy(f.Bytes(models.Input), c.Frames[i-1].Bytes(models.Output))
		}
		if err := f.Run(&f.Programs.Save); err != nil {
			return fmt.Errorf("forward of %s: %w", f.Layer.Name, err)
		}
	}
	return nil
}

// Backward runs a backward, or its first half, of frame i with the gradient that the frame behind it has left.
func (c *Chain) Backward(i int, p *models.Program) error {
	f := c.Frames[i]
	if i < len(c.Frames)-1 {
		copy(f.Bytes(models.GradOutput), c.Frames[i+1].Bytes(models.GradInput))
	}
	if err := f.Run(p); err != nil {
		return fmt.Errorf("backward of %s: %w", f.Layer.Name, err)
	}
	return nil
}
