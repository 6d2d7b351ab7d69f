package kernels

import (
	"encoding/json"
	"plimsoll/runtime"
)

// Library launches ops on one kind of device. Two calls of the same launch on the same bytes give the same bits.
type Library interface {
	Name() string
	// Workspace returns the exact scratch bytes that the call needs while it runs, 0 for none.
	Workspace(c Call) (int64, error)
	// Prepare binds a call to memory of the device. Preparing may allocate; launching does not.
	Prepare(c Call, o Operands) (runtime.Launch, error)
	Updater
	// PrepareLookup binds what normalizes images that travel as bytes.
	PrepareLookup(l Lookup, o LookupOperands) (runtime.Launch, error)
	// PrepareMoments binds what moves a BatchNorm's running statistics once for several batches.
	PrepareMoments(m Moments, o MomentsOperands) (runtime.Launch, error)
}

// Updater makes optimizer updates, and guards them.
type Updater interface {
	// UpdateWorkspace returns the exact scratch bytes that an update of a parameter needs while it runs, 0 for none.
	UpdateWorkspace(u Update, m Matrix) (int64, error)
	// PrepareUpdate binds one optimizer update of parameters, with the same scalars, to memory.
	PrepareUpdate(u Update, all ...UpdateOperands) (runtime.Launch, error)
	// PrepareGuard binds what measures, clips and checks all gradients before the updates.
	PrepareGuard(g Guard, o GuardOperands) (runtime.Launch, error)
}

// Streamer is an Updater that knows how fast the memory is that it works on.
type Streamer interface {
	// Bandwidth returns the bytes that all cores together read and write in a second in STREAM's triad, a = b + s*c, over a memory, which
	// it overwrites. A memory that caches hold makes it too large.
	Bandwidth(memory []byte) (bytesPerS float64, err error)
}

// Chooser is a library that picks between algorithms by measuring them. A profile keeps its choices, and processes that train
// together make the same ones.
type Chooser interface {
	// Chosen returns the choices so far, to be written as JSON; nil when there was nothing to choose.
	Chosen() any
	// ExportChoices returns all choices that this process has made, for library.Options of another process.
	ExportChoices() (json.RawMessage, error)
}
