package pipeline

import "fmt"

// Kind is the kind of work. The set is closed: no other package adds one.
type Kind uint8

// The kinds of tasks, which plans list. A communication belongs to the boundary between a stage and the next one.
const (
	F  Kind = iota + 1 // forward of a stage
	B                  // backward of a stage; the input half of it where the stage has W tasks
	W                  // the weight half of a backward that is split
	CF                 // a_l out of the stage, l its last layer
	CB                 // δ_l into the stage
)

// The kinds of work that follow from a plan, which does not list it: updates, and what devices do about sums of gradients of replicas.
const (
	// Update is the updates that are due when a minibatch has ended in a stage. With messages between replicas the last minibatch of a round
	// speaks for all, with a flush that of the step. All devices of a stage have this work, at one place.
	Update     Kind = iota + CB + 1
	Reducing        // a device sends gradients, or sums so far
	Gathering       // a device sends a sum, or new weights
	Admitting       // a device lets a sum, or new weights, come: just before the other device sends them
	Owning          // a device adds what has come to its own gradients; of a part, its owner adds all that have come
	Completing      // a device has all new weights of a stage whose state is divided
	Joining         // a device adds up buckets together with all replicas at once, by a library
	CycleOp         // an op of a cyclic plan
)

var kindNames = [...]string{
	F: "F", B: "B", W: "W", CF: "CF", CB: "CB",
	Update: "update", Reducing: "reducing", Gathering: "gathering", Admitting: "admitting", Owning: "owning", Completing: "completing", Joining: "joining", CycleOp: "op",
}

// String returns the name of the kind; of tasks that in files.
func (k Kind) String() string {
	if k < F || k > CycleOp {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Communication reports whether the task runs on a link.
func (k Kind) Communication() bool { return k == CF || k == CB }

// ParseKind returns the kind of tasks of that name.
func ParseKind(name string) (Kind, bool) {
	for k := F; k <= CB; k++ {
		if kindNames[k] == name {
			return k, true
		}
	}
	return 0, false
}
