package kernels

import "fmt"

// Alignment is the granule of every tensor's storage in bytes: one cache line, and enough for any vector load.
// A tensor's size in footprints is its bytes rounded up to it, so that alignment never costs unplanned memory.
const Alignment = 64

// DType is an element type.
type DType uint8

const (
	Float32 DType = iota
	Int32
)

// Size returns the bytes of one element.
func (d DType) Size() int64 { return 4 }

func (d DType) String() string {
	switch d {
	case Float32:
		return "float32"
	case Int32:
		return "int32"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Shape is a tensor's extents, outermost first. Images are channels last: N, H, W, C; vectors N, C.
type Shape []int

// Desc describes a dense tensor.
type Desc struct {
	Shape Shape
	DType DType
}

// F32 returns the description of a float32 tensor.
func F32(extents ...int) Desc { return Desc{Shape: extents, DType: Float32} }

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
