//go:build !(cuda && linux && amd64)

package main

import "plimsoll/runtime"

// ask knows nothing without the CUDA backend.
func (*environment) ask(runtime.Device) {}
