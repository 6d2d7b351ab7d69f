package measure

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"unsafe"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Batch is page-locked memory for a batch: images of all branches, as float32 or as the bits of tokens, and labels, or the bits of targets.
type Batch struct {
	Images []float32
	Labels []int32
}

// pages says where page-locked memory is used for what.
type pages struct {
	images, labels, scalars, chunk runtime.Span
	probe                          runtime.Span // of a measurement of the link
	bytes                          int64
}

// placeHost lays out the page-locked memory.
func (x *Exercise) placeHost(probe windows) (h pages) {
	take := func(bytes int64) runtime.Span {
		span := runtime.Span{Space: runtime.Host, Offset: h.bytes, Bytes: bytes}
		h.bytes += kernels.Align(bytes)
		return span
	}
	images := x.Model.Input.Bytes() * int64(x.Model.Wiring().Inputs())
	if x.madeUp() {
		images = min(images, executor.ChunkBytes)
	}
	h.images, h.labels = take(images), take(x.Static.Labels.Bytes)
	h.scalars, h.chunk, h.probe = take(kernels.ScalarsBytes), take(executor.ChunkBytes), take(2*probe.host)
	return h
}

// madeUp reports whether the input is: that of a window behind layer 1, and, as data sets have inputs of all branches at once,
// of one branch.
func (x *Exercise) madeUp() bool {
	return x.first > 0 || x.count < len(x.whole.Layers) && x.whole.Model.Wiring().Joins()
}

// fillBatch fills the batch. A window has labels that are made up, and, where no batch of the model has its input, an input that is.
func (x *Exercise) fillBatch(images, labels []byte, seed uint64, load func(Batch) error) error {
	b := Batch{unsafe.Slice((*float32)(unsafe.Pointer(&images[0])), len(images)/4), unsafe.Slice((*int32)(unsafe.Pointer(&labels[0])), len(labels)/4)}
	if x.madeUp() {
		x.fillInput(images, seed)
	} else if err := load(b); err != nil {
		return err
	}
	if x.count < len(x.whole.Layers) {
		x.fillLabels(b.Labels)
	}
	return nil
}

// fillLabels makes up labels of all classes, or targets of 0 and 1.
func (x *Exercise) fillLabels(labels []int32) {
	last := x.Model.Layers[len(x.Model.Layers)-1]
	for i := range labels {
		labels[i] = int32(i % x.Model.Classes)
		if last.Desc(models.GraphLabels).DType == kernels.Float32 {
			labels[i] = int32(math.Float32bits(float32(i % 2)))
		}
	}
}

// fillInput makes up an input, seeded: normal numbers, or tokens.
func (x *Exercise) fillInput(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	d := x.Model.Input.DType
	for size := int(d.Size()); len(b) >= size; b = b[size:] {
		switch d {
		case kernels.BFloat16:
			binary.LittleEndian.PutUint16(b, kernels.ToBFloat16(float32(r.NormFloat64())))
		case kernels.Int32:
			binary.LittleEndian.PutUint32(b, uint32(r.IntN(x.Model.Classes)))
		default:
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(r.NormFloat64())))
		}
	}
}
