package ref

import (
	"unsafe"

	"plimsoll/kernels"
)

// stage is an operand that the call works on as a float32 copy. It is a tensor in bfloat16, with each element
// rounded once, when the call has ended, or a factor of products that round.
type stage struct {
	at          *[]float32
	brain       []uint16
	read, write bool
	factor      []float32 // of a product, in place of brain: rounded as it is read
	round       func(float32) float32
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

// tensors are a call's operands as slices; those that it does not use are nil, and those in bfloat16 and rounded factors are
// there while the call runs.
type tensors struct {
	call    kernels.Call
	in      []kernels.Desc
	out     kernels.Desc
	x       [][]float32
	y       []float32
	dx      [][]float32
	dy      []float32
	saved   [][]float32
	params  [][]float32
	dparams [][]float32
	scalars []byte
	stages  []stage
	exact   []float32 // DY where products round it: the bias's gradient does not
}

// operand returns where an operand's slice belongs; nil for the scalars.
func (t *tensors) operand(o kernels.Operand) *[]float32 {
	switch o.Role {
	case kernels.X:
		return &t.x[o.Index]
	case kernels.Y:
		return &t.y
	case kernels.DX:
		return &t.dx[o.Index]
	case kernels.DY:
		return &t.dy
	case kernels.Save:
		return &t.saved[o.Index]
	case kernels.ParamRole:
		return &t.params[o.Index]
	case kernels.DParam:
		return &t.dparams[o.Index]
	}
	return nil
}

func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// doubles views memory that holds float64.
func doubles(b []byte) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// integers views memory that holds int32: labels, indices.
func integers(f []float32) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(f))), len(f))
}

// put writes v, or adds it when the call accumulates.
func put(dst *float32, v float64, add bool) {
	if add {
		v += float64(*dst)
	}
	*dst = float32(v)
}

// reset makes an operand ready for sums: zero unless the call accumulates.
func reset(dst []float32, add bool) {
	if !add {
		clear(dst)
	}
}

// masked returns dy where the output of a ReLU is positive, 0 where it is not, and NaN where it is none.
func masked(dy, y float32) float64 {
	switch {
	case y > 0:
		return float64(dy)
	case y != y:
		return float64(y)
	}
	return 0
}
