package executor

import (
	"encoding/binary"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// activation copies the first len(dst) elements of a tensor of type t at the start of a block to dst, as float32.
func (e *Executor) activation(block runtime.Span, t kernels.DType, dst []float32) error {
	src := block.Part(0, int64(len(dst))*t.Size())
	if t != kernels.BFloat16 {
		return e.download(src, dst)
	}
	raw := asBytes(dst)[len(dst)*2:]
	if err := e.downloadBytes(src, raw); err != nil {
		return err
	}
	widen(dst, raw)
	return nil
}

// widen decodes bfloat16 elements that lie in the upper half of dst's own memory: element i is written below all that
// are still to be read.
func widen(dst []float32, raw []byte) {
	for i := range dst {
		dst[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(raw[2*i:]))
	}
}
