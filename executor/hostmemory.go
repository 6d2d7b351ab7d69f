package executor

import "plimsoll/kernels"

// ChunkBytes is the size of the page-locked buffer through which weights go to a device and back.
const ChunkBytes = 1 << 20

// HostRoom returns the bytes that a limit of host memory, 0 for none, leaves to the copies of a plan.
func (w *Workload) HostRoom(limit int64) int64 {
	if limit == 0 {
		return 0
	}
	return max(limit-w.LeastHostBytes(), 1)
}

// LeastHostBytes returns the page-locked memory that is enough for a plan of one device that offloads nothing: two batches, scalars, the
// result and a buffer.
func (w *Workload) LeastHostBytes() (bytes int64) {
	images := w.Model.Input.Bytes()
	if w.StagedBytes() > 0 {
		images = w.Model.Input.Elements()
	}
	batch := kernels.Align(images*int64(w.Model.Wiring().Inputs())) + kernels.Align(w.Static.Labels.Bytes)
	return 2*batch + kernels.Align(kernels.ScalarsBytes) + kernels.Align(resultBytes) + kernels.Align(ChunkBytes)
}

// CheckHost refuses a limit of host memory, 0 for none, that no plan of the workload can keep. Error: *HostLimitError.
func (w *Workload) CheckHost(limit int64) error {
	if least := w.LeastHostBytes(); limit > 0 && least > limit {
		return &HostLimitError{Limit: limit, Needed: least, Unplanned: true}
	}
	return nil
}
