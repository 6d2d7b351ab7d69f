package pipeline

import (
	"encoding/json"
	"fmt"
	"math"

	"plimsoll/planner/chain"
)

// NoLimit is the memory of a device without a limit.
const NoLimit = math.MaxInt64

// MaxDevices bounds the number of devices of a platform, and with it the size of its matrix of links.
const MaxDevices = 1024

// Free returns the bandwidth of a link on which communication takes no time.
func Free() float64 { return math.Inf(1) }

// Platform is the devices of a pipeline and the links between them: one link for each unordered pair, used
// exclusively, and pairs do not compete (thesis 6.1).
//
// Invariants, checked by Validate:
//   - There are 1 to MaxDevices devices, each with one memory that is not negative.
//   - Bandwidths are at least 0 and not NaN, and give times of messages that are numbers. The bandwidth to the host is finite.
//   - The links of bandwidth above 0 connect all devices.
//   - The levels multiply to the number of devices.
//   - OpsAtOnce is 0 or a number from 1 on.
type Platform struct {
	Devices   int
	Memory    []int64            // bytes of each device, weights included; NoLimit for none
	Bandwidth float64            // bytes/s of the links that Pairs does not name; Free for no time, 0 for no link
	Pairs     map[[2]int]float64 // bytes/s of single links, by the two devices in ascending order
	Duplex    bool               // one link for each direction instead of one for both
	// OpsAtOnce is how many ops all devices together run at once at full speed, where they share processors; 0: each device has its own. It is the
	// number of cores over the cores that an op keeps busy, or 1 for the parts of a GPU.
	OpsAtOnce float64
	NoBuffers bool    // communication buffers are not counted (thesis, chapter 5)
	Host      float64 // bytes/s of the link between each device and its host; 0: not known
	// HostMemory bounds what a sequence for one device copies to host memory, bytes; 0: no limit. Platform files do not have it.
	HostMemory int64
	Levels     []Level                    // topology, innermost first; nil: all devices are alike
	Extra      map[string]json.RawMessage // fields of the file that this package does not know
}

// Level is one level of a topology: Devices components of the level below (devices, at the first level) joined by
// links of one bandwidth.
type Level struct {
	Devices   int
	Bandwidth float64 // bytes/s
}

// NewPlatform returns devices of equal memory, all linked at one bandwidth.
func NewPlatform(devices int, memory int64, bandwidth float64) *Platform {
	return (&Platform{Devices: devices, Bandwidth: bandwidth}).WithMemory(memory)
}

// WithMemory returns a copy of the platform whose devices all have this memory.
func (p *Platform) WithMemory(bytes int64) *Platform {
	q := *p
	q.Memory = make([]int64, p.Devices)
	for i := range q.Memory {
		q.Memory[i] = bytes
	}
	return &q
}

// Beta returns the bandwidth between two different devices, bytes/s: that of the pair, or else of the innermost level
// that holds both, or else the common one. It is Free() where communication takes no time and 0 where there is no link.
func (p *Platform) Beta(x, y int) float64 {
	if b, ok := p.Pairs[[2]int{min(x, y), max(x, y)}]; ok {
		return b
	}
	size := 1
	for _, l := range p.Levels {
		if size *= l.Devices; x/size == y/size {
			return l.Bandwidth
		}
	}
	return p.Bandwidth
}

// Seconds returns the time of a message between two devices; 0 on one device, +Inf where there is no link.
func (p *Platform) Seconds(bytes int64, x, y int) float64 {
	if x == y || bytes == 0 {
		return 0
	}
	return float64(bytes) / p.Beta(x, y)
}

// Smallest returns the least memory of all devices.
func (p *Platform) Smallest() int64 {
	least := int64(NoLimit)
	for _, m := range p.Memory {
		least = min(least, m)
	}
	return least
}

// Uniform reports whether all devices have the same memory and all links the same bandwidth.
func (p *Platform) Uniform() bool {
	for _, m := range p.Memory {
		if m != p.Memory[0] {
			return false
		}
	}
	for x := range p.Devices {
		for y := range x {
			if p.Beta(x, y) != p.Beta(0, 1) {
				return false
			}
		}
	}
	return true
}

