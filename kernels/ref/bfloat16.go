package ref

import (
	"unsafe"

	"plimsoll/kernels"
)

// stage is an operand that the call works on as a float32 copy: a tensor in bfloat16, whose every element is rounded
// once, when the call has ended; or a weight, rounded as it is read.
type stage struct {
	at          *[]float32
	brain       []uint16
	read, write bool
	weight      []float32 // of Conv2D or Linear, in place of brain
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
	v := make([]float32, max(len(s.brain), len(s.weight)))
	for i, w := range s.weight {
		v[i] = kernels.RoundBFloat16(w)
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

// rounded reports whether an operand is a weight that meets bfloat16 activations in a product.
func (t *tensors) rounded(o kernels.Operand) bool {
	return t.call.Op.Split() && t.in[0].DType == kernels.BFloat16 && o == kernels.Operand{Role: kernels.ParamRole}
}

func halves(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}
