package pipeline

import (
	"fmt"
	"unsafe"

	"plimsoll/executor"
	"plimsoll/executor/internal/order"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// Feed supplies batches. Its functions return equal values for equal minibatches, at any time, and may be called concurrently. The first
// stage and the last one, and the devices of one stage, ask for a minibatch at different times. Images fills float32 N,H,W,C; images of
// branches that meet lie one branch after the other. Labels fills int32 N, or N,H,W if each pixel has a label. Labels of a model with
// targets are the bits of float32. In a flush plan a minibatch is a microbatch, numbered through all steps.
type Feed interface {
	Images(minibatch int, dst []float32) error
	Labels(minibatch int, dst []int32) error
}

// EarlyFeed is a feed that plans which run a sequence may ask for a batch early.
type EarlyFeed interface {
	Feed
	// Early reports whether the batch of a minibatch may be asked for while the step before it runs: a later run is to begin with it.
	Early(minibatch int) bool
}

// PixelFeed is a feed of images that are bytes, for workloads whose next batch waits on the device (executor.Workload.Stage). Images is not
// called then. A run asks for the batch behind its last one; an error of that is one of the run that begins with it.
type PixelFeed interface {
	Feed
	// Pixels fills N,H,W,C, as Images does.
	Pixels(minibatch int, dst []uint8) error
}

// checkFeed refuses, with ErrPlan, a feed without bytes for a workload whose next batch waits on the device.
func checkFeed(w *executor.Workload, feed Feed) error {
	if _, ok := feed.(PixelFeed); w.StagedBytes() > 0 && !ok {
		return fmt.Errorf("%w: the next batch waits on the device as bytes, and the feed has no Pixels: give one that has, or leave Workload.Stage out", order.ErrPlan)
	}
	return nil
}

// fillImages fills page-locked memory with the images of a minibatch of a feed: numbers, or bytes where the next batch waits on the device.
func fillImages(w *executor.Workload, feed Feed, minibatch int, dst []byte) error {
	if w.StagedBytes() > 0 {
		return feed.(PixelFeed).Pixels(minibatch, dst)
	}
	return feed.Images(minibatch, unsafe.Slice((*float32)(unsafe.Pointer(&dst[0])), len(dst)/4))
}

// imageBytes returns the bytes of one branch's images in page-locked memory.
func imageBytes(w *executor.Workload) int64 {
	if w.StagedBytes() > 0 {
		return w.Model.Input.Elements()
	}
	return w.Model.Input.Bytes()
}

// imageCopies returns the copies, each to a span from another one, that bring the images of a batch to each branch.
func imageCopies(w *executor.Workload, inputs []runtime.Span, batch runtime.Span) (all [][2]runtime.Span) {
	bytes := imageBytes(w)
	for k, to := range inputs {
		all = append(all, [2]runtime.Span{to.Part(0, bytes), batch.Part(int64(k)*bytes, bytes)})
	}
	return all
}

// lookup is the call that makes numbers of the images of one branch.
func lookup(w *executor.Workload) kernels.Lookup {
	input := w.Model.Input
	return kernels.Lookup{Elements: input.Elements(), Channels: input.Shape[len(input.Shape)-1]}
}
