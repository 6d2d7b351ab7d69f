package host_test

import (
	"testing"

	"plimsoll/runtime/devicetest"
	"plimsoll/runtime/host"
)

func TestInspector(t *testing.T) {
	t.Parallel()
	d, err := host.New(host.Config{Memory: 1 << 16, HostMemory: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.Reserve(1<<12, 1<<12); err != nil {
		t.Fatal(err)
	}
	devicetest.Inspect(t, d)
}
