package pipelinetest

import (
	"encoding/binary"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// memory is the arena of a device, given out from the bottom and never taken back, with a buffer in host memory through
// which everything passes.
type memory struct {
	device runtime.Device
	stream runtime.Stream
	arena  int64 // bytes given out
	buffer int64 // bytes of the largest tensor that passes
	shared [models.Scalars + 1]runtime.Span
}

// take gives out arena memory.
func (a *memory) take(bytes int64) runtime.Span {
	s := runtime.Span{Offset: a.arena, Bytes: bytes}
	a.arena += kernels.Align(bytes)
	return s
}

// passes notes that a tensor of so many bytes passes through the buffer.
func (a *memory) passes(bytes int64) { a.buffer = max(a.buffer, bytes) }

// open reserves what has been given out.
func (a *memory) open() (err error) {
	if err := a.device.Reserve(a.arena, kernels.Align(a.buffer)); err != nil {
		return err
	}
	a.stream, err = a.device.NewStream("sequential")
	return err
}

// window returns the part of the buffer that is as long as a span, and its bytes.
func (a *memory) window(s runtime.Span) (runtime.Span, []byte, error) {
	w := runtime.Span{Space: runtime.Host, Bytes: s.Bytes}
	b, err := a.device.HostBytes(w)
	return w, b, err
}

// upload writes values, a slice of numbers, to the arena, from the start of dst.
func (a *memory) upload(dst runtime.Span, values any) error {
	dst.Bytes = int64(binary.Size(values))
	w, b, err := a.window(dst)
	if err != nil {
		return err
	}
	if _, err := binary.Encode(b, binary.LittleEndian, values); err != nil {
		return err
	}
	return a.copy(dst, w)
}

// download reads the first len(dst) numbers of src.
func (a *memory) download(dst []float32, src runtime.Span) error {
	src.Bytes = int64(len(dst)) * kernels.Float32.Size()
	w, b, err := a.window(src)
	if err != nil {
		return err
	}
	if err := a.copy(w, src); err != nil {
		return err
	}
	_, err = binary.Decode(b, binary.LittleEndian, dst)
	return err
}

// copy copies and waits.
func (a *memory) copy(dst, src runtime.Span) error {
	if err := a.stream.Copy(dst, src); err != nil {
		return err
	}
	return a.stream.Synchronize()
}

// scalars writes the scalars that the next launches read.
func (a *memory) scalars(s kernels.Scalars) error {
	b := make([]byte, kernels.ScalarsBytes)
	s.Put(b)
	return a.upload(a.shared[models.Scalars], b)
}

// run launches and waits.
func (a *memory) run(launches []runtime.Launch) error {
	for _, l := range launches {
		if err := a.stream.Launch(l); err != nil {
			return err
		}
	}
	return a.stream.Synchronize()
}
