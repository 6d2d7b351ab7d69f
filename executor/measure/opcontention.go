package measure

import (
	"context"
	"errors"
	"time"

	"plimsoll/kernels"
	"plimsoll/planner/chain"
	"plimsoll/runtime"
)

// hostUpdateSteps is the most steps that are measured beside updates on the host: of each round one alone and one beside them.
const hostUpdateSteps = 2 * besideRounds

// opBesides are the seconds of steps, alone and beside updates on the host, and of these updates, alone and beside steps.
type opBesides struct {
	steps, updates [2][]float64
}

// besideUpdates measures what the ops of steps and updates of the largest class on the host take from each other, in turns, and writes it into
// the chain. The updates go through the host's windows of the link. Nothing is written where the host cannot update them. step is called
// hostUpdateSteps times.
func (m *prober) besideUpdates(ctx context.Context, s *session, c *chain.Chain) error {
	for range hostUpdateSteps {
		defer s.step()
	}
	launches, err := m.hostUpdates(s)
	if err != nil || len(launches) == 0 {
		return err
	}
	b := &opBesides{}
	_, err = inRounds(s.opt.rounds(besideRounds), s.opt.Enough, func(int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return m.stepBesideUpdates(b, launches, s.opt.lasting(hostBesideFor))
	})
	if err != nil {
		return err
	}
	b.write(c)
	return nil
}

// hostUpdates prepares updates of the largest class in the host's windows of the link; none: nothing updates them there.
func (m *prober) hostUpdates(s *session) ([]runtime.Launch, error) {
	classes := updateClasses(s.Workload)
	if s.opt.OpenHost == nil || len(classes) == 0 {
		return nil, nil
	}
	onHost, err := s.opt.OpenHost(m.device)
	if err != nil || onHost == nil {
		return nil, err
	}
	memory, err := m.device.HostBytes(m.host.probe)
	if err != nil {
		return nil, err
	}
	for i := range memory {
		memory[i] = 0x3f // as the memory of updateMeter
	}
	kernels.Scalars{GradScale: 1, Update: 1}.Put(memory[:kernels.ScalarsBytes])
	room, err := newUpdateRoom(onHost, s.Optimizer, m.host.probe, largestClass(classes).updates)
	if errors.Is(err, kernels.ErrNoKernel) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return room.prepare(onHost, s.Optimizer)
}

// stepBesideUpdates measures a step and updates, each alone, updates for as long as lasting, and then both side by side.
func (m *prober) stepBesideUpdates(b *opBesides, launches []runtime.Launch, lasting time.Duration) error {
	alone, err := m.Step()
	if err != nil {
		return err
	}
	b.steps[0] = append(b.steps[0], alone.Sequence)
	seconds, err := whileUpdating(launches, func() error { time.Sleep(lasting); return nil })
	if err != nil {
		return err
	}
	b.updates[0] = append(b.updates[0], seconds)
	seconds, err = whileUpdating(launches, func() error {
		beside, err := m.Step()
		if err == nil {
			b.steps[1] = append(b.steps[1], beside.Sequence)
		}
		return err
	})
	b.updates[1] = append(b.updates[1], seconds)
	return err
}

// whileUpdating runs do while updates run on the host, and returns the seconds of one update.
func whileUpdating(launches []runtime.Launch, do func() error) (seconds float64, err error) {
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		begun := time.Now()
		for runs := 1; ; runs++ {
			if err := launches[runs%len(launches)].(interface{ Run() error }).Run(); err != nil {
				failed <- err
				return
			}
			select {
			case <-stop:
				seconds = time.Since(begun).Seconds() / float64(runs)
				failed <- nil
				return
			default:
			}
		}
	}()
	err = do()
	close(stop)
	return seconds, errors.Join(err, <-failed)
}

// write writes the factors into a chain.
func (b *opBesides) write(c *chain.Chain) {
	ops, updates := factor(b.steps[1], b.steps[0]), factor(b.updates[1], b.updates[0])
	c.OpsBesideHostUpdates, c.HostUpdatesBesideOps = &ops, &updates
}
