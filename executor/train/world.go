package train

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/gob"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/cores"
	"plimsoll/runtime/world"
)

// World is the processes of a run, each with some of its devices: those of rank 0 are the first. Rank 0 plans, logs and writes; all
// others do the same work with their own devices, and write the shards of their stages.
type World struct {
	*world.World
	transport world.Transport
	ranks     []int // by device: of the process that has it
	cores     int   // of a process: those of its machine, divided
	doing     *Doing
}

// Doing says what a process does, to whoever asks.
type Doing struct{ of atomic.Pointer[pipe.Executor] }

// String says it.
func (d *Doing) String() string {
	if e := d.of.Load(); e != nil {
		return e.Status()
	}
	return "has not begun"
}

// NewWorld joins the devices of all processes, of which this one has so many. All processes call it together. doing will say what this
// one does.
func NewWorld(ctx context.Context, w *world.World, transport world.Transport, devices int, doing *Doing) (*World, error) {
	all := &World{World: w, transport: transport, doing: doing}
	type member struct{ Devices, Cores int }
	members, err := gather(ctx, all, member{devices, cores.Count()})
	if err != nil {
		return nil, err
	}
	processes := map[string]int{}
	for _, host := range w.Hosts() {
		processes[host]++
	}
	all.cores = math.MaxInt
	for rank, m := range members {
		if m.Devices < 1 {
			return nil, fmt.Errorf("rank %d has %d devices", rank, m.Devices)
		}
		all.ranks = append(all.ranks, slices.Repeat([]int{rank}, m.Devices)...)
		all.cores = min(all.cores, max(1, m.Cores/processes[w.Hosts()[rank]]))
	}
	return all, nil
}

// OpenJob opens a job in all processes: in rank 0 first, and then in the others, whose kernels repeat the choices of rank 0's. All
// processes call it together. Without a world it is Open.
func (w *World) OpenJob(ctx context.Context, s Spec) (*Job, error) {
	if w == nil {
		return Open(s)
	}
	var err error
	if w.Rank() > 0 {
		if s.Kernels.Choices, err = w.Broadcast(ctx, 0, nil); err != nil {
			return nil, err
		}
		return Open(s)
	}
	j, err := Open(s)
	if err == nil {
		_, err = w.Broadcast(ctx, 0, j.Kernels.Choices)
	}
	return j, err
}

// Threads returns how many the kernels of each process have where nobody says it: its part of the cores of its machine. All have the
// same number, which decides how much memory kernels work in.
func (w *World) Threads() int {
	if w == nil {
		return 0
	}
	return w.cores
}

// Name returns a name that no other run has; "" of a run in one process.
func (w *World) Name() string {
	if w == nil {
		return ""
	}
	return rand.Text()
}

// Meet waits until all processes have called it.
func (w *World) Meet(ctx context.Context) error {
	_, err := w.AllGather(ctx, []byte{1})
	return err
}

// name says which process a rank is.
func (w *World) name(rank int) string { return fmt.Sprintf("rank %d on %s", rank, w.Hosts()[rank]) }

// Local returns the number of this process among those of its machine.
func (w *World) Local() int {
	if w == nil {
		return 0
	}
	return w.countHere(w.Rank())
}

// here returns the number of processes on this machine.
func (w *World) here() int {
	if w == nil {
		return 1
	}
	return w.countHere(w.Size())
}

// countHere returns how many of the first processes are on this machine.
func (w *World) countHere(first int) (n int) {
	hosts := w.Hosts()
	for _, host := range hosts[:first] {
		if host == hosts[w.Rank()] {
			n++
		}
	}
	return n
}

// Devices returns how many devices all processes have together.
func (w *World) Devices() int { return len(w.ranks) }

// describe returns the world as an executor sees it.
func (w *World) describe() *pipe.World {
	return &pipe.World{Ranks: w.ranks, Rank: w.Rank(), Transport: w.transport, Broadcast: w.Broadcast, Fail: w.Fail}
}

// Links measures how fast messages go between each two processes (world.HostBytes). Nothing else goes by this world's transport then.
func (w *World) Links(ctx context.Context) (map[[2]int]float64, error) {
	t, able := w.transport.(*world.HostBytes)
	if !able {
		return nil, fmt.Errorf("%w: --transport nccl: links are measured between programs, with --transport tcp or mpi", ErrSpec)
	}
	return t.Links(ctx)
}

// Leave leaves the world, and then what moves its messages.
func (w *World) Leave(ctx context.Context) error {
	if err := w.World.Leave(ctx); err != nil {
		return err
	}
	return w.transport.Close()
}

// within returns the context in which the processes work together; that of a run in one process is ctx.
func (w *World) within(ctx context.Context) context.Context {
	if w == nil {
		return ctx
	}
	return w.Context()
}

// ended reports whether there is a world, and it has.
func (w *World) ended() bool { return w != nil && w.Context().Err() != nil }

// Fail tells all processes that this one goes on no more. Receives that wait fail.
func (w *World) Fail(err error) {
	w.World.Fail(err)
	_ = w.transport.Close() // what waits ends
}

// Topics of what the processes of a run tell each other.
const (
	resultTopic  = "result"  // of a minibatch
	countedTopic = "counted" // steps that are logged
	shardTopic   = "shard"   // of a checkpoint
	stopTopic    = "stop"    // somebody was asked to
	knownTopic   = "known"   // minibatches, by who stops
)

// post tells all processes something.
func (w *World) post(topic string, what any) {
	b, err := encode(what)
	if err == nil {
		err = w.Post(topic, b)
	}
	if err != nil {
		w.Fail(err)
	}
}

// encode and decode are for what JSON has no numbers for: losses may be none.
func encode(what any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(what)
	return b.Bytes(), err
}

func decode(data []byte, to any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(to) }

// hear calls do for all that is told of a topic, in one order everywhere.
func hear[T any](w *World, topic string, do func(from int, what T)) {
	w.Handle(topic, func(from int, data []byte) {
		var what T
		if err := decode(data, &what); err != nil {
			w.Fail(fmt.Errorf("rank %d: message %q: %w", from, topic, err))
			return
		}
		do(from, what)
	})
}

// gather returns the value that each process gives, by rank. All processes call it together.
func gather[T any](ctx context.Context, w *World, what T) (all []T, err error) {
	b, err := encode(what)
	if err != nil {
		return nil, err
	}
	parts, err := w.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	all = make([]T, len(parts))
	for rank, part := range parts {
		if err := decode(part, &all[rank]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// toldShard is the outcome of saving a shard of the state after a step.
type toldShard struct {
	Step, Shard int
	SHA256      string
	Error       string
}

func (w *World) postShard(step, shard int, sum string, err error) {
	x := toldShard{Step: step, Shard: shard, SHA256: sum}
	if err != nil {
		x.Error = err.Error()
	}
	w.post(shardTopic, x)
}
