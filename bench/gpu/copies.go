package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// copyRow is a bandwidth. Bytes are counted once, also for copies within the device, which read and write them.
type copyRow struct {
	Direction string  `json:"direction"`
	Bytes     int64   `json:"bytes"` // of a copy
	Rate      float64 `json:"bytes_per_s"`
}

// slowdownRow is the slowdown of kernels by copies in both directions beside them.
type slowdownRow struct {
	Kernel string  `json:"kernel"`
	Alone  float64 `json:"alone_s"`
	Beside float64 `json:"beside_copies_s"`
}

// lane is one direction of copies, on a stream of its own.
type lane struct {
	name       string
	stream     runtime.Stream
	start, end runtime.Event
	dst, src   runtime.Span
}

const (
	toHost = iota
	toDevice
	within
)

func measureCopies(ctx context.Context, p *part) error {
	sizes, matrix := []int64{1 << 20, 16 << 20, 256 << 20}, 4096
	if p.tiny {
		sizes, matrix = []int64{1 << 12, 1 << 18}, 32
	}
	largest := sizes[len(sizes)-1]
	r, err := p.rig(8*largest, 2*largest)
	if err != nil {
		return err
	}
	figures := struct {
		Copies   []copyRow     `json:"copies"`
		Slowdown []slowdownRow `json:"slowdown"`
	}{}
	p.printf("| copies | size | bandwidth |\n|---|---|---|\n")
	for _, size := range sizes {
		if err := ctx.Err(); err != nil {
			return cmp.Or(r.close(), err)
		}
		rows, err := r.copies(size, largest)
		if err != nil {
			return cmp.Or(r.close(), err)
		}
		for _, row := range rows {
			p.printf("| %s | %s | %s |\n", row.Direction, units.Bytes(row.Bytes), units.Rate(row.Rate, "B"))
		}
		figures.Copies = append(figures.Copies, rows...)
		p.Summary = fmt.Sprintf("to host %s, to device %s, within the device %s", units.Rate(rows[0].Rate, "B"), units.Rate(rows[1].Rate, "B"), units.Rate(rows[2].Rate, "B"))
	}
	if figures.Slowdown, err = r.slowdowns(matrix, largest); err != nil {
		return cmp.Or(r.close(), err)
	}
	p.printf("\n| kernel | alone | beside copies both ways | slowdown |\n|---|---|---|---|\n")
	for _, row := range figures.Slowdown {
		p.printf("| %s | %s | %s | %.2f |\n", row.Kernel, units.Seconds(row.Alone), units.Seconds(row.Beside), row.Beside/row.Alone)
	}
	return cmp.Or(p.save(figures), r.close())
}

// lanes makes the three directions, in the lower half of the arena.
func (r *rig) lanes(size, largest int64) ([]*lane, error) {
	device := func(k int64) runtime.Span { return runtime.Span{Offset: k * largest, Bytes: size} }
	host := func(k int64) runtime.Span { return runtime.Span{Space: runtime.Host, Offset: k * largest, Bytes: size} }
	all := []*lane{
		{name: "to host", dst: host(0), src: device(0)},
		{name: "to device", dst: device(1), src: host(1)},
		{name: "within the device", dst: device(2), src: device(3)},
	}
	for _, l := range all {
		ends, err := events(r.Device, 2)
		if err != nil {
			return nil, err
		}
		l.start, l.end = ends[0], ends[1]
		if l.stream, err = r.Device.NewStream(l.name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// copies measures each direction alone, and the two of the link together.
func (r *rig) copies(size, largest int64) (rows []copyRow, err error) {
	lanes, err := r.lanes(size, largest)
	if err != nil {
		return nil, err
	}
	for _, l := range lanes {
		rates, err := together([]*lane{l})
		if err != nil {
			return nil, err
		}
		rows = append(rows, copyRow{l.name, size, rates[0]})
	}
	rates, err := together(lanes[:within])
	if err != nil {
		return nil, err
	}
	for i, l := range lanes[:within] {
		rows = append(rows, copyRow{l.name + ", with the other direction", size, rates[i]})
	}
	return rows, nil
}

// longEnough is how long copies go on at least, in seconds.
const longEnough = 0.05

// together lets lanes copy at the same time, more and more often until all take long enough, and returns the bandwidth
// of each.
func together(lanes []*lane) ([]float64, error) {
	for times := 1; ; times *= 2 {
		rates, shortest := make([]float64, len(lanes)), 0.0
		if err := copyAll(lanes, times); err != nil {
			return nil, err
		}
		for i, l := range lanes {
			took, err := l.seconds()
			if err != nil {
				return nil, err
			}
			rates[i] = float64(times) * float64(l.src.Bytes) / max(took, 1e-9)
			if i == 0 || took < shortest {
				shortest = took
			}
		}
		if shortest >= longEnough {
			return rates, nil
		}
	}
}

func copyAll(lanes []*lane, times int) (err error) {
	for _, l := range lanes {
		err = cmp.Or(err, l.stream.Record(l.start))
	}
	for range times {
		for _, l := range lanes {
			err = cmp.Or(err, l.stream.Copy(l.dst, l.src))
		}
	}
	for _, l := range lanes {
		err = cmp.Or(err, l.stream.Record(l.end))
	}
	return cmp.Or(err, finish(lanes))
}

func finish(lanes []*lane) (err error) {
	for _, l := range lanes {
		err = cmp.Or(err, l.stream.Synchronize())
	}
	return err
}

func (l *lane) seconds() (float64, error) {
	took, err := l.end.Since(l.start)
	return took.Seconds(), err
}

// slowdowns times a kernel bound by arithmetic and one bound by memory.
func (r *rig) slowdowns(matrix int, largest int64) (rows []slowdownRow, err error) {
	upper := runtime.Span{Offset: 4 * largest, Bytes: 4 * largest}
	for _, k := range []struct {
		name string
		call kernels.Call
	}{
		{fmt.Sprintf("%[1]d x %[1]d x %[1]d product", matrix), kernels.Call{Op: kernels.Linear{Out: matrix}, In: []kernels.Desc{kernels.F32(matrix, matrix)}}},
		{"ReLU", kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(int(largest / 8))}}},
	} {
		op, err := r.place(k.call, upper)
		if err != nil {
			return nil, err
		}
		row := slowdownRow{Kernel: k.name}
		if row.Alone, err = r.time(nil, op.issue); err != nil {
			return nil, err
		}
		if row.Beside, err = r.beside(op, largest); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// beside times a launch while both directions of the link copy.
func (r *rig) beside(op *placed, largest int64) (took float64, err error) {
	lanes, err := r.lanes(largest, largest)
	if err != nil {
		return 0, err
	}
	lanes = lanes[:within]
	var copying sync.WaitGroup
	var stop atomic.Bool
	failed := make([]error, len(lanes))
	for i, l := range lanes {
		copying.Go(func() { failed[i] = l.copyUntil(&stop) })
	}
	took, err = r.time(nil, op.issue)
	stop.Store(true)
	copying.Wait()
	return took, cmp.Or(err, cmp.Or(failed...), finish(lanes))
}

// copyUntil copies on and on, with a few copies issued ahead, until it is told to stop.
func (l *lane) copyUntil(stop *atomic.Bool) error {
	const ahead = 16
	for next, last := l.end, l.start; !stop.Load(); next, last = last, next {
		for range ahead {
			if err := l.stream.Copy(l.dst, l.src); err != nil {
				return err
			}
		}
		if err := cmp.Or(l.stream.Record(next), last.Synchronize()); err != nil {
			return err
		}
	}
	return nil
}
