// Package executor knows what a model's step takes of a device: its memory, to the byte, where every tensor of a sequence lies, and, as a
// profile measures it, its time. Plan asks a strategy for a sequence whose layout fits.
//
// It runs no plan: package pipeline does.
package executor

import (
	"plimsoll/executor/internal/pack"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
)

// Workload is a model compiled for a kernel library and an optimizer: everything about memory that is known
// before a sequence is chosen.
type Workload struct {
	Model     *models.Model
	Optimizer kernels.Update
	Layers    []*models.Programs // the loss last
	// Carried are the programs of the model without portals, where Model has some: what a pipeline evaluates with.
	Carried []*models.Programs
	// UpdateWorkspaces are the scratch bytes that the updates of each layer take, one after the other.
	UpdateWorkspaces []int64
	static           static
	masters          masters
}

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
	return newWorkload(m, lib, opt, layers)
}

// newWorkload places the static memory of a compiled model.
func newWorkload(m *models.Model, lib kernels.Library, opt kernels.Update, layers []*models.Programs) (w *Workload, err error) {
	w = &Workload{Model: m, Optimizer: opt, Layers: layers}
	w.UpdateWorkspaces, err = updateWorkspaces(m, lib, opt)
	w.static = w.placeStatic(nil)
	return w, err
}

// StaticBytes returns what lies in the arena throughout: weights and buffers, their gradients, the optimizer's
// state and workspace, the batch's labels, scalars and result, and what Stage adds.
func (w *Workload) StaticBytes() int64 { return w.static.bytes }

// InputBytes returns the size of a_0 in the arena.
func (w *Workload) InputBytes() int64 { return w.Model.Input.Storage() }

// Chain returns the chain of the model with exact sizes, those of updates among them, and with all times 0.
func (w *Workload) Chain() *chain.Chain { return w.SizeUpdates(w.Model.Footprints(w.Layers)) }

// Unmeasured returns the chain with times that are made up, in proportion to the bytes that an op reads and writes, and a link: for
// questions whose answers depend on sizes alone.
func (w *Workload) Unmeasured() *chain.Chain { return bySizes(w.Chain()) }

// bySizes replaces the times of a chain, and its link.
func bySizes(c *chain.Chain) *chain.Chain {
	const bytesPerS = 1e10
	c.Bandwidth = bytesPerS
	c.ForgetContention()
	in := c.InputBytes
	for i := range c.Layers {
		l := &c.Layers[i]
		l.ForwardS = float64(in+l.SavedBytes+l.WeightBytes) / bytesPerS
		l.BackwardS = 2 * l.ForwardS
		in = l.OutputBytes
	}
	return c
}

// StoreAll returns the sequence that recomputes nothing: every forward_all, then every backward.
func (w *Workload) StoreAll() schedule.Sequence {
	n := len(w.Layers)
	seq := make(schedule.Sequence, 0, 2*n)
	for l := 1; l <= n; l++ {
		seq = append(seq, schedule.Op{Kind: schedule.ForwardAll, Layer: l})
	}
	for l := n; l >= 1; l-- {
		seq = append(seq, schedule.Op{Kind: schedule.Backward, Layer: l})
	}
	return seq
}

// PeakBytes returns what the arena must hold for a sequence without transfers: the static memory and the most that is
// alive at one op.
func (w *Workload) PeakBytes(seq schedule.Sequence) (int64, error) {
	t, err := w.record(seq, Sim{}, schedule.NoLimit)
	if err != nil {
		return 0, err
	}
	return w.StaticBytes() + pack.Live(t.items, len(seq)), nil
}

// record verifies a sequence and lays out the life of its blocks in an arena of limit bytes.
func (w *Workload) record(seq schedule.Sequence, sim Sim, limit int64) (*layout, error) {
	if err := schedule.Verify(w.Chain(), seq); err != nil {
		return nil, err
	}
	t, err := w.Timeline(seq, sim, limit-w.StaticBytes())
	if err != nil {
		return nil, err
	}
	return record(w.Model.Wiring(), w.Layers, w.InputBytes(), seq, t)
}
