package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"plimsoll/executor/train"
)

// counted is a process's message to the others about its devices.
type counted struct {
	Figures []deviceFigures
	Peers   []peerFigure
	Links   []linkOf // between its own devices
	GPUs    []string // by device: on its bus; "" for what is none
}

// linkOf is a link between two devices of a list, in ascending order.
type linkOf struct {
	Ends [2]int
	Rate float64
}

// inspectAll is inspect for the devices of all processes, and measures what goes between these.
func (c *devicesCommand) inspectAll(ctx context.Context, w *train.World) (*inventory, error) {
	own, err := c.inspect(ctx, w)
	if err != nil {
		return nil, err
	}
	links, err := w.Links(ctx)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(own.counted())
	if err != nil {
		return nil, err
	}
	texts, err := w.AllGather(ctx, text)
	if err != nil {
		return nil, err
	}
	all, hosts := &inventory{links: map[[2]int]float64{}}, w.Hosts()
	for rank, text := range texts {
		var told counted
		if err := json.Unmarshal(text, &told); err != nil {
			return nil, fmt.Errorf("the devices of rank %d: %w", rank, err)
		}
		if len(told.GPUs) != len(told.Figures) {
			return nil, fmt.Errorf("rank %d has %d devices and %d places of them", rank, len(told.Figures), len(told.GPUs))
		}
		all.add(rank, hosts[rank], &told, links)
	}
	for y := range w.Size() {
		for x := range y {
			between := [2]string{fmt.Sprintf("rank %d on %s", x, hosts[x]), fmt.Sprintf("rank %d on %s", y, hosts[y])}
			all.peers = append(all.peers, peerFigure{between, rate(links[[2]int{x, y}])})
		}
	}
	return all, nil
}

// counted returns the message to the others about the devices.
func (v *inventory) counted() *counted {
	c := &counted{Figures: v.figures, Peers: v.peers}
	for _, d := range v.devices {
		gpu := ""
		if d, ok := d.(interface{ Bus() string }); ok {
			gpu = d.Bus()
		}
		c.GPUs = append(c.GPUs, gpu)
	}
	for y := range v.figures {
		for x := range y {
			if speed, joined := v.links[[2]int{v.of[x], v.of[y]}]; joined {
				c.Links = append(c.Links, linkOf{[2]int{x, y}, speed})
			}
		}
	}
	return c
}

// add adds the devices of a process on a host behind those of the ones before. Between processes a link is theirs.
func (v *inventory) add(rank int, host string, c *counted, between map[[2]int]float64) {
	first := len(v.figures)
	for i, d := range c.Figures {
		for x := range first {
			v.links[[2]int{x, first + i}] = max(1, math.Round(between[[2]int{v.ranks[x], rank}]))
		}
		d.Name = fmt.Sprintf("rank %d, %s", rank, d.Name)
		v.figures, v.of, v.ranks = append(v.figures, d), append(v.of, first+i), append(v.ranks, rank)
		v.places = append(v.places, place{host, c.GPUs[i]})
	}
	for _, l := range c.Links {
		v.links[[2]int{first + l.Ends[0], first + l.Ends[1]}] = l.Rate
	}
	for _, p := range c.Peers {
		for i := range p.Between {
			p.Between[i] = fmt.Sprintf("rank %d, %s", rank, p.Between[i])
		}
		v.peers = append(v.peers, p)
	}
}
