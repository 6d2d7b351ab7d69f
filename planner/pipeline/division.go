package pipeline

import "fmt"

// Zero says what of a stage is divided among its replicas: the stages of ZeRO (Rajbhandari et al. 2020).
type Zero int

// The divisions.
const (
	ZeroNothing Zero = 0 // every replica has all: the default
	// ZeroShards is ZeRO-1. Each bucket of a stage on r devices that work is r parts of equal bytes, rounded down to whole bytes at their
	// ends. The device at place i of the line owns part i, and keeps the optimizer's state of that alone. The gradients of a part go
	// straight to its owner (reduce-scatter), which updates it, and the new weights from there to all others (all-gather).
	ZeroShards Zero = 1
	// ZeroGradients is ZeRO-2: ZeRO-1 whose gradients are divided, too. A round of a stage is one microbatch of each of its devices. When a
	// device has made gradients of a bucket, their parts go to their owners, which add them to what has come before, in the order of the
	// line. So a device has all gradients of a stage only until they have left.
	ZeroGradients Zero = 2
)

// ParseZero returns the division of a number. Errors: a number that is none.
func ParseZero(n int) (Zero, error) {
	if z := Zero(n); z >= ZeroNothing && z <= ZeroGradients {
		return z, nil
	}
	return 0, fmt.Errorf("zero is %d: 0 divides nothing, 1 the optimizer's state of a stage among its replicas, 2 their sums of gradients, too", n)
}
