package train

import (
	"crypto/sha256"
	"encoding/hex"
	"unsafe"
)

// Hash returns the SHA-256 of all weights and buffers in order, so that two runs can be compared by one word.
func (r *Runner) Hash() (string, error) {
	h := sha256.New()
	for _, t := range r.Tensors() {
		if t.Role != "weight" && t.Role != "buffer" {
			continue
		}
		values := make([]float32, t.Desc.Elements())
		if err := r.Read(t, values); err != nil {
			return "", err
		}
		h.Write(Bytes(values))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Bytes returns the memory of some numbers, for comparisons to the bit.
func Bytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), len(f)*4)
}
