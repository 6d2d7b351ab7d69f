package library_test

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/library"
	"plimsoll/runtime"
	"plimsoll/runtime/devices"
)

func device(t *testing.T, spec string) runtime.Device {
	t.Helper()
	d, err := devices.Open(spec, devices.Options{Memory: 1 << 20, HostMemory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d[0].Close() })
	return d[0]
}

func TestTheCPUHasALibrary(t *testing.T) {
	t.Parallel()
	lib, err := library.Open(device(t, "cpu"), library.Options{Threads: 1})
	if errors.Is(err, library.ErrNone) && strings.Contains(err.Error(), "built without cgo") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(lib.Name(), "cpu/") {
		t.Errorf("the library is %s", lib.Name())
	}
}

func TestTheReference(t *testing.T) {
	t.Parallel()
	lib, err := library.Open(device(t, "cpu"), library.Options{Reference: true})
	if err != nil || lib.Name() != "ref" {
		t.Errorf("the library is %v, %v", lib, err)
	}
	if _, err := library.Open(device(t, "null"), library.Options{Reference: true}); !errors.Is(err, library.ErrNone) || !strings.Contains(err.Error(), "null") {
		t.Errorf("on a device without readable memory: %v", err)
	}
}

func TestADeviceWithoutKernelsIsRefused(t *testing.T) {
	t.Parallel()
	_, err := library.Open(device(t, "null"), library.Options{})
	if !errors.Is(err, library.ErrNone) || !strings.Contains(err.Error(), "null") || !strings.Contains(err.Error(), "host") {
		t.Errorf("%v", err)
	}
}

func TestAKindIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("host was registered twice")
		}
	}()
	library.Register(library.Backend{Kind: "host", Open: func(runtime.Device, library.Options) (kernels.Library, error) { return nil, nil }})
}
