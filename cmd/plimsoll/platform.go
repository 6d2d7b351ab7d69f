package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"plimsoll/bench"
	"plimsoll/executor/train"
	"plimsoll/internal/cores"
	"plimsoll/internal/units"
	"plimsoll/kernels/library"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/devices"
)

// place is where a device is: its machine and, of a GPU, which of that machine's it is a part of.
type place struct{ Host, GPU string }

// inventory is devices that are open, and what was measured on them. The parts of one device are alike: what is measured on
// the first of them, or between the first two, holds for all.
type inventory struct {
	items   []devices.Item
	devices []runtime.Device
	of      []int   // of each device: its item
	ranks   []int   // likewise: its process, where there are several
	places  []place // likewise
	figures []deviceFigures
	peers   []peerFigure
	links   map[[2]int]float64 // by two items in ascending order, the same one for parts: bytes/s
}

// inspect opens and measures the devices.
func (c *devicesCommand) inspect(ctx context.Context, w *train.World) (v *inventory, err error) {
	v = &inventory{links: map[[2]int]float64{}}
	if v.items, err = devices.Parse(c.spec); err != nil {
		return nil, err
	}
	v.devices, err = devices.Open(c.spec, devices.Options{Bandwidth: float64(c.bandwidth), PeerBandwidth: float64(c.peerBandwidth), Until: ctx, Local: w.Local()})
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, d := range v.devices {
			err = errors.Join(err, d.Close())
		}
	}()
	for i, item := range v.items {
		for range max(item.Parts, 1) {
			v.of = append(v.of, i)
		}
	}
	if len(v.of) != len(v.devices) {
		return v, fmt.Errorf("BUG: %s opens %d devices, expected %d", c.spec, len(v.devices), len(v.of))
	}
	if err := v.measure(ctx); err != nil {
		return v, err
	}
	return v, v.measurePeers(ctx)
}

// part returns the k-th device of an item.
func (v *inventory) part(item, k int) runtime.Device {
	for i, of := range v.of {
		if of == item {
			return v.devices[i+k]
		}
	}
	panic(fmt.Sprintf("BUG: no device of item %d", item))
}

// measure fills in the figures of every device.
func (v *inventory) measure(ctx context.Context) error {
	speeds := make([][2]float64, len(v.items))
	for i := range v.items {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if speeds[i][0], speeds[i][1], err = bench.CopyBandwidth(v.part(i, 0)); err != nil {
			return err
		}
	}
	for i, d := range v.devices {
		var err error
		info, speed := d.Info(), speeds[v.of[i]]
		figures := deviceFigures{
			Name: info.Name, Kind: info.Kind, Model: info.Model, MemoryBytes: info.Memory,
			ToDevice: rate(speed[0]), ToHost: rate(speed[1]),
		}
		if info.Kind == "host" {
			if figures.Cores, figures.Library, err = processor(d); err != nil {
				return err
			}
		}
		v.figures = append(v.figures, figures)
	}
	return nil
}

// processor says with how many cores and which kernels the CPU computes, or why it has no kernels.
func processor(d runtime.Device) (count int, kernels string, err error) {
	lib, err := library.Open(d, library.Options{})
	if errors.Is(err, library.ErrNone) {
		return cores.Count(), oneLine(err), nil // which says why, and what to do
	}
	if err != nil {
		return 0, "", err
	}
	return cores.Count(), lib.Name(), nil
}

// measurePeers fills in the links between devices of one kind: between two items, and between the parts of one.
func (v *inventory) measurePeers(ctx context.Context) error {
	for i, item := range v.items {
		if item.Parts > 1 {
			if err := v.part(i, 1).Reserve(bench.CopyBytes, 0); err != nil {
				return err
			}
			if err := v.peer(ctx, i, i, v.part(i, 1)); err != nil {
				return err
			}
		}
		for j := range i {
			if err := v.peer(ctx, j, i, v.part(i, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// peer measures the link from the first part of an item to a device of another one, or of the same: its slower direction.
// Devices of different kinds have none.
func (v *inventory) peer(ctx context.Context, from, to int, peer runtime.Device) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	first := v.part(from, 0)
	if first.Info().Kind != peer.Info().Kind {
		return nil
	}
	there, err := bench.PeerBandwidth(first, peer)
	if err != nil {
		return err
	}
	back, err := bench.PeerBandwidth(peer, first)
	if err != nil {
		return err
	}
	speed := max(1, math.Round(min(there, back)))
	v.links[[2]int{from, to}] = speed
	v.peers = append(v.peers, peerFigure{[2]string{v.items[from].String(), v.items[to].String()}, rate(speed)})
	return nil
}

// platform returns the devices as a platform of pipelines, with the links of some levels, or each by itself where there are none. The zero
// memory is what each can have.
func (v *inventory) platform(memory units.Size, levels []pipeline.Level) (*pipeline.Platform, error) {
	if n := len(v.figures); n > pipeline.MaxDevices {
		return nil, fmt.Errorf("%d devices: a platform has at most %d", n, pipeline.MaxDevices)
	}
	p := &pipeline.Platform{Devices: len(v.figures), Bandwidth: pipeline.Free()}
	for _, d := range v.figures {
		bytes := d.MemoryBytes
		if !memory.IsZero() {
			bytes = memory.Of(bytes)
		}
		p.Memory = append(p.Memory, bytes)
	}
	for y := range v.figures {
		for x := range y {
			speed, joined := v.links[[2]int{v.of[x], v.of[y]}]
			if !joined {
				return nil, fmt.Errorf("%s and %s are of different kinds, between which nothing is copied: give devices of one kind",
					v.figures[x].Name, v.figures[y].Name)
			}
			p.Bandwidth = min(p.Bandwidth, speed)
		}
	}
	p.Host = v.host()
	switch len(levels) {
	case 0:
		p.Pairs = v.pairs(p.Bandwidth)
	case 1: // all links are alike
		p.Bandwidth = levels[0].Bandwidth
	default:
		p.Bandwidth, p.Levels = levels[len(levels)-1].Bandwidth, levels
	}
	return p, nil
}

// host returns the bandwidth of the slowest link to host memory, in its slower direction; 0 where copies take no time.
func (v *inventory) host() float64 {
	slowest := math.Inf(1)
	for _, f := range v.figures {
		slowest = min(slowest, float64(f.ToDevice), float64(f.ToHost))
	}
	if math.IsInf(slowest, 1) {
		return 0
	}
	return max(1, math.Round(slowest))
}

// pairs returns the links that are faster than the slowest one; nil when none is.
func (v *inventory) pairs(slowest float64) map[[2]int]float64 {
	var pairs map[[2]int]float64
	for y := range v.figures {
		for x := range y {
			if speed := v.links[[2]int{v.of[x], v.of[y]}]; speed > slowest {
				if pairs == nil {
					pairs = map[[2]int]float64{}
				}
				pairs[[2]int{x, y}] = speed
			}
		}
	}
	return pairs
}