// Validate checks the invariants of the type. Errors: ErrPlatform, with field and value.
func (p *Platform) Validate() error {
	for _, check := range []func() error{p.validateDevices, p.validateLevels, p.validateLinks, p.connected} {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", ErrPlatform, err)
		}
	}
	return nil
}

func (p *Platform) validateDevices() error {
	if p.Devices < 1 || p.Devices > MaxDevices {
		return fmt.Errorf("field \"devices\" is %d, which is not between 1 and %d", p.Devices, MaxDevices)
	}
	if len(p.Memory) != p.Devices {
		return fmt.Errorf("field \"memory_bytes\" has %d entries for %d devices", len(p.Memory), p.Devices)
	}
	if n := p.OpsAtOnce; n != 0 && !(n >= 1 && n <= math.MaxFloat64) {
		return fmt.Errorf("field \"ops_at_once\" is %g: give a number from 1 on, or leave it out where each device has a processor of its own", n)
	}
	for i, m := range p.Memory {
		if m < 0 {
			return fmt.Errorf("field \"memory_bytes\" is %d for device %d, which is negative", m, i)
		}
	}
	return nil
}

func (p *Platform) validateLevels() error {
	product := 1
	for i, l := range p.Levels {
		if l.Devices < 1 || l.Devices > MaxDevices {
			return fmt.Errorf("field \"levels\": level %d has %d devices, which is not between 1 and %d", i, l.Devices, MaxDevices)
		}
		if !(l.Bandwidth >= chain.SlowestLink) {
			return fmt.Errorf("field \"levels\": level %d has the bandwidth %g, which is not above 0, or next to it", i, l.Bandwidth)
		}
		if product *= l.Devices; product > MaxDevices {
			break
		}
	}
	if len(p.Levels) > 0 && product != p.Devices {
		return fmt.Errorf("field \"levels\" multiplies to %d devices or more, field \"devices\" is %d", product, p.Devices)
	}
	return nil
}

func (p *Platform) validateLinks() error {
	if !sensible(p.Bandwidth) {
		return fmt.Errorf("field \"bandwidth_bytes_per_s\" is %g, which is negative, next to nothing or not a number", p.Bandwidth)
	}
	if !sensible(p.Host) || math.IsInf(p.Host, 1) {
		return fmt.Errorf("field \"host_bandwidth_bytes_per_s\" is %g: give a finite number above 0, or leave it out", p.Host)
	}
	for pair, b := range p.Pairs {
		x, y := pair[0], pair[1]
		if x < 0 || y >= p.Devices || x >= y {
			return fmt.Errorf("field \"bandwidth_bytes_per_s\" names the link %d-%d: it must join two of the devices 0 to %d, the smaller first", x, y, p.Devices-1)
		}
		if !sensible(b) {
			return fmt.Errorf("field \"bandwidth_bytes_per_s\" is %g for the link %d-%d, which is negative, next to nothing or not a number", b, x, y)
		}
	}
	return nil
}

func sensible(bandwidth float64) bool { return bandwidth == 0 || bandwidth >= chain.SlowestLink }

// connected refuses a platform whose links do not join all devices; it names two that nothing joins.
func (p *Platform) connected() error {
	reached := make([]bool, p.Devices)
	reached[0] = true
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		for y := range reached {
			if !reached[y] && p.Beta(queue[0], y) > 0 {
				reached[y] = true
				queue = append(queue, y)
			}
		}
	}
	for y, ok := range reached {
		if !ok {
			return fmt.Errorf("nothing joins device 0 and device %d: give field \"bandwidth_bytes_per_s\" a value above 0 for a link between them, or an entry \"default\"", y)
		}
	}
	return nil
}

// Followers returns, for each device, the devices that may have the next stage, if every device has one stage. If all
// devices are alike, that is the next device, else any later one that it has a link to.
func (p *Platform) Followers() [][]int {
	next := make([][]int, p.Devices)
	uniform := p.Uniform()
	for d := range next {
		for e := d + 1; e < p.Devices && (e == d+1 || !uniform); e++ {
			if p.Beta(d, e) > 0 {
				next[d] = append(next[d], e)
			}
		}
	}
	return next
}
