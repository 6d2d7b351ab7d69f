//go:build cuda && linux && amd64

package monitor

import (
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Where there is no library, that is said and nothing else goes wrong; where there is one, it must answer.
func TestReadAnswersOrSaysWhyNot(t *testing.T) {
	report, err := Read()
	if err != nil {
		if !strings.HasPrefix(err.Error(), "NVML: ") || Holders("0000:00:00.0") != "" {
			t.Errorf("error %v, holders %q", err, Holders("0000:00:00.0"))
		}
		return
	}
	for _, g := range report.GPUs {
		if g.Name == "" || g.Bus == "" || g.Memory <= 0 || report.Of(strings.ToUpper(g.Bus)) == nil {
			t.Errorf("incomplete: %+v", g)
		}
	}
}

func TestLinksAreCountedByNeighbour(t *testing.T) {
	var all []Link
	for _, to := range []string{"a", "b", "a", "a"} {
		all = addLink(all, to)
	}
	if want := []Link{{"a", 3}, {"b", 1}}; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
}

func TestUnits(t *testing.T) {
	if got := hertz(1980, nvml.SUCCESS); got != 1_980_000_000 {
		t.Errorf("%d Hz", got)
	}
	if got := watts(121_500, nvml.SUCCESS); got != 121.5 {
		t.Errorf("%v W", got)
	}
	if hertz(1, nvml.ERROR_NOT_SUPPORTED) != 0 || watts(1, nvml.ERROR_NOT_SUPPORTED) != 0 {
		t.Error("a figure that NVML does not have is not zero")
	}
	if got := address(nvml.PciInfo{Domain: 1, Bus: 0x41, Device: 0x1f}); got != "0001:41:1f.0" {
		t.Errorf("address %s", got)
	}
}

func TestProcessesAreNamedAsFarAsKnown(t *testing.T) {
	for want, p := range map[string]Process{
		"process 7":                     {PID: 7, Bytes: -1},
		"process 7 (python): 4.000 GiB": {PID: 7, Name: "python", Bytes: 4 << 30},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if r := (&Report{}); r.Of("0000:00:00.0") != nil {
		t.Error("a GPU out of nothing")
	}
}
