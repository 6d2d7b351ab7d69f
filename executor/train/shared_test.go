package train

import (
	"testing"

	"plimsoll/runtime/devices"
)

// The sentence says how many ops the prediction counts at once.
func TestOpsAtOnceAreSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    SharedProcessors
		want string
	}{
		{SharedProcessors{Devices: 4, Processors: 2, Kind: "core", OpsAtOnce: 1.0941}, "4 devices share 2 cores, which run 1.09 ops at once"},
		{SharedProcessors{Devices: 4, Processors: 2, Kind: "core", OpsAtOnce: 1}, "4 devices share 2 cores, which run 1 op at once"},
		{SharedProcessors{Devices: 2, Processors: 1, Kind: "GPU", OpsAtOnce: 1}, "2 devices share 1 GPU: predicted with 1 op at once; small ones overlap more"},
	} {
		if got := c.s.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Devices share processors where their threads are more than the cores, and where several are parts of one GPU.
func TestSharedProcessors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec                      string
		threads, processes, cores int
		want                      string
	}{
		{"cpu*4", 2, 1, 2, "4 devices share 2 cores: the prediction is for devices of their own"},
		{"cpu*4", 1, 1, 2, "4 devices share 2 cores: the prediction is for devices of their own"},
		{"cpu*2", 1, 1, 1, "2 devices share 1 core: the prediction is for devices of their own"},
		{"cpu*2", 1, 1, 2, "2 devices share 2 cores: the prediction is for devices of their own"},
		{"cpu*2", 2, 1, 4, "2 devices share 4 cores: the prediction is for devices of their own"},
		{"cpu*2", 1, 1, 4, ""},
		{"cpu", 8, 1, 2, ""}, // the profile has as many threads
		{"cpu", 1, 4, 2, "4 devices share 2 cores: the prediction is for devices of their own"},
		{"cpu", 1, 2, 2, ""},
		{"cuda:0*2", 2, 1, 64, "2 devices share 1 GPU: the prediction is for devices of their own"},
		{"cuda", 2, 4, 2, ""}, // processes take GPUs in turn
		{"cuda:1", 2, 2, 64, "2 devices share 1 GPU: the prediction is for devices of their own"},
		{"null*4", 2, 1, 2, ""},
	} {
		items, err := devices.Parse(c.spec)
		must(t, err)
		got := ""
		if s := shared(items[0], c.threads, c.processes, c.cores); s != nil {
			got = s.String()
		}
		if got != c.want {
			t.Errorf("%s with %d threads, %d processes, %d cores: %q, want %q", c.spec, c.threads, c.processes, c.cores, got, c.want)
		}
	}
}
