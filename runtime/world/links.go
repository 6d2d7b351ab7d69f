package world

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Sizes of a measurement: messages as long as those of large models, so many that starting is no part of the time.
const (
	probeBytes = 4 << 20
	probes     = 8
)

// Links measures how fast messages go between each two processes, over a transport that moves nothing else: bytes/s by the two ranks
// in ascending order, of the slower direction. It is collective; two processes at a time use the network.
func (h *HostBytes) Links(ctx context.Context) (map[[2]int]float64, error) {
	w := h.world
	var ways []Way
	for y := range w.Size() {
		for x := range y {
			for _, ends := range [][2]int{{x, y}, {y, x}} {
				ways = append(ways, Way{Name: fmt.Sprintf("probe from rank %d to %d", ends[0], ends[1]), From: ends[0], To: ends[1], Bytes: probeBytes})
			}
		}
	}
	if err := h.open(ctx, ways); err != nil {
		return nil, err
	}
	own := map[int]float64{} // by way
	buffer := make([]byte, probeBytes)
	for way := range ways {
		if _, err := w.AllGather(ctx, nil); err != nil { // the way before is through
			return nil, err
		}
		rate, err := h.probe(way, way^1, ways[way], buffer)
		if err != nil {
			return nil, err
		}
		if rate > 0 {
			own[way] = rate
		}
	}
	return w.slower(ctx, ways, own)
}

// probe measures a way, by an answer on the way back; 0 where this process does not send on it.
func (h *HostBytes) probe(there, back int, way Way, buffer []byte) (rate float64, err error) {
	switch h.world.Rank() {
	case way.From:
		var begun time.Time
		for i := range 1 + probes {
			if i == 1 { // the first one opens what opens late
				begun = time.Now()
			}
			if err := h.SendBytes(there, buffer); err != nil {
				return 0, err
			}
		}
		err := h.ReceiveBytes(back, nil)
		return probes * probeBytes / time.Since(begun).Seconds(), err
	case way.To:
		for range 1 + probes {
			if err := h.ReceiveBytes(there, buffer); err != nil {
				return 0, err
			}
		}
		return 0, h.SendBytes(back, nil)
	}
	return 0, nil
}

// slower tells all processes what each has measured, and keeps the slower direction.
func (w *World) slower(ctx context.Context, ways []Way, own map[int]float64) (map[[2]int]float64, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := w.AllGather(ctx, text)
	if err != nil {
		return nil, err
	}
	links := map[[2]int]float64{}
	for rank, text := range texts {
		var measured map[int]float64
		if err := json.Unmarshal(text, &measured); err != nil {
			return nil, fmt.Errorf("what rank %d has measured: %w", rank, err)
		}
		for way, rate := range measured {
			if way < 0 || way >= len(ways) {
				continue
			}
			ends := [2]int{min(ways[way].From, ways[way].To), max(ways[way].From, ways[way].To)}
			if was, ok := links[ends]; !ok || rate < was {
				links[ends] = rate
			}
		}
	}
	return links, nil
}
