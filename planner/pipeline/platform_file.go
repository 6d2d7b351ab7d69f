package pipeline

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
)

// ReadPlatform reads and validates a platform file:
//
//	{"devices":P, "memory_bytes":M | [M_0, ...] | null, "bandwidth_bytes_per_s":b | {"default":b,"0-1":b01, ...} | null,
//	 "duplex":false, "communication_buffers":true, "levels":[{"devices":4,"bandwidth_bytes_per_s":b}, ...],
//	 "host_bandwidth_bytes_per_s":b, "ops_at_once":n}
//
// A memory of null is no limit, a bandwidth of null takes no time. Levels, the innermost first, give the bandwidths of
// the links that bandwidth_bytes_per_s does not. Errors name the file, the field and its value.
func ReadPlatform(path string) (*Platform, error) { return fields.ReadFile[Platform](path) }

// Write validates the platform and writes it to a file, whole or not at all.
func (p *Platform) Write(path string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, p.Encode)
}

// Encode writes the platform with one field a line.
func (p *Platform) Encode(w io.Writer) error { return p.list().WriteLines(w) }

// MarshalJSON writes the platform on one line.
func (p Platform) MarshalJSON() ([]byte, error) { return p.list().MarshalJSON() }

func (p *Platform) list() fields.List {
	out := fields.List{
		{Name: "devices", Value: p.Devices},
		{Name: "memory_bytes", Value: p.memories()},
		{Name: "bandwidth_bytes_per_s", Value: p.bandwidths()},
	}
	out = fields.Unless(out, false, "duplex", p.Duplex)
	if p.NoBuffers {
		out = append(out, fields.Field{Name: "communication_buffers", Value: false})
	}
	if len(p.Levels) > 0 {
		out = append(out, fields.Field{Name: "levels", Value: lists(p.Levels, Level.list)})
	}
	out = fields.Unless(out, 0, "host_bandwidth_bytes_per_s", p.Host)
	out = fields.Unless(out, 0, "ops_at_once", p.OpsAtOnce)
	return out.With(p.Extra)
}

func (l Level) list() fields.List {
	return fields.List{{Name: "devices", Value: l.Devices}, {Name: "bandwidth_bytes_per_s", Value: nullable(l.Bandwidth)}}
}

// memories returns one number when all devices have the same memory, else a list; null is no limit.
func (p *Platform) memories() any {
	all := make([]any, len(p.Memory))
	for i, m := range p.Memory {
		if m != NoLimit {
			all[i] = m
		}
	}
	if len(slices.Compact(slices.Clone(p.Memory))) == 1 {
		return all[0]
	}
	return all
}

// bandwidths returns one number, or an object of pairs. Levels are spelled out as pairs, for readers that do not know
// them.
func (p *Platform) bandwidths() any {
	if len(p.Pairs) == 0 && len(p.Levels) == 0 {
		return nullable(p.Bandwidth)
	}
	out := fields.List{{Name: "default", Value: nullable(p.Bandwidth)}}
	for x := range p.Devices {
		for y := x + 1; y < p.Devices; y++ {
			if _, named := p.Pairs[[2]int{x, y}]; named || len(p.Levels) > 0 {
				out = append(out, fields.Field{Name: fmt.Sprintf("%d-%d", x, y), Value: nullable(p.Beta(x, y))})
			}
		}
	}
	return out
}

// nullable is a bandwidth as files have it.
func nullable(bandwidth float64) any {
	if math.IsInf(bandwidth, 1) {
		return nil
	}
	return bandwidth
}

// UnmarshalJSON reads and validates a platform; on an error it is left as it was.
func (p *Platform) UnmarshalJSON(data []byte) error {
	read, err := parsePlatform(data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPlatform, err)
	}
	if err := read.Validate(); err != nil {
		return err
	}
	*p = *read
	return nil
}

