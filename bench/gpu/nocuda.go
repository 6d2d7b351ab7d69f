//go:build !(cuda && linux && amd64)

package main

import "plimsoll/runtime"

// used knows nothing either.
func used(string) int64 { return 0 }

// count knows no GPU.
func count() int { return 0 }

// ask knows nothing without the CUDA backend.
func (*environment) ask(runtime.Device) {}
