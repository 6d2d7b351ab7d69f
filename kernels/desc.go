package kernels

import (
	"errors"
	"fmt"

	"plimsoll/internal/names"
)

// Alignment is the granule of every tensor's storage in bytes: one cache line, and enough for any vector load.
// A tensor's size in footprints is its bytes rounded up to it, so that alignment never costs unplanned memory.
const Alignment = 64

// DType is an element type.
//
// Activations and their gradients are Float32 or BFloat16. Everything else stays Float32 whatever their type: parameters and
// their gradients, buffers, the optimizer's state, the loss, and the statistics that norms, attention and the loss save. So the
// weights of a bfloat16 model are its master weights. A call may have a weight that it rounds in BFloat16: see Call.Weight.
//
// On BFloat16 an op computes as on equal values in Float32, with sums in Float32 at least. It rounds each element of Y
// or DX once, when it is complete. Conv2D and Linear round their weight, not their bias, before they multiply, as
// tensor cores want it.
//
// TF32 is how a model in float32 multiplies. No tensor is of this type: see Stored, InTF32.
type DType uint8

const (
	Float32 DType = iota
	Int32
	BFloat16 // the upper half of a float32: 8 bits of exponent, 7 of fraction
	TF32     // float32 in memory, whose products keep 10 bits of fraction of their factors
)

// dtypes are the names of the types, by type.
var dtypes = [...]string{Float32: "float32", Int32: "int32", BFloat16: "bfloat16", TF32: "tf32"}

// Size returns the bytes of one element.
func (d DType) Size() int64 {
	if d == BFloat16 {
		return 2
	}
	return 4
}

// Float reports whether activations can be of this type.
func (d DType) Float() bool { return d == Float32 || d == BFloat16 }

// Stored returns the type of the tensors of a model in this type.
func (d DType) Stored() DType {
	if d == TF32 {
		return Float32
	}
	return d
}

func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d]
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// ParseFloat returns the type of a model that a name stands for: float32, tf32, bfloat16 or, short, bf16.
func ParseFloat(name string) (DType, error) {
	switch name {
	case "float32":
		return Float32, nil
	case "tf32":
		return TF32, nil
	case "bfloat16", "bf16":
		return BFloat16, nil
	}
	return 0, names.Unknown(errors.New("unknown element type"), name, FloatNames())
}

// FloatNames are the names that ParseFloat knows.
func FloatNames() []string { return []string{"float32", "tf32", "bfloat16", "bf16"} }

// Shape is a tensor's extents, outermost first. Images are channels last: N, H, W, C; vectors N, C.
type Shape []int

// Desc describes a dense tensor.
type Desc struct {
	Shape Shape
	DType DType
}

// F32 returns the description of a float32 tensor.
func F32(extents ...int) Desc { return Desc{Shape: extents, DType: Float32} }

// As returns the description of a tensor of the same shape and another type.
func (d Desc) As(t DType) Desc { return Desc{Shape: d.Shape, DType: t} }

// MaxExtent and MaxElements bound shapes and attributes, so that no size overflows.
const (
	MaxExtent   = 1<<31 - 1
	MaxElements = 1 << 48
)

// check refuses extents below 1 and tensors that are too large.
func (d Desc) check() error {
	n := int64(1)
	for _, e := range d.Shape {
		if e < 1 || e > MaxExtent {
			return fmt.Errorf("%v: every extent must be from 1 to %d", d, MaxExtent)
		}
		if n *= int64(e); n > MaxElements {
			return fmt.Errorf("%v has more than %d elements", d, int64(MaxElements))
		}
	}
	return nil
}

// Elements returns the number of elements.
func (d Desc) Elements() int64 {
	n := int64(1)
	for _, e := range d.Shape {
		n *= int64(e)
	}
	return n
}

// Bytes returns the bytes of the elements.
func (d Desc) Bytes() int64 { return d.Elements() * d.DType.Size() }

// Storage returns the bytes that the tensor takes in memory: Bytes rounded up to Alignment.
func (d Desc) Storage() int64 { return Align(d.Bytes()) }

// Align rounds n up to Alignment.
func Align(n int64) int64 { return (n + Alignment - 1) &^ (Alignment - 1) }

// Equal reports whether both describe the same shape and type.
func (d Desc) Equal(e Desc) bool {
	if d.DType != e.DType || len(d.Shape) != len(e.Shape) {
		return false
	}
	for i := range d.Shape {
		if d.Shape[i] != e.Shape[i] {
			return false
		}
	}
	return true
}

func (d Desc) String() string { return fmt.Sprintf("%v%v", d.DType, []int(d.Shape)) }

// head returns all axes but the last.
func head(d Desc) Shape { return d.Shape[:len(d.Shape)-1] }

func channels(d Desc) int { return d.Shape[len(d.Shape)-1] }

// sample returns the elements of one sample.
func sample(d Desc) int64 { return d.Elements() / int64(d.Shape[0]) }
