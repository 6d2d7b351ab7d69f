package devices_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll/runtime"
	"plimsoll/runtime/devices"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]devices.Item{
		"cpu":            {{Kind: "cpu", Index: -1}},
		"cpu*4":          {{Kind: "cpu", Index: -1, Parts: 4}},
		"cuda:0*4":       {{Kind: "cuda", Index: 0, Parts: 4}},
		"cuda:1, cuda:0": {{Kind: "cuda", Index: 1}, {Kind: "cuda", Index: 0}},
	} {
		got, err := devices.Parse(spec)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: %v, %v", spec, got, err)
		}
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"":          `bad device "": want a name`,
		"cpu,":      `bad device "": want a name`,
		"CPU":       `bad device "CPU": want a name`,
		"*4":        `bad device "*4": want a name`,
		"cpu*":      `parts "": want a whole number from 1`,
		"cpu*0":     `parts "0": want a whole number from 1`,
		"cpu*-1":    `parts "-1": want`,
		"cpu*2*2":   `parts "2*2": want`,
		"cpu*99999": `parts "99999": want`,
		"cuda:":     `index "": want a whole number from 0`,
		"cuda:x":    `index "x": want`,
		"cpu,cpu*2": "named twice",
		"cpu:0,cpu": "named twice",
		"cuda:0 *2": `index "0 ": want`,
	} {
		_, err := devices.Parse(spec)
		if !errors.Is(err, devices.ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not say %q", spec, err, want)
		}
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	o := devices.Options{Memory: 1000, HostMemory: 1000, Bandwidth: 5}
	for spec, want := range map[string][]string{
		"cpu":        {"cpu"},
		"cpu:0*2":    {"cpu*2/0", "cpu*2/1"},
		"null*2,cpu": {"null*2/0", "null*2/1", "cpu"},
	} {
		devices, err := devices.Open(spec, o)
		if err != nil {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		var got []string
		for _, d := range devices {
			i := d.Info()
			got = append(got, i.Name)
			if share := int64(1000); i.Bandwidth != 5 || (i.Memory != share && i.Memory != share/2) {
				t.Errorf("%q: %+v does not follow the options", spec, i)
			}
		}
		if !cmp.Equal(got, want) {
			t.Errorf("%q: opened %v, want %v", spec, got, want)
		}
	}
}

func TestUnknownDevicesListTheKnownOnes(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"tpu":    "known are cpu, null, fake",
		"tpu:3":  `unknown device "tpu:3"`,
		"cpu:1":  "there is one cpu, number 0",
		"null:2": "there is one null, number 0",
	} {
		_, err := devices.Open(spec, devices.Options{Memory: 1, HostMemory: 1})
		if !errors.Is(err, devices.ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not say %q", spec, err, want)
		}
	}
}

// fake notes whether it was closed.
type fake struct{ runtime.Device }

var fakeIsClosed bool

func (fake) Close() error {
	fakeIsClosed = true
	return nil
}

func init() {
	devices.Register(devices.Backend{Name: "fake", Doc: "for tests", Open: func(devices.Item, devices.Options) ([]runtime.Device, error) {
		return []runtime.Device{fake{}}, nil
	}})
}

func TestDevicesBeforeOneThatFailsAreClosed(t *testing.T) {
	// Serial: it replaces fakeIsClosed.
	fakeIsClosed = false
	if devices, err := devices.Open("fake,tpu", devices.Options{}); err == nil || devices != nil {
		t.Errorf("got %v, %v", devices, err)
	}
	if !fakeIsClosed {
		t.Error("it stays open")
	}
}

func TestBackendNamesAreUnique(t *testing.T) {
	t.Parallel()
	var names []string
	for _, b := range devices.Backends() {
		names = append(names, b.Name)
	}
	if want := []string{"cpu", "null", "fake"}; !cmp.Equal(names, want) {
		t.Errorf("known are %v, want %v", names, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name could be taken twice")
		}
	}()
	devices.Register(devices.Backend{Name: "fake"})
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{"cpu", "cpu*4", "cuda:0*4,cuda:1", "cpu,", "*", ":", "a:0*0"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		items, err := devices.Parse(spec)
		if err != nil {
			if !errors.Is(err, devices.ErrSpec) {
				t.Errorf("%q: %v is not an ErrSpec", spec, err)
			}
			return
		}
		var written []string
		for _, item := range items {
			written = append(written, item.String())
		}
		again, err := devices.Parse(strings.Join(written, ","))
		if err != nil || !cmp.Equal(again, items) {
			t.Errorf("%q was written as %q and read as %v, %v", spec, written, again, err)
		}
	})
}