func parsePlatform(data []byte) (*Platform, error) {
	o, err := fields.Parse(data)
	if err != nil {
		return nil, err
	}
	o.Require("devices")
	p := &Platform{
		Devices:   int(o.Int("devices", 0)),
		Duplex:    o.Bool("duplex", false),
		NoBuffers: !o.Bool("communication_buffers", true),
		Host:      o.NotNegative("host_bandwidth_bytes_per_s", 0),
		OpsAtOnce: o.NotNegative("ops_at_once", 0),
	}
	memory, bandwidth, levels := o.Raw("memory_bytes"), o.Raw("bandwidth_bytes_per_s"), o.Array("levels")
	p.Extra = o.Rest()
	if o.Err() != nil || p.Devices < 1 || p.Devices > MaxDevices {
		return p, o.Err()
	}
	if err := p.takeMemory(memory); err != nil {
		return nil, err
	}
	if err := p.takeLevels(levels); err != nil {
		return nil, err
	}
	return p, p.takeBandwidth(bandwidth)
}

func (p *Platform) takeMemory(raw json.RawMessage) error {
	const name = "memory_bytes"
	if raw == nil {
		*p = *p.WithMemory(NoLimit)
		return nil
	}
	o := fields.Of(map[string]json.RawMessage{name: raw})
	if raw[0] != '[' {
		*p = *p.WithMemory(o.Size(name, NoLimit))
		return o.Err()
	}
	for i, r := range o.Array(name) {
		entry := fmt.Sprintf("%s[%d]", name, i)
		element := fields.Of(map[string]json.RawMessage{entry: r})
		p.Memory = append(p.Memory, element.Size(entry, NoLimit))
		if element.Err() != nil {
			return element.Err()
		}
	}
	return nil
}

func (p *Platform) takeLevels(raw []json.RawMessage) (err error) {
	if len(raw) == 0 {
		return nil
	}
	p.Levels, err = objects("level", raw, func(o *fields.Object) (Level, error) {
		o.Require("devices")
		l := Level{Devices: int(o.Int("devices", 0)), Bandwidth: o.NotNegative("bandwidth_bytes_per_s", Free())}
		return l, o.Err()
	})
	return err
}

func (p *Platform) takeBandwidth(raw json.RawMessage) error {
	const name = "bandwidth_bytes_per_s"
	switch {
	case raw == nil && len(p.Levels) > 0:
		return nil
	case raw == nil:
		p.Bandwidth = Free()
		return nil
	case raw[0] != '{':
		o := fields.Of(map[string]json.RawMessage{name: raw})
		p.Bandwidth = o.NotNegative(name, 0)
		return o.Err()
	}
	o, err := fields.Parse(raw)
	if err == nil {
		err = p.takePairs(o)
	}
	if err != nil {
		return fmt.Errorf("field %q: %w", name, err)
	}
	return nil
}

// takePairs takes "default" and entries such as "0-1". An entry of null takes no time.
func (p *Platform) takePairs(o *fields.Object) error {
	for _, name := range slices.Sorted(maps.Keys(o.Rest())) {
		if name == "default" {
			p.Bandwidth = o.NotNegative(name, Free())
			continue
		}
		var x, y int
		if n, err := fmt.Sscanf(name, "%d-%d", &x, &y); n != 2 || err != nil || name != fmt.Sprintf("%d-%d", x, y) {
			return &fields.Error{Field: name, Reason: `is neither "default" nor two devices such as "0-1"`}
		}
		if p.Pairs == nil {
			p.Pairs = map[[2]int]float64{}
		}
		p.Pairs[[2]int{x, y}] = o.NotNegative(name, Free())
	}
	return o.Err()
}

func lists[T any](all []T, list func(T) fields.List) []fields.List {
	out := make([]fields.List, len(all))
	for i, x := range all {
		out[i] = list(x)
	}
	return out
}

// objects reads an array of objects; errors name the position of the bad one.
func objects[T any](what string, raw []json.RawMessage, read func(*fields.Object) (T, error)) ([]T, error) {
	out := make([]T, len(raw))
	for i, r := range raw {
		o, err := fields.Parse(r)
		if err == nil {
			out[i], err = read(o)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", what, i, err)
		}
	}
	return out, nil
}
