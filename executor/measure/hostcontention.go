package measure

import (
	"context"
	"errors"
	"time"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
)

// A measurement of updates on the host beside copies has as many rounds as an exercise has measured steps, up to hostBesideRounds. In each,
// updates run for hostBesideFor, or less (ProfileOptions.lasting), beside copies of every direction, and copies of every direction run alone. The time of a copy is such that
// many run meanwhile.
const (
	hostBesideRounds = 4
	hostBesideFor    = 20 * time.Millisecond
	hostBesideCopy   = time.Millisecond
)

// hostBesides are the seconds of an update on the host, by what copies beside it, and bytes/s of copies one way, alone and beside updates.
type hostBesides struct {
	updates       [len(besideWays)][]float64
	alone, beside [2][]float64
}

// contend measures what updates of a class on the host and copies take from each other, in turns, and writes it into the chain. A class
// that the host cannot update, and a space without room, leave the chain as it is.
func (m *updateMeter) contend(ctx context.Context, class *updateClass, c *chain.Chain) error {
	half := runtime.Span{Space: runtime.Host, Bytes: m.host / 2}
	room, err := newUpdateRoom(m.onHost, m.Optimizer, half, class.updates)
	if errors.Is(err, kernels.ErrNoKernel) {
		return nil
	}
	if err != nil {
		return err
	}
	launches, err := room.prepare(m.onHost, m.Optimizer)
	if err != nil {
		return err
	}
	copies, err := m.copiesBeside(c.Bandwidth)
	if err != nil || copies == nil {
		return err
	}
	b := &hostBesides{}
	_, err = inRounds(m.opt.rounds(hostBesideRounds), m.opt.Enough, func(int) error {
		for way := range besideWays {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := m.updateBeside(b, way, copies, launches); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.write(c)
	return nil
}

// copiesBeside returns copies to the host and to the device, through windows of a half of the arena and of a quarter of the host space. It
// returns nil where these have no room.
func (m *updateMeter) copiesBeside(bandwidth float64) (copies []*probe, err error) {
	down := func(bytes int64) int64 { return bytes / kernels.Alignment * kernels.Alignment }
	device, host := down(m.arena/2), down(m.host/4)
	bytes := down(min(device, host, probeBytes, max(int64(bandwidth*hostBesideCopy.Seconds()), firstProbe)))
	if bytes == 0 {
		return nil, nil
	}
	for way, name := range []string{chain.ToHost: "copies to host", chain.ToDevice: "copies to device"} {
		of := runtime.Span{Offset: int64(way) * device, Bytes: device}
		at := runtime.Span{Space: runtime.Host, Offset: m.host - int64(way+1)*host, Bytes: host}
		dst, src := at, of
		if way == chain.ToDevice {
			dst, src = of, at
		}
		d, err := newProbe(m.target.Device, name, dst, src)
		if err != nil {
			return nil, err
		}
		d.bytes = bytes
		copies = append(copies, d)
	}
	return copies, nil
}

// updateBeside runs updates beside the copies of a way, and copies of one way alone.
func (m *updateMeter) updateBeside(b *hostBesides, way int, copies []*probe, launches []runtime.Launch) error {
	lasting := m.opt.lasting(hostBesideFor)
	var beside []*probe
	for _, i := range besideWays[way] {
		beside = append(beside, copies[i])
	}
	rates, err := whileCopying(beside, func() error {
		begun, runs := time.Now(), 0
		for ; time.Since(begun) < lasting; runs++ {
			if _, err := m.onThreads(launches[runs%len(launches)]); err != nil {
				return err
			}
		}
		b.updates[way] = append(b.updates[way], time.Since(begun).Seconds()/float64(runs))
		return nil
	})
	if err != nil || len(beside) != 1 {
		return err
	}
	alone, err := whileCopying(beside, func() error { time.Sleep(lasting); return nil })
	if err != nil {
		return err
	}
	i := besideWays[way][0]
	b.beside[i], b.alone[i] = append(b.beside[i], rates[0]), append(b.alone[i], alone[0])
	return nil
}

// write writes the factors into a chain.
func (b *hostBesides) write(c *chain.Chain) {
	c.HostUpdatesBeside, c.CopiesBesideHostUpdates = new(chain.Beside), new(chain.CopiesBeside)
	for way := range c.HostUpdatesBeside {
		c.HostUpdatesBeside[way] = factor(b.updates[way+1], b.updates[0])
	}
	for way := range c.CopiesBesideHostUpdates {
		c.CopiesBesideHostUpdates[way] = factor(b.alone[way], b.beside[way])
	}
}
