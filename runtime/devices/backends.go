package devices

import (
	"context"
	"fmt"

	"plimsoll/runtime"
	"plimsoll/runtime/host"
	"plimsoll/runtime/null"
)

// Options apply to every device of a spec.
type Options struct {
	Memory        int64   // bytes that an arena can have at most, before a split; 0: what the machine gives
	HostMemory    int64   // likewise for the host space
	Bandwidth     float64 // bytes/s of the host link, each way, where it can be throttled; 0: not throttled
	PeerBandwidth float64 // likewise between devices
	Chaos         uint64  // seed of random delays, where the device has them; 0: none
	OwnCore       bool    // a core for the stream that computes, where the device is a processor: see host.Config
	// Local is the number of this process among those of a machine, which take their GPUs in turn where a spec names none.
	Local int
	// Until abandons the devices that can be when it ends; nil: never.
	Until context.Context
}

// Backend opens the devices of one kind.
type Backend struct {
	Name string // as written in a spec: "cpu"
	Doc  string // one line
	Open func(Item, Options) ([]runtime.Device, error)
}

var backends = []Backend{
	{Name: "cpu", Doc: "this machine's processor, its memory as device memory", Open: openCPU},
	{Name: "null", Doc: "simulated: costs only, computes nothing", Open: openNull},
}

func openCPU(item Item, o Options) ([]runtime.Device, error) {
	if err := single(item); err != nil {
		return nil, err
	}
	c := host.Config{
		Name:   item.Kind,
		Memory: o.Memory, HostMemory: o.HostMemory,
		Bandwidth: o.Bandwidth, PeerBandwidth: o.PeerBandwidth,
		Chaos: o.Chaos, OwnCore: o.OwnCore, Until: o.Until,
	}
	if item.Parts == 0 {
		d, err := host.New(c)
		if err != nil {
			return nil, err
		}
		return []runtime.Device{d}, nil
	}
	parts, err := host.Split(c, item.Parts)
	if err != nil {
		return nil, err
	}
	var devices []runtime.Device
	for _, d := range parts {
		devices = append(devices, d)
	}
	return devices, nil
}

// openNull ignores the options that concern real memory and real time.
func openNull(item Item, o Options) ([]runtime.Device, error) {
	if err := single(item); err != nil {
		return nil, err
	}
	c := null.Config{Name: item.Kind, Memory: o.Memory, Bandwidth: o.Bandwidth, PeerBandwidth: o.PeerBandwidth}
	var devices []runtime.Device
	for i := range max(item.Parts, 1) {
		if item.Parts > 0 {
			c.Name = fmt.Sprintf("%s/%d", item, i)
			c.Memory = max(o.Memory/int64(item.Parts), min(o.Memory, 1)) // 0 would mean no limit
		}
		d, err := null.New(c)
		if err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// single refuses an index: of these kinds there is one.
func single(item Item) error {
	if item.Index > 0 {
		return fmt.Errorf("%w %q: there is one %s, number 0", ErrUnknown, item, item.Kind)
	}
	return nil
}
