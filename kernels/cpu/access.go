//go:build cgo

package cpu

import "plimsoll/kernels"

// access is an operand's memory.
type access struct {
	operand kernels.Operand
	bytes   []byte
	write   bool
}
