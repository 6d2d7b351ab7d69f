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
	// ZeroWeights is ZeRO-3: ZeRO-2 whose weights are divided, too. A stage has one bucket. Between turns a device has its part of the weights
	// alone. A turn is forwards and backwards of one stage that follow each other on a device. Before it the other parts come from their
	// owners (all-gather), into one of two buffers that the device's turns take in turn.
	ZeroWeights Zero = 3
)

// ParseZero returns the division of a number. Errors: a number that is none.
func ParseZero(n int) (Zero, error) {
	if z := Zero(n); z >= ZeroNothing && z <= ZeroWeights {
		return z, nil
	}
	return 0, fmt.Errorf("zero is %d: 0 divides nothing, 1 the optimizer's state of a stage among its replicas, 2 their sums of gradients, too, 3 and their weights", n)
}

// DividedCopies returns how many copies of a stage's weights, of those that a plan counts for weights and gradients, replicas have parts of.
func (z Zero) DividedCopies() int { return max(0, int(z-ZeroShards)) }

// dividesGradients reports whether sums of gradients are divided among replicas.
func (z Zero) dividesGradients() bool { return z >= ZeroGradients }

// dividesWeights reports whether weights are divided among replicas.
func (z Zero) dividesWeights() bool { return z == ZeroWeights }
