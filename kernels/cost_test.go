package kernels_test

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
		{kernels.Call{Op: kernels.Embedding{Vocabulary: 100, Width: 8}, In: []kernels.Desc{{Shape: kernels.Shape{2, 5}, DType: kernels.Int32}}}, 4 * (10 + 80 + 80), 0},
		{kernels.Call{Op: kernels.MaxPool{KernelH: 5, KernelW: 5}, In: []kernels.Desc{half}, Train: true}, 2*150 + 2*6 + 4*6, 0},
	} {
		bytes, operations, err := c.call.Cost()
		if err != nil || bytes != c.bytes || operations != c.operations {
			t.Errorf("%+v: %d bytes, %d operations, %v; want %d and %d", c.call, bytes, operations, err, c.bytes, c.operations)
		}
	}
	if _, _, err := (kernels.Call{Op: conv, In: []kernels.Desc{kernels.F32(1, 1, 1, 3)}}).Cost(); err == nil {
		t.Error("a window that does not fit has a cost")
	}
}

// TestUpdateCost: AdamW reads weight, gradient and two moments and writes all but the gradient; Muon's iteration of a 2x3 matrix has five
// steps of X*X^T, A*A and A*X.
func TestUpdateCost(t *testing.T) {
	matrix := kernels.Matrix{Rows: 2, Columns: 3}
	muon := kernels.Muon{Momentum: 0.9, Beta1: 0.9, Beta2: 0.9, Epsilon: 1}
	for _, c := range []struct {
		rule              kernels.Update
		of                kernels.UpdateOperands
		bytes, operations int64
	}{
		{kernels.AdamW{}, kernels.UpdateOperands{Elements: 10}, 7 * 40, 0},
		{kernels.SGD{}, kernels.UpdateOperands{Elements: 10}, 3 * 40, 0},
		{kernels.SGD{Momentum: 0.9}, kernels.UpdateOperands{Elements: 10}, 5 * 40, 0},
		{muon, kernels.UpdateOperands{Elements: 6, Matrix: matrix}, 5 * 24, 5 * (2*2*2*3 + 2*2*2*2 + 2*2*2*3)},
		{muon, kernels.UpdateOperands{Elements: 6}, 7 * 24, 0},
	} {
		if bytes, operations := kernels.UpdateCost(c.rule, c.of); bytes != c.bytes || operations != c.operations {
			t.Errorf("%T of %+v: %d bytes, %d operations; want %d and %d", c.rule, c.of, bytes, operations, c.bytes, c.operations)
		}
	}
}
