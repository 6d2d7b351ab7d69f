package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"plimsoll/executor/train"
)

// counted is what a process tells the others of its devices.
type counted struct {
	Figures []deviceFigures
	Peers   []peerFigure
	Links   []linkOf // between its own devices
}

// linkOf is a link between two devices of a list, in ascending order.
type linkOf struct {
	Ends [2]int
	Rate float64
}

// inspectAll is inspect for the devices of all processes, and measures what goes between these.
func (f *devicesFlags) inspectAll(ctx context.Context, w *train.World) (*inventory, error) {
	own, err := f.inspect(ctx, w)
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
	all := &inventory{links: map[[2]int]float64{}}
	for rank, text := range texts {
		var c counted
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("the devices of rank %d: %w", rank, err)
		}
		all.add(rank, &c, links)
	}
	hosts := w.Hosts()
	for y := range w.Size() {
		for x := range y {
			between := [2]string{fmt.Sprintf("rank %d on %s", x, hosts[x]), fmt.Sprintf("rank %d on %s", y, hosts[y])}
			all.peers = append(all.peers, peerFigure{between, rate(links[[2]int{x, y}])})
		}
	}
	return all, nil
}

// counted returns what others are told of the devices.
func (v *inventory) counted() *counted {
	c := &counted{Figures: v.figures, Peers: v.peers}
	for y := range v.figures {
		for x := range y {
			if speed, joined := v.links[[2]int{v.of[x], v.of[y]}]; joined {
				c.Links = append(c.Links, linkOf{[2]int{x, y}, speed})
			}
		}
	}
	return c
}

// add adds the devices of a process behind those of the ones before. Between processes a link is theirs.
func (v *inventory) add(rank int, c *counted, between map[[2]int]float64) {
	first := len(v.figures)
	for i, d := range c.Figures {
		for x := range first {
			v.links[[2]int{x, first + i}] = max(1, math.Round(between[[2]int{v.ranks[x], rank}]))
		}
		d.Name = fmt.Sprintf("rank %d, %s", rank, d.Name)
		v.figures, v.of, v.ranks = append(v.figures, d), append(v.of, first+i), append(v.ranks, rank)
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
