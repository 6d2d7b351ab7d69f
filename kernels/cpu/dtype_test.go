package cpu

import (
	"errors"
	"testing"

	"plimsoll/kernels"
)

// Calls in bfloat16 are refused before anything is bound.
func TestBFloat16IsRefused(t *testing.T) {
	lib, err := New(nil, Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	image, labels := kernels.F32(2, 4, 4, 6).As(kernels.BFloat16), kernels.Desc{Shape: kernels.Shape{2}, DType: kernels.Int32}
	for _, c := range []kernels.Call{
		{Op: kernels.Conv2D{Out: 2, KernelH: 1, KernelW: 1}, In: []kernels.Desc{image}},
		{Op: kernels.Linear{Out: 2}, In: []kernels.Desc{image}, Pass: kernels.BackwardParams},
		{Op: kernels.Add{}, In: []kernels.Desc{image, image}},
		{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(2, 3).As(kernels.BFloat16), labels}},
		{Op: kernels.Cast{To: kernels.BFloat16}, In: []kernels.Desc{kernels.F32(3)}},
		{Op: kernels.Cast{}, In: []kernels.Desc{kernels.F32(3).As(kernels.BFloat16)}, Pass: kernels.Backward},
	} {
		if _, err := lib.Workspace(c); !errors.Is(err, kernels.ErrType) {
			t.Errorf("workspace of %s: %v", c.Op.Kind(), err)
		}
		if _, err := lib.Prepare(c, kernels.Operands{}); !errors.Is(err, kernels.ErrType) {
			t.Errorf("%s: %v", c.Op.Kind(), err)
		}
	}
}
