package train

import (
	"crypto/sha256"
	"encoding/hex"
	"unsafe"

	"plimsoll/executor/checkpoint"
)

// Hash returns the SHA-256 of all weights and buffers in order, so that two runs can be compared by one word.
func (r *Runner) Hash() (string, error) { return hash(r) }

func hash(m checkpoint.Model) (string, error) {
	h := sha256.New()
	for _, t := range m.Tensors() {
		if t.Role != "weight" && t.Role != "buffer" {
			continue
		}
		values := make([]float32, t.Desc.Elements())
		if err := m.Read(t, values); err != nil {
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
