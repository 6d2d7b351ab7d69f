// Package executor knows what a model's step takes of a device's memory, to the byte: where every tensor of a sequence lies. Plan asks a
// strategy for a sequence whose layout fits.
//
// It measures no time: package measure does. It runs no plan: package pipeline does.
package executor

import (
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Workload is a model compiled for a kernel library and an optimizer: everything about memory that is known
// before a sequence is chosen.
type Workload struct {
	Model     *models.Model
	Optimizer kernels.Update
	Layers    []*models.Programs // the loss last
	// Carried has the programs that a pipeline evaluates with: those of the model without portals, where Model has some, else Layers.
	Carried []*models.Programs
	// UpdateWorkspaces are the scratch bytes that the updates of each layer take, one after the other.
	UpdateWorkspaces []int64
	Static           Static
	masters          masters
	narrow           masters // those whose gradients are in bfloat16, too
}

// masters are the parameters of each layer, by the offset in its Grads block, that forward and backward of a cyclic plan read in bfloat16.
// The optimizer's state then has float32 master copies.
type masters []map[int64]bool

// Target is a device and the kernel library that works on its memory.
type Target struct {
	Device  runtime.Device
	Library kernels.Library
	// Host updates weights in host memory with the bits of Library; nil: library.OpenHost's with one thread.
	Host kernels.Updater
}

// Compile compiles a model for libraries that need the same workspaces as lib. Errors: those of the model's ops and
// of the library.
func Compile(m *models.Model, lib kernels.Library, opt kernels.Update) (*Workload, error) {
	return workload(m, lib, opt, m.Compile)
}

// CompileUnsplit is Compile without the halves of backwards, which take long to lay out: for questions about sizes.
func CompileUnsplit(m *models.Model, lib kernels.Library, opt kernels.Update) (*Workload, error) {
	return workload(m, lib, opt, m.CompileUnsplit)
}

func workload(m *models.Model, lib kernels.Library, opt kernels.Update, compile func(kernels.Library) ([]*models.Programs, error)) (*Workload, error) {
	layers, err := compile(lib)
	if err != nil {
		return nil, err
	}
	return NewWorkload(m, lib, opt, layers)
}

// NewWorkload places the static memory of a compiled model, or of a window of one.
func NewWorkload(m *models.Model, lib kernels.Library, opt kernels.Update, layers []*models.Programs) (w *Workload, err error) {
	w = &Workload{Model: m, Optimizer: opt, Layers: layers, Carried: layers}
	w.UpdateWorkspaces, err = updateWorkspaces(m, lib, opt)
	w.Static = placeStatic(m, layers, opt, w.UpdateWorkspaces, nil)
	return w, err
}

// StaticBytes returns the bytes that stay in the arena throughout: weights, buffers, gradients of weights, and
// the optimizer's state and workspace. They include the batch's labels, scalars and result, and the next batch
// if Stage adds it.
func (w *Workload) StaticBytes() int64 { return w.Static.bytes }

// InputBytes returns the size of a_0 in the arena.
func (w *Workload) InputBytes() int64 { return w.Model.Input.Storage() }
