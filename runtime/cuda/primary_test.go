//go:build cuda && linux && amd64

package cuda_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
)

// One context serves a GPU for as long as the program runs, and nothing of a device stays in it.
func TestOneContextForLife(t *testing.T) {
	must(t, emulated(t).Close())
	retained, released := cudatest.Count(t, "cuDevicePrimaryCtxRetain"), cudatest.Count(t, "cuDevicePrimaryCtxRelease")
	for range 3 {
		for _, d := range cudatest.Open(t, cuda.Config{Memory: limit, Parts: 2}) {
			d, s := reserved(t, d)
			must(t, s.Launch(cudatest.Mix(d, arena(0, 64), arena(64, 64))))
			must(t, d.Close())
		}
	}
	if n, m := cudatest.Count(t, "cuDevicePrimaryCtxRetain")-retained, cudatest.Count(t, "cuDevicePrimaryCtxRelease")-released; n != 0 || m != 0 {
		t.Errorf("the context was retained %d times more and released %d times", n, m)
	}
	cudatest.Findings(t)
	cudatest.Finish(t)
	if found := cudatest.Findings(t); len(found) > 0 {
		t.Errorf("findings: %q", found)
	}
}

// A context that is lost is given up by the last device that closes, whatever the release says, and the next is whole.
func TestALostContextIsReplaced(t *testing.T) {
	must(t, emulated(t).Close())
	parts := cudatest.Open(t, cuda.Config{Memory: limit, Parts: 2})
	d, s := reserved(t, parts[0])
	cudatest.Fail(t, "launch:1=719")
	_ = s.Launch(cudatest.Mix(d, arena(0, 64), arena(64, 64)))
	if err := s.Synchronize(); !errors.Is(err, cuda.ErrLost) {
		t.Fatal(err)
	}
	released := cudatest.Count(t, "cuDevicePrimaryCtxRelease")
	must(t, d.Close())
	if n := cudatest.Count(t, "cuDevicePrimaryCtxRelease") - released; n != 0 {
		t.Errorf("released %d times while a device is open", n)
	}
	cudatest.Fail(t, "cuDevicePrimaryCtxRelease:1=719")
	must(t, parts[1].Close())
	if n := cudatest.Count(t, "cuDevicePrimaryCtxRelease") - released; n != 1 {
		t.Errorf("released %d times", n)
	}
	gpu, err := cu.GetDevice(0) // the call that was made to fail has released nothing
	must(t, err)
	must(t, gpu.ReleasePrimaryCtx())
	d, s = reserved(t, emulated(t))
	must(t, s.Launch(cudatest.Mix(d, arena(0, 64), arena(64, 64))))
	must(t, s.Synchronize())
}

// Users of the context end before the context does. Their functions are called once, the last first, with the context current and the
// streams done.
func TestOnClose(t *testing.T) {
	d, s := reserved(t, emulated(t))
	var calls []string
	note := func(name string, err error) func() error {
		return func() error {
			if _, failed := cu.CurrentContext(); failed != nil {
				t.Error(failed)
			}
			calls = append(calls, name)
			return err
		}
	}
	unloaded := cudatest.Count(t, "cuModuleUnload")
	must(t, d.OnClose(note("first", errors.New("cannot end"))))
	must(t, d.OnClose(func() error {
		if n := cudatest.Count(t, "cuModuleUnload") - unloaded; n != 0 {
			t.Errorf("%d modules are gone", n)
		}
		return nil
	}))
	must(t, d.OnClose(note("last", nil)))
	must(t, s.Launch(cudatest.Mix(d, arena(0, 64), arena(64, 64))))
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "cannot end") {
		t.Errorf("Close = %v", err)
	}
	if !slices.Equal(calls, []string{"last", "first"}) {
		t.Errorf("called %v", calls)
	}
	if err := d.OnClose(note("late", nil)); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("OnClose of a closed device: %v", err)
	}
}
