package cpu

import (
	"errors"
	"testing"

	"plimsoll/kernels"
)

// strangeOp and strangeUpdate are of nobody's kernels.
type (
	strangeOp     struct{ kernels.ReLU }
	strangeUpdate struct{ kernels.SGD }
)

// TestNoKernel: an op or update that the library has no kernel of is refused.
func TestNoKernel(t *testing.T) {
	t.Parallel()
	l := newLibrary(t, Plain, 1)
	if _, err := l.Workspace(kernels.Call{Op: strangeOp{}, In: []kernels.Desc{kernels.F32(3)}}); !errors.Is(err, kernels.ErrNoKernel) {
		t.Errorf("an op: %v", err)
	}
	b := l.newBuilder(nil)
	if b.update(strangeUpdate{}, kernels.UpdateOperands{Elements: 3}); !errors.Is(b.err, kernels.ErrNoKernel) {
		t.Errorf("an update: %v", b.err)
	}
}
