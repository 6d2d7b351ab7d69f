package importer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DType is the type of a tensor's elements, numbered as in ONNX.
type DType int64

// Types that are read.
const (
	Float32 DType = 1
	Int32   DType = 6
	Int64   DType = 7
	Bool    DType = 9
	Float64 DType = 11
)

// typeNames are the names of types in messages.
var typeNames = map[DType]string{
	Float32: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", Int32: "int32", Int64: "int64", 8: "string", Bool: "bool",
	10: "float16", Float64: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}

func (t DType) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", int64(t))
}

// Size returns the bytes of an element; 0: the type is not read.
func (t DType) Size() int64 {
	return map[DType]int64{Float32: 4, Int32: 4, Int64: 8, Bool: 1, Float64: 8}[t]
}

// Tensor is one of the file: its elements are little-endian, in the order of its axes.
type Tensor struct {
	Name   string
	Dims   []int64
	Stored []int64 // as the file has them, where axes of 1 have come or gone; nil: Dims
	DType  DType
	Raw    []byte
	Trains bool  // it is a parameter with a gradient, where the format tells
	Frozen bool  // it is a parameter without a gradient, likewise
	Err    error // the elements cannot be had: whoever reads the tensor is refused with this reason
}

// check refuses a tensor whose bytes are not there, or not as many as its shape and type say.
func (t *Tensor) check() error {
	if t.Err != nil {
		return t.Err
	}
	n, err := t.Elements()
	if err != nil {
		return err
	}
	switch size := t.DType.Size(); {
	case size == 0:
		return fmt.Errorf("tensor %q is of %v, which is not read: want float32", t.Name, t.DType)
	case int64(len(t.Raw)) != n*size:
		return fmt.Errorf("tensor %q of shape %v has %d bytes, want %d", t.Name, t.Dims, len(t.Raw), n*size)
	}
	return nil
}

// Elements returns how many a tensor has.
func (t *Tensor) Elements() (int64, error) {
	n := int64(1)
	for _, d := range t.Dims {
		if d < 0 || d > MostBytes || n*d > MostBytes {
			return 0, fmt.Errorf("tensor %q has a shape of %v", t.Name, t.Dims)
		}
		n *= d
	}
	return n, nil
}

// Float returns element i of a tensor of float32 whose bytes are all there.
func (t *Tensor) Float(i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(t.Raw[4*i:]))
}

// number returns element i of a tensor that was checked.
func (t *Tensor) number(i int) float64 {
	switch t.DType {
	case Float32:
		return float64(t.Float(i))
	case Int32:
		return float64(int32(binary.LittleEndian.Uint32(t.Raw[4*i:])))
	case Int64:
		return float64(int64(binary.LittleEndian.Uint64(t.Raw[8*i:])))
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(t.Raw[8*i:]))
	}
	return float64(t.Raw[i]) // Bool
}
