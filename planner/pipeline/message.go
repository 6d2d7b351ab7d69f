package pipeline

import "fmt"

// SynchronizationKind is the content of a message between the replicas of a stage.
type SynchronizationKind uint8

// The kinds of messages between replicas, of a bucket of layers.
const (
	// Reduce carries the sum of the gradients of the replicas up to From, in the order of the stage's devices. To, the next one, adds its
	// own. If a bucket is sent in parts, Reduce carries the gradients of From alone to the owner of the part, which adds up all in that
	// order.
	Reduce SynchronizationKind = iota + 1
	Gather                     // the sum of all, to one that does not have it yet; of a part of a bucket new weights, or those for a turn
)

var synchronizationNames = [...]string{Reduce: "reduce", Gather: "gather"}

// String returns the name of the kind in files.
func (k SynchronizationKind) String() string {
	if k < Reduce || k > Gather {
		return fmt.Sprintf("SynchronizationKind(%d)", uint8(k))
	}
	return synchronizationNames[k]
}
