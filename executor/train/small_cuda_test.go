//go:build cuda && linux && amd64

package train

import (
	"testing"

	_ "plimsoll/kernels/cuda"
	"plimsoll/runtime/cuda/driver"
)

// The same on a GPU.
func TestGPUsSmallerThanStoreAll(t *testing.T) {
	status := driver.Load()
	if status.Err != nil || status.Devices == 0 {
		t.Skip("no GPU")
	}
	for _, c := range []smallCase{{"resnet20", 32, 8}, {"densenet121", 32, 8}, {"unet", 32, 2}} {
		expectSmall(t, "cuda:0", c)
	}
}
