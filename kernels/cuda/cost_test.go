package cuda

import (
	"testing"

	"plimsoll/kernels"
)

// TestCost: worked out by hand.
func TestCost(t *testing.T) {
	x := kernels.F32(2, 5, 5, 3)
	half := kernels.Desc{Shape: x.Shape, DType: kernels.BFloat16}
	conv := kernels.Conv2D{Out: 4, KernelH: 3, KernelW: 3, Bias: true} // 2x3x3x4 outputs, 4x3x3x3 weights
	for _, c := range []struct {
		call              kernels.Call
		bytes, operations int64
	}{
		{kernels.Call{Op: conv, In: []kernels.Desc{x}}, 4 * (150 + 108 + 4 + 72), 2 * 72 * 27},
		{kernels.Call{Op: conv, In: []kernels.Desc{half}}, 2*150 + 4*(108+4) + 2*72, 2 * 72 * 27},
		{kernels.Call{Op: conv, In: []kernels.Desc{x}, Pass: kernels.BackwardInput}, 4 * (72 + 108 + 150), 2 * 72 * 27},
		{kernels.Call{Op: conv, In: []kernels.Desc{x}, Pass: kernels.BackwardParams, AddParams: true}, 4 * (72 + 150 + 2*(108+4)), 2 * 72 * 27},
		{kernels.Call{Op: kernels.Linear{Out: 7}, In: []kernels.Desc{x}}, 4 * (150 + 7*75 + 14), 2 * 14 * 75},
		{kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{half}, Pass: kernels.Backward, AddDX: []bool{true}}, 2 * (2 + 2) * 150, 0},
		{kernels.Call{Op: kernels.MaxPool{KernelH: 5, KernelW: 5}, In: []kernels.Desc{half}, Train: true}, 2*150 + 2*6 + 4*6, 0},
	} {
		bytes, operations, err := Cost(c.call)
		if err != nil || bytes != c.bytes || operations != c.operations {
			t.Errorf("%+v: %d bytes, %d operations, %v; want %d and %d", c.call, bytes, operations, err, c.bytes, c.operations)
		}
	}
	if _, _, err := Cost(kernels.Call{Op: conv, In: []kernels.Desc{kernels.F32(1, 1, 1, 3)}}); err == nil {
		t.Error("a window that does not fit has a cost")
	}
}
