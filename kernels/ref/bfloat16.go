package ref

import (
	"unsafe"

	"plimsoll/kernels"
)

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

// dtype returns the type of an operand's elements.
func (t *tensors) dtype(o kernels.Operand) kernels.DType {
	switch o.Role {
	case kernels.X, kernels.DX:
		return t.in[o.Index].DType
	case kernels.Y, kernels.DY:
		return t.out.DType
	case kernels.ParamRole:
		if o.Index == 0 {
			return t.call.Weight
		}
	}
	return kernels.Float32 // or int32 that is saved: as long
}

// rounding returns how products round an operand in float32 as they read it. That is a weight that meets bfloat16
// activations, or any factor in TF32 of an op that splits. With nil products do not round.
func (t *tensors) rounding(o kernels.Operand) func(float32) float32 {
	weight := o == kernels.Operand{Role: kernels.ParamRole}
	switch {
	case t.call.RoundsWeight() && weight:
		return kernels.RoundBFloat16
	case kernels.UsesTF32(t.call.Op) && t.call.Op.Split() && (weight || o.Role == kernels.X || o.Role == kernels.DY):
		return kernels.RoundTF32
	}
	return nil
}

func halves(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}
