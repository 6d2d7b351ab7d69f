//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"plimsoll/internal/cores"
	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/kernels/library"
	"plimsoll/runtime"
)

// hostUpdates are the CPU's updates of a GPU's host memory. Their bits are those of the GPU's updates.
type hostUpdates struct{ cpu *cpu.Library }

func openHost(memory library.HostMemory, o library.Options) (kernels.Updater, error) {
	if o.Threads == 0 {
		o.Threads = max(cores.Count()/2, 1)
	}
	l, err := cpu.New(memory, cpu.Options{Threads: o.Threads, Apart: true, Subnormals: true})
	return hostUpdates{l}, err
}

// UpdateWorkspace implements kernels.Updater. Errors: ErrNoKernel for a matrix of Muon.
func (h hostUpdates) UpdateWorkspace(u kernels.Update, m kernels.Matrix) (int64, error) {
	if err := kernels.CheckMatrix(u, m); err != nil {
		return 0, err
	}
	return 0, refuseMatrix(u, m)
}

// PrepareUpdate implements kernels.Updater. Errors: ErrNoKernel for a matrix of Muon.
func (h hostUpdates) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	for _, o := range all {
		if err := refuseMatrix(u, o.Matrix); err != nil {
			return nil, err
		}
	}
	return h.cpu.PrepareUpdate(u, all...)
}

// PrepareGuard implements kernels.Updater. Partial sums have the bits of the GPU's; a norm of many may differ, as a GPU adds them in
// another order.
func (h hostUpdates) PrepareGuard(g kernels.Guard, o kernels.GuardOperands) (runtime.Launch, error) {
	return h.cpu.PrepareGuard(g, o)
}

// Bandwidth implements kernels.Streamer.
func (h hostUpdates) Bandwidth(memory []byte) (float64, error) { return h.cpu.Bandwidth(memory) }

// refuseMatrix refuses an update by products, whose sums a GPU adds up in another order.
func refuseMatrix(u kernels.Update, m kernels.Matrix) error {
	if !m.Muons(u) {
		return nil
	}
	return fmt.Errorf("%s: %w on the host with the bits of a GPU: it multiplies matrices", u.Kind(), kernels.ErrNoKernel)
}
