//go:build cuda && linux && amd64

package driver

// #include "cuda.h"
import "C"

import (
	"fmt"
	"reflect"

	"gorgonia.org/cu"
)

// Result is the code of a failed call, a CUresult.
type Result int

// Results that callers tell apart.
const (
	InvalidValue      Result = C.CUDA_ERROR_INVALID_VALUE
	OutOfMemory       Result = C.CUDA_ERROR_OUT_OF_MEMORY
	NotFound          Result = C.CUDA_ERROR_NOT_FOUND
	NotReady          Result = C.CUDA_ERROR_NOT_READY
	PeerAlready       Result = C.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
	ContextDestroyed  Result = C.CUDA_ERROR_CONTEXT_IS_DESTROYED
	DeviceUnavailable Result = C.CUDA_ERROR_DEVICE_UNAVAILABLE
)

// fatal are the results after which a context answers every call with an error: the device's memory is lost.
var fatal = map[Result]bool{
	C.CUDA_ERROR_ECC_UNCORRECTABLE:     true,
	C.CUDA_ERROR_NVLINK_UNCORRECTABLE:  true,
	C.CUDA_ERROR_ILLEGAL_ADDRESS:       true,
	C.CUDA_ERROR_LAUNCH_TIMEOUT:        true,
	C.CUDA_ERROR_CONTEXT_IS_DESTROYED:  true,
	C.CUDA_ERROR_ASSERT:                true,
	C.CUDA_ERROR_HARDWARE_STACK_ERROR:  true,
	C.CUDA_ERROR_ILLEGAL_INSTRUCTION:   true,
	C.CUDA_ERROR_MISALIGNED_ADDRESS:    true,
	C.CUDA_ERROR_INVALID_ADDRESS_SPACE: true,
	C.CUDA_ERROR_INVALID_PC:            true,
	C.CUDA_ERROR_LAUNCH_FAILED:         true,
	C.CUDA_ERROR_DEVICE_UNAVAILABLE:    true,
	C.CUDA_ERROR_UNKNOWN:               true,
	C.CUDA_ERROR_EXTERNAL_DEVICE:       true,
}

// Fatal reports whether the device's context is lost.
func (r Result) Fatal() bool { return fatal[r] }

// Error gives the name, the number and the driver's explanation.
func (r Result) Error() string {
	var name, text *C.char
	if C.cuGetErrorName(C.CUresult(r), &name) != 0 || C.cuGetErrorString(C.CUresult(r), &text) != 0 {
		return fmt.Sprintf("CUDA error %d", int(r))
	}
	return fmt.Sprintf("%s (%d): %s", C.GoString(name), int(r), C.GoString(text))
}

// result turns what a call returned into an error.
func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return Result(r)
}

// Of returns the error of a call of gorgonia.org/cu as a Result; its own type of results is not exported. Other errors,
// and nil, stay as they are.
func Of(err error) error {
	if err == nil {
		return nil
	}
	if t := reflect.TypeOf(err); t != reflect.TypeOf(cu.Unknown) {
		return err
	}
	return Result(reflect.ValueOf(err).Int())
}
