package ref

import (
	"unsafe"

	"plimsoll/kernels"
)

// stage is an operand that the call works on as a float32 copy: a tensor in bfloat16, whose every element is rounded
// once, when the call has ended; or a factor of products that round.
type stage struct {
	at          *[]float32
	brain       []uint16
	read, write bool
	factor      []float32 // of a product, in place of brain: rounded as it is read
	round       func(float32) float32
}

// staged returns run between the reading of the staged operands and their writing.
func (t *tensors) staged(run func() error) func() error {
	if len(t.stages) == 0 {
		return run
	}
	return func() error {
		for _, s := range t.stages {
			s.load()
		}
		err := run()
		for _, s := range t.stages {
			s.store()
		}
		return err
	}
}

func (s stage) load() {
	v := make([]float32, max(len(s.brain), len(s.factor)))
	for i, w := range s.factor {
		v[i] = s.round(w)
	}
	if s.read {
		for i, b := range s.brain {
			v[i] = kernels.FromBFloat16(b)
		}
	}
	*s.at = v
}

func (s stage) store() {
	if s.write {
		for i, v := range *s.at {
			s.brain[i] = kernels.ToBFloat16(v)
		}
	}
	*s.at = nil
}

// dtype returns the type of an operand's elements.
func (t *tensors) dtype(o kernels.Operand) kernels.DType {
	switch o.Role {
	case kernels.X, kernels.DX:
		return t.in[o.Index].DType
	case kernels.Y, kernels.DY:
		return t.out.DType
	}
	return kernels.Float32 // or int32 that is saved: as long
}

// rounding returns how products round an operand in float32 as they read it: a weight that meets bfloat16 activations, or
// any factor in TF32; nil: not at all.
func (t *tensors) rounding(o kernels.Operand) func(float32) float32 {
	weight := o == kernels.Operand{Role: kernels.ParamRole}
	switch {
	case t.call.Op.Split() && t.in[0].DType == kernels.BFloat16 && weight:
		return kernels.RoundBFloat16
	case kernels.UsesTF32(t.call.Op) && (weight || o.Role == kernels.X || o.Role == kernels.DY):
		return kernels.RoundTF32
	}
	return nil
}

func halves(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}
