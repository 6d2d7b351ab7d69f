// Package safetensors reads and writes files of named tensors in the safetensors format. A file has eight bytes with the length of a header,
// a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}, and the elements of the tensors. All numbers are
// little endian; the outermost axis is first. Before a reader takes anything, it checks the whole header against the size of the file:
// every byte after the header belongs to exactly one tensor. The package knows nothing of models.
package safetensors

import (
	"errors"
	"fmt"
	"math/bits"
)

// MaxHeader bounds the bytes of a header, as the format's reference implementation does.
const MaxHeader = 100_000_000

const metadataName = "__metadata__"

// DType is an element type by its name in a file.
type DType string

// The element types that can be read.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"  // IEEE 754 binary16
	BF16 DType = "BF16" // the upper half of a float32
	I64  DType = "I64"
	I32  DType = "I32"
	U8   DType = "U8"
)

// Size returns the bytes of one element, 0 for an unknown type.
func (d DType) Size() int64 {
	switch d {
	case F64, I64:
		return 8
	case F32, I32:
		return 4
	case F16, BF16:
		return 2
	case U8:
		return 1
	}
	return 0
}

// Info describes a tensor.
type Info struct {
	Name  string
	DType DType
	Shape []int // outermost first; empty for a single number
}

// Bytes returns the bytes of the tensor's elements. Errors: an unknown element type, a negative extent, more bytes than an
// int64 counts.
func (t Info) Bytes() (int64, error) {
	size := t.DType.Size()
	if size == 0 {
		return 0, fmt.Errorf("dtype is %q, which is none of F64, F32, F16, BF16, I64, I32, U8", string(t.DType))
	}
	n := uint64(size)
	for _, extent := range t.Shape {
		if extent < 0 {
			return 0, fmt.Errorf("shape is %v, with a negative extent", t.Shape)
		}
		over, low := bits.Mul64(n, uint64(extent))
		if over != 0 || low > 1<<62 {
			return 0, fmt.Errorf("shape is %v, which is too large", t.Shape)
		}
		n = low
	}
	return int64(n), nil
}

// ErrFormat is in every error about a file that breaks the format's rules or is incomplete.
var ErrFormat = errors.New("not a valid safetensors file")

// Error says what is wrong with a file; Err names field and value.
type Error struct {
	File   string // empty while it is written
	Tensor string // empty when it is about the file as a whole
	Err    error
}

func (e *Error) Error() string {
	var place string
	if e.File != "" {
		place = e.File + ": "
	}
	if e.Tensor != "" {
		place += fmt.Sprintf("tensor %q: ", e.Tensor)
	}
	return place + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }
