//go:build cuda && linux && amd64

package monitor

import (
	"fmt"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll/internal/units"
)

// Report holds NVML's data about the machine.
type Report struct {
	Driver string // the driver's version, "580.65.06"
	GPUs   []GPU
}

// GPU holds NVML's data about one GPU. A field that NVML does not report is zero.
type GPU struct {
	Name        string
	Bus         string // "0000:41:00.0"
	UUID        string
	Memory      int64   // bytes
	Used        int64   // bytes of it, by all processes and the driver
	Clock       int64   // Hz of the multiprocessors, now
	MaxClock    int64   // Hz of the multiprocessors, at most
	MemoryClock int64   // Hz
	Power       float64 // W, now
	PowerLimit  float64 // W
	PCIe        string  // "gen 5 x16", as it runs now
	Links       []Link
	Holders     []Process
}

// Link is a bundle of NVLinks to one neighbour.
type Link struct {
	To    string // a bus address; an NVSwitch has one too
	Count int
}

// Process holds memory of a GPU.
type Process struct {
	PID   int
	Name  string
	Bytes int64
}

// library is loaded at the first question and stays.
var library = sync.OnceValues(func() (nvml.Interface, error) {
	l := nvml.New()
	if r := l.Init(); r != nvml.SUCCESS {
		return nil, fmt.Errorf("NVML: %w", r)
	}
	return l, nil
})

// Read returns NVML's data, or the reason why there are none.
func Read() (*Report, error) {
	l, err := library()
	if err != nil {
		return nil, err
	}
	version, _ := l.SystemGetDriverVersion()
	count, r := l.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("NVML: number of devices: %w", r)
	}
	report := &Report{Driver: version}
	for i := range count {
		if d, r := l.DeviceGetHandleByIndex(i); r == nvml.SUCCESS {
			report.GPUs = append(report.GPUs, read(l, d))
		}
	}
	return report, nil
}

// Of returns the GPU at a place on the bus, or nil.
func (r *Report) Of(bus string) *GPU {
	for i := range r.GPUs {
		if strings.EqualFold(r.GPUs[i].Bus, bus) {
			return &r.GPUs[i]
		}
	}
	return nil
}

func read(l nvml.Interface, d nvml.Device) GPU {
	g := GPU{PCIe: pcie(d), Links: links(d), Holders: holders(l, d)}
	g.Name, _ = d.GetName()
	g.UUID, _ = d.GetUUID()
	if pci, r := d.GetPciInfo(); r == nvml.SUCCESS {
		g.Bus = address(pci)
	}
	if m, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
		g.Memory, g.Used = int64(m.Total), int64(m.Used)
	}
	g.Clock = hertz(d.GetClockInfo(nvml.CLOCK_SM))
	g.MaxClock = hertz(d.GetMaxClockInfo(nvml.CLOCK_SM))
	g.MemoryClock = hertz(d.GetClockInfo(nvml.CLOCK_MEM))
	g.Power = watts(d.GetPowerUsage())
	g.PowerLimit = watts(d.GetEnforcedPowerLimit())
	return g
}

// hertz and watts take NVML's megahertz and milliwatts.
func hertz(mega uint32, r nvml.Return) int64 {
	if r != nvml.SUCCESS {
		return 0
	}
	return int64(mega) * 1e6
}

func watts(milli uint32, r nvml.Return) float64 {
	if r != nvml.SUCCESS {
		return 0
	}
	return float64(milli) / 1e3
}

// address writes a place on the bus as CUDA does; NVML's own text has eight digits of domain.
func address(p nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
}

func pcie(d nvml.Device) string {
	generation, r := d.GetCurrPcieLinkGeneration()
	width, r2 := d.GetCurrPcieLinkWidth()
	if r != nvml.SUCCESS || r2 != nvml.SUCCESS {
		return ""
	}
	return fmt.Sprintf("gen %d x%d", generation, width)
}

// links counts the active NVLinks by where they lead, in NVML's order.
func links(d nvml.Device) []Link {
	var all []Link
	for i := range nvml.NVLINK_MAX_LINKS {
		if state, r := d.GetNvLinkState(i); r != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		to := "unknown"
		if pci, r := d.GetNvLinkRemotePciInfo(i); r == nvml.SUCCESS {
			to = address(pci)
		}
		all = addLink(all, to)
	}
	return all
}

func addLink(all []Link, to string) []Link {
	for i := range all {
		if all[i].To == to {
			all[i].Count++
			return all
		}
	}
	return append(all, Link{To: to, Count: 1})
}

func holders(l nvml.Interface, d nvml.Device) []Process {
	running, r := d.GetComputeRunningProcesses()
	if r != nvml.SUCCESS {
		return nil
	}
	var all []Process
	for _, p := range running {
		name, _ := l.SystemGetProcessName(int(p.Pid)) // of another container it is unknown
		all = append(all, Process{PID: int(p.Pid), Name: name, Bytes: int64(p.UsedGpuMemory)})
	}
	return all
}

// Holders says in a few words which processes hold memory of the GPU at a place on the bus; "" when NVML cannot tell.
func Holders(bus string) string {
	report, err := Read()
	if err != nil {
		return ""
	}
	g := report.Of(bus)
	if g == nil || len(g.Holders) == 0 {
		return ""
	}
	var words []string
	for _, p := range g.Holders {
		words = append(words, p.String())
	}
	return "held by " + strings.Join(words, ", ")
}

// String names the process and, where NVML can tell, how much it holds.
func (p Process) String() string {
	s := fmt.Sprintf("process %d", p.PID)
	if p.Name != "" {
		s += " (" + p.Name + ")"
	}
	if p.Bytes > 0 { // all ones, NVML's "not available", is negative here
		s += ": " + units.Bytes(p.Bytes)
	}
	return s
}
