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

// Updates of the host's memory have the bits of the device's own library, which the reference is, too.
func TestHostMemoryIsUpdated(t *testing.T) {
	t.Parallel()
	const n = 33
	for _, reference := range []bool{false, true} {
		dev := device(t, "cpu")
		if err := dev.Reserve(1024, 1024); err != nil {
			t.Fatal(err)
		}
		o := library.Options{Reference: reference}
		lib, err := library.Open(dev, o)
		if errors.Is(err, library.ErrNone) {
			t.Skip(err)
		}
		host, failure := library.OpenHost(dev, o)
		if err = errors.Join(err, failure); err != nil {
			t.Fatal(err)
		}
		var after [2]string
		for space, by := range []kernels.Updater{runtime.Arena: lib, runtime.Host: host} {
			after[space] = updated(t, dev, by, runtime.Space(space), n)
		}
		if after[0] != after[1] || strings.Trim(after[0], "\x00") == "" {
			t.Errorf("reference %v: the host has %x, the device %x", reference, after[1], after[0])
		}
	}
	if _, err := library.OpenHost(device(t, "null"), library.Options{}); !errors.Is(err, library.ErrNone) || !strings.Contains(err.Error(), "null") {
		t.Errorf("a device without memory: %v", err)
	}
}

// updated returns n weights that begin as 0 after an update by a gradient of subnormal numbers and others.
func updated(t *testing.T, dev runtime.Device, by kernels.Updater, space runtime.Space, n int64) string {
	t.Helper()
	span := func(i int64, bytes int64) runtime.Span {
		return runtime.Span{Space: space, Offset: i * 192, Bytes: bytes}
	}
	o := kernels.UpdateOperands{Elements: n, Param: span(0, 4*n), Grad: span(1, 4*n), Scalars: span(2, kernels.ScalarsBytes)}
	launch, err := by.PrepareUpdate(kernels.SGD{}, o)
	if err != nil {
		t.Fatal(err)
	}
	memory := dev.(interface {
		Bytes(s runtime.Span) ([]byte, error)
	})
	bytes := func(s runtime.Span) []byte {
		b, err := memory.Bytes(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for i := range bytes(o.Grad) {
		bytes(o.Grad)[i] = byte(i * i)
	}
	kernels.Scalars{LR: 0.5, GradScale: 1}.Put(bytes(o.Scalars))
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
	return string(bytes(o.Param))
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
