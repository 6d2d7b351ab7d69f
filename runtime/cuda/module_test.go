//go:build cuda && linux && amd64

package cuda_test

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
)

// TestPTXEndsWithAZeroByte: the driver reads PTX up to a zero byte, which an image does not have. Behind the copies that it gets here
// lie letters, which no compiler takes.
func TestPTXEndsWithAZeroByte(t *testing.T) {
	needGPUs(t, 1)
	d := openGPUs(t, 1, false)[0].(*cuda.Device)
	goruntime.LockOSThread() // whose heap it is
	defer goruntime.UnlockOSThread()
	image := ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry cudatest_mix() { ret; }\n"
	for cudatest.HeapTail(len(image)) < 4 {
		image += "\n"
	}
	for i := range 50 {
		// Many sizes: between the litter and the copy the driver allocates, too.
		padded := image + strings.Repeat("\n", 16*i)
		cudatest.LitterHeap(len(padded))
		if _, err := d.Module(fmt.Sprintf("ended %d", i), []byte(padded)); err != nil {
			t.Fatalf("%d bytes: %v", len(padded), err)
		}
	}
}
