//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
)

// strangeOp and strangeUpdate are of nobody's kernels.
type (
	strangeOp     struct{ kernels.ReLU }
	strangeUpdate struct{ kernels.SGD }
)

// TestNoKernel: an op or update that the library has no kernel of is refused, with words that say what to do.
func TestNoKernel(t *testing.T) {
	t.Parallel()
	_, err := new(Library).Workspace(kernels.Call{Op: strangeOp{}, In: []kernels.Desc{kernels.F32(3)}})
	if !errors.Is(err, kernels.ErrNoKernel) || !strings.Contains(err.Error(), "relu: there is no kernel of it in kernels/cuda: add one as docs/adding.md says") {
		t.Errorf("an op: %v", err)
	}
	if _, _, err := rule(strangeUpdate{}); !errors.Is(err, kernels.ErrNoKernel) {
		t.Errorf("an update: %v", err)
	}
}
