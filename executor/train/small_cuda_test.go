//go:build cuda && linux && amd64

package train

import (
	"testing"

	_ "plimsoll/kernels/cuda"
	"plimsoll/runtime/cuda/driver"
)

// The same on a GPU. An emulated one is slow: the batches are small, and with them what a plan can save beside the weights.
func TestGPUsSmallerThanStoreAll(t *testing.T) {
	status := driver.Load()
	if status.Err != nil || status.Devices == 0 {
		t.Skip("no GPU")
	}
	for _, c := range []smallCase{{"resnet20", 16, 8, 1.5}, {"unet-2-4", 32, 8, 1.7}} {
		t.Run(c.model, func(t *testing.T) { expectSmall(t, "cuda:0", c) })
	}
}

func TestPartsAreMicrobatchesOnGPUs(t *testing.T) {
	if status := driver.Load(); status.Err != nil || status.Devices == 0 {
		t.Skip("no GPU")
	}
	expectParts(t, "cuda:0", []int{3})
}
