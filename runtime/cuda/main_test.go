//go:build cuda && linux && amd64

package cuda_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"plimsoll/runtime/cuda/cudatest"
	"plimsoll/runtime/cuda/driver"
)

var skipped atomic.Int32

// TestMain gives the emulated driver two devices, delays and memory full of NaNs, unless the environment says otherwise,
// counts what is skipped, and fails when that driver has found something.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"DEVICES": "2", "CHAOS": "1", "POISON": "1"} {
		if name = "PLIMSOLL_EMULATOR_" + name; os.Getenv(name) == "" {
			_ = os.Setenv(name, value)
		}
	}
	code := cudatest.Judge(m.Run())
	fmt.Printf("%d tests skipped for want of GPUs\n", skipped.Load())
	os.Exit(code)
}

// needGPUs skips a test that needs more than there are.
func needGPUs(t testing.TB, n int) {
	t.Helper()
	s := driver.Load()
	if s.Devices >= n {
		return
	}
	skipped.Add(1)
	t.Skipf("needs %d GPUs, there are %d (%v)", n, s.Devices, s.Err)
}
