package train

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"unsafe"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
)

// hash returns the SHA-256 of all weights and buffers in order, so that two runs can be compared by one word.
func hash(m checkpoint.Model) (string, error) {
	h := sha256.New()
	for _, t := range m.Tensors() {
		if t.Role != "weight" && t.Role != "buffer" {
			continue
		}
		held, err := contents(m, t)
		if err != nil {
			return "", err
		}
		h.Write(held)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Digests are the SHA-256 of what tensors hold, by role and name.
type Digests map[[2]string][sha256.Size]byte

// DigestsOf returns the digests of a model's tensors, but for those of some roles.
func DigestsOf(m checkpoint.Model, without ...string) (Digests, error) {
	all := Digests{}
	for _, t := range m.Tensors() {
		if slices.Contains(without, t.Role) {
			continue
		}
		held, err := contents(m, t)
		if err != nil {
			return nil, err
		}
		all[[2]string{t.Role, t.Name}] = sha256.Sum256(held)
	}
	return all, nil
}

// First returns the first tensor of some that does not hold in both what it holds in one of them, nil when there is none.
func (d Digests) First(other Digests, tensors []executor.Tensor) *executor.Tensor {
	for i, t := range tensors {
		key := [2]string{t.Role, t.Name}
		a, in := d[key]
		if b, also := other[key]; in != also || a != b {
			return &tensors[i]
		}
	}
	return nil
}

func contents(m checkpoint.Model, t executor.Tensor) ([]byte, error) {
	values := make([]float32, t.Desc.Elements())
	err := m.Read(t, values)
	return Bytes(values), err
}

// Bytes returns the memory of some numbers, for comparisons to the bit.
func Bytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), len(f)*4)
}
