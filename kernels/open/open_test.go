package open_test

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/open"
	"plimsoll/runtime"
	devices "plimsoll/runtime/open"
)

func device(t *testing.T, spec string) runtime.Device {
	t.Helper()
	d, err := devices.Devices(spec, devices.Options{Memory: 1 << 20, HostMemory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d[0].Close() })
	return d[0]
}

func TestTheCPUHasALibrary(t *testing.T) {
	lib, err := open.Library(device(t, "cpu"), open.Options{Threads: 1})
	if errors.Is(err, open.ErrNone) && strings.Contains(err.Error(), "built without cgo") {
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
	lib, err := open.Library(device(t, "cpu"), open.Options{Reference: true})
	if err != nil || lib.Name() != "ref" {
		t.Errorf("the library is %v, %v", lib, err)
	}
	if _, err := open.Library(device(t, "null"), open.Options{Reference: true}); !errors.Is(err, open.ErrNone) || !strings.Contains(err.Error(), "null") {
		t.Errorf("on a device without readable memory: %v", err)
	}
}

func TestADeviceWithoutKernelsIsRefused(t *testing.T) {
	_, err := open.Library(device(t, "null"), open.Options{})
	if !errors.Is(err, open.ErrNone) || !strings.Contains(err.Error(), "null") || !strings.Contains(err.Error(), "host") {
		t.Errorf("%v", err)
	}
}

func TestAKindIsRegisteredOnce(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("host was registered twice")
		}
	}()
	open.Register(open.Backend{Kind: "host", Open: func(runtime.Device, open.Options) (kernels.Library, error) { return nil, nil }})
}
