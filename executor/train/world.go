package train

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/gob"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
	"plimsoll/internal/cores"
	"plimsoll/planner/pipeline"
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
		if s.Choices, err = w.Broadcast(ctx, 0, nil); err != nil {
			return nil, err
		}
		return Open(s)
	}
	j, err := Open(s)
	if err == nil {
		_, err = w.Broadcast(ctx, 0, j.Choices)
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
func (w *World) Local() (n int) {
	if w == nil {
		return 0
	}
	hosts := w.Hosts()
	for _, host := range hosts[:w.Rank()] {
		if host == hosts[w.Rank()] {
			n++
		}
	}
	return n
}

// here returns the number of processes on this machine.
func (w *World) here() (n int) {
	if w == nil {
		return 1
	}
	hosts := w.Hosts()
	for _, host := range hosts {
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

// gather returns what each process gives, by rank. All processes call it together.
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

// toldShard is what became of a shard of the state behind a step.
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

// members lets the loop of each process hear what the others tell.
type members struct {
	*World
	c     *pipelineEngine
	mu    sync.Mutex
	moved *sync.Cond
	begun sync.Once // of the results
	next  int       // the microbatch whose result is next
	over  bool      // no more come
	known []known
	heard int
}

// known is where a process is when it is to stop.
type known struct {
	Runs        int
	Minibatches []int
}

func newMembers(c *pipelineEngine, w *World) *members {
	m := &members{World: w, c: c, next: c.next, known: make([]known, w.Size())}
	m.moved = sync.NewCond(&m.mu)
	return m
}

// past lets all processes know the evaluations that rank 0 has logged, which nobody makes again.
func (m *members) past(h *History) error {
	b, err := encode(h.Evals)
	if err != nil {
		return err
	}
	if b, err = m.Broadcast(m.Context(), 0, b); err != nil {
		return err
	}
	return decode(b, &h.Evals)
}

// tell tells all processes the result of a minibatch, which the last stage has.
func (m *members) tell(r pipe.Result) { m.post(resultTopic, r) }

// results begins to hear the results of microbatches, when there is a pass that counts them: others may have begun theirs before.
func (m *members) results() {
	m.begun.Do(func() {
		hear(m.World, resultTopic, func(_ int, r pipe.Result) {
			m.c.result(r)
			m.mu.Lock()
			m.next, m.over = m.c.next, m.over || m.c.failed
			m.mu.Unlock()
			m.moved.Broadcast()
		})
	})
}

// listen begins to hear what else the others tell, when there is an executor.
func (m *members) listen(ctx context.Context) (done func()) {
	m.doing.of.Store(m.c.x)
	hear(m.World, countedTopic, func(_, steps int) { m.c.states.count(steps) })
	hear(m.World, shardTopic, func(from int, x toldShard) {
		var err error
		if x.Error != "" {
			err = fmt.Errorf("%s: %s", m.name(from), x.Error)
		}
		m.c.states.heard(x.Step, x.Shard, checkpoint.Saved{SHA256: x.SHA256, By: m.name(from)}, err)
	})
	var once sync.Once
	hear(m.World, stopTopic, func(_, _ int) { once.Do(m.freeze) })
	hear(m.World, knownTopic, m.freezes)
	over := context.AfterFunc(m.Context(), func() {
		m.c.states.end()
		m.c.x.Thaw(m.c.x.Freeze()) // whoever waits for what the others know
		m.mu.Lock()
		defer m.mu.Unlock()
		m.over = true
		m.moved.Broadcast()
	})
	asked := context.AfterFunc(ctx, func() { m.post(stopTopic, 0) })
	return func() { over(); asked() }
}

// freeze tells all what is known here.
func (m *members) freeze() {
	runs, minibatches := m.c.x.Freeze()
	m.post(knownTopic, known{runs, minibatches})
}

// freezes lets the run end when it is known of all.
func (m *members) freezes(from int, k known) {
	m.known[from] = k
	if m.heard++; m.heard < m.Size() {
		return
	}
	var runs []int
	var minibatches [][]int
	for _, k := range m.known {
		runs, minibatches = append(runs, k.Runs), append(minibatches, k.Minibatches)
	}
	m.c.x.Thaw(pipe.Last(runs, minibatches))
}

// await waits until the results of so many microbatches have come.
func (m *members) await(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.next < n && !m.over {
		m.moved.Wait()
	}
}

// report fills in what the devices of all processes are and were measured.
func (m *members) report(devices []DeviceSummary, names []string) error {
	type measured struct {
		Names   []string
		Audited []pipe.Audited
	}
	all, err := gather(m.Context(), m.World, measured{names, m.c.x.Audited()})
	if err != nil {
		return err
	}
	for rank, x := range all {
		first := slices.Index(m.ranks, rank)
		for i, name := range x.Names {
			devices[first+i].Name = fmt.Sprintf("rank %d, %s", rank, name)
		}
		for _, a := range x.Audited {
			devices[a.Device].MeasuredPeakBytes = a.PeakBytes
		}
	}
	return nil
}

// timings joins what the processes have measured of the same passes, on the clock of rank 0.
func (m *members) timings(own [][]pipe.Timing) ([][]pipe.Timing, error) {
	type timeline struct {
		Origin int64 // of the tasks' times: nanoseconds on the clock of rank 0
		Tasks  []pipe.Timing
	}
	var lines []timeline
	for i, tasks := range own {
		lines = append(lines, timeline{m.c.origins[i].Add(m.Offset()).UnixNano(), tasks})
	}
	all, err := gather(m.Context(), m.World, lines)
	if err != nil {
		return nil, err
	}
	joined := make([][]pipe.Timing, len(own))
	for i := range joined {
		for _, of := range all {
			late := float64(of[i].Origin-all[0][i].Origin) / 1e9
			for _, t := range of[i].Tasks {
				t.Start, t.End = t.Start+late, t.End+late
				joined[i] = append(joined[i], t)
			}
		}
		pipe.SortTimings(joined[i])
	}
	return joined, nil
}

// collect brings the trained weights of all processes to rank 0, which returns them, and their hash to all.
func (m *members) collect() (trained checkpoint.Model, sha256 string, err error) {
	w := &weights{pipelineEngine: m.c, values: map[[2]string][]float32{}}
	for _, t := range m.c.x.Tensors() {
		if t.Role != "weight" && t.Role != "buffer" {
			continue
		}
		values := make([]float32, t.Desc.Elements())
		if err := m.c.x.Read(t, values); err != nil {
			return nil, "", err
		}
		if m.Rank() == 0 {
			w.values[[2]string{t.Role, t.Name}] = values
		}
	}
	if m.Rank() == 0 {
		if sha256, err = hash(w); err != nil {
			return nil, "", err
		}
	}
	text, err := m.Broadcast(m.Context(), 0, []byte(sha256))
	if err != nil {
		return nil, "", err
	}
	return w, string(text), m.sent()
}

// sent adds up what all processes have sent.
func (m *members) sent() error {
	messages, bytes := m.transport.Sent()
	all, err := gather(m.Context(), m.World, Sent{messages, bytes, m.transport.DeviceBytes()})
	m.c.out.Pipe.Sent = &Sent{}
	for _, x := range all {
		m.c.out.Pipe.Sent.Messages += x.Messages
		m.c.out.Pipe.Sent.Bytes += x.Bytes
		m.c.out.Pipe.Sent.DeviceBytes += x.DeviceBytes
	}
	return err
}

// weights are those of a pipeline, in memory.
type weights struct {
	*pipelineEngine
	values map[[2]string][]float32
}

// Read implements checkpoint.Source.
func (w *weights) Read(t executor.Tensor, dst []float32) error {
	copy(dst, w.values[[2]string{t.Role, t.Name}])
	return nil
}

// wants reports what of a batch this process asks for: images where it has its first stage, labels where it has its last one.
func (r *Run) wants(batch int) (images, labels bool) {
	plan := r.Plan
	for _, t := range plan.Tasks {
		if t.Kind != pipeline.F || (t.Shift-batch)%plan.Repeats() != 0 || r.World.ranks[t.Device] != r.World.Rank() {
			continue
		}
		images, labels = images || t.Stage == 0, labels || t.Stage == len(plan.Stages)-1
	}
	return images, labels
}
