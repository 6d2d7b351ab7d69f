// Package devices turns what the user writes after --devices into devices.
//
//	spec   = device {"," device}
//	device = kind [":" index] ["*" parts]
//
// "cpu" is the whole CPU, "cpu*4" four virtual devices that share it, "cuda:1" the second GPU.
package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/names"
	"plimsoll/runtime"
)

// Options apply to every device of a spec.
type Options struct {
	Memory        int64   // bytes that an arena can have at most, before a split; 0: what the machine gives
	HostMemory    int64   // likewise for the host space
	Bandwidth     float64 // bytes/s of the host link, each way, where it can be throttled; 0: not throttled
	PeerBandwidth float64 // likewise between devices
	Chaos         uint64  // seed of random delays, where the device has them; 0: none
	// Local is the number of this process among those of a machine, which take their GPUs in turn where a spec names none.
	Local int
	// Until abandons the devices that can be when it ends; nil: never.
	Until context.Context
}

// Item is one device of a spec.
type Item struct {
	Kind  string // a Backend's name
	Index int    // which of them; -1 when the spec names none
	Parts int    // virtual devices to split it into; 0 when it is not split
}

func (i Item) String() string {
	s := i.Kind
	if i.Index >= 0 {
		s += ":" + strconv.Itoa(i.Index)
	}
	if i.Parts > 0 {
		s += "*" + strconv.Itoa(i.Parts)
	}
	return s
}

// Backend opens the devices of one kind.
type Backend struct {
	Name string // as written in a spec: "cpu"
	Doc  string // one line
	Open func(Item, Options) ([]runtime.Device, error)
}

var (
	// ErrSpec is returned for a spec that cannot be read.
	ErrSpec = errors.New("bad device")
	// ErrUnknown is returned for a kind of device that is not known here.
	ErrUnknown = errors.New("unknown device")
)

// maxParts bounds a split, so that a slip of the finger is an error and not a million devices.
const maxParts = 1024

// Open opens what spec says, in its order. When one cannot be opened, those before it are closed again.
func Open(spec string, o Options) ([]runtime.Device, error) {
	items, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	var devices []runtime.Device
	for _, item := range items {
		more, err := openItem(item, o)
		if err != nil {
			return nil, errors.Join(err, closeAll(devices))
		}
		devices = append(devices, more...)
	}
	return devices, nil
}

func openItem(item Item, o Options) ([]runtime.Device, error) {
	for _, b := range backends {
		if b.Name == item.Kind {
			return b.Open(item, o)
		}
	}
	return nil, names.Unknown(ErrUnknown, item.String(), known())
}

func closeAll(devices []runtime.Device) error {
	var all error
	for _, d := range devices {
		all = errors.Join(all, d.Close())
	}
	return all
}

// Register makes a backend known; call it from an init function. A name that is taken is our own bug.
func Register(b Backend) {
	if slices.Contains(known(), b.Name) {
		panic("BUG: two backends are called " + b.Name)
	}
	backends = append(backends, b)
}

// Backends returns those known.
func Backends() []Backend { return slices.Clone(backends) }

func known() []string {
	var all []string
	for _, b := range backends {
		all = append(all, b.Name)
	}
	return all
}

// Parse reads a spec. A device may be named once only: parts of one device are written with "*".
func Parse(spec string) ([]Item, error) {
	var items []Item
	for text := range strings.SplitSeq(spec, ",") {
		item, err := parseItem(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		for _, other := range items {
			if other.Kind == item.Kind && max(other.Index, 0) == max(item.Index, 0) {
				return nil, fmt.Errorf("%w %q: %s is named twice; %s*2 splits it in two", ErrSpec, spec, text, item.Kind)
			}
		}
		items = append(items, item)
	}
	return items, nil
}

func parseItem(text string) (Item, error) {
	item := Item{Index: -1}
	rest, parts, split := strings.Cut(text, "*")
	kind, index, indexed := strings.Cut(rest, ":")
	if item.Kind = kind; !isName(kind) {
		return item, fmt.Errorf(`%w %q: want a name, as in "cpu", "cpu*4" or "cuda:0"`, ErrSpec, text)
	}
	var err error
	if indexed {
		if item.Index, err = number(index, 0); err != nil {
			return item, fmt.Errorf("%w %q: index %q: %w", ErrSpec, text, index, err)
		}
	}
	if split {
		if item.Parts, err = number(parts, 1); err != nil {
			return item, fmt.Errorf("%w %q: parts %q: %w", ErrSpec, text, parts, err)
		}
	}
	return item, nil
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

func number(text string, least int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || int(n) < least || n > maxParts {
		return 0, fmt.Errorf("want a whole number from %d to %d", least, maxParts)
	}
	return int(n), nil
}
