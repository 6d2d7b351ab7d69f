package train

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/executor/checkpoint/safetensors"
	pipe "plimsoll/executor/pipeline"
)

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
	m := &members{World: w, c: c, next: c.current.next, known: make([]known, w.Size())}
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
			m.next, m.over = m.c.current.next, m.over || m.c.current.failed
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

// weights are the weights of a pipeline, in memory.
type weights struct {
	*pipelineEngine
	values map[[2]string][]float32
}

// Read implements checkpoint.Source.
func (w *weights) Read(t executor.Tensor, dst []float32) error {
	copy(dst, w.values[[2]string{t.Role, t.Name}])
	return nil
}

// restore loads a checkpoint of which each process has a part. It returns how many batches BatchNorms had seen.
func (m *members) restore(c *checkpoint.Checkpoint, into *pipe.Executor) (batches map[string]int64, err error) {
	type part struct {
		Contents []safetensors.Info
		Batches  map[string]int64
	}
	var own part
	if own.Contents, err = c.Contents(); err == nil {
		own.Batches, err = c.Batches()
	}
	if err != nil {
		return nil, err
	}
	all, err := gather(m.Context(), m.World, own)
	if err != nil {
		return nil, err
	}
	// A tensor goes from the first process that has it to all, in pieces, if one of those that need it has it not.
	with := &checkpoint.Together{Share: func(t executor.Tensor, have []int, values []float32) error {
		if !slices.ContainsFunc(into.Processes(t), func(p int) bool { return !slices.Contains(have, p) }) {
			return nil
		}
		return m.spread(m.Context(), have[0], Bytes(values))
	}}
	batches = map[string]int64{}
	for _, x := range all {
		with.Parts = append(with.Parts, x.Contents)
		maps.Copy(batches, x.Batches)
	}
	return batches, c.RestoreTogether(into, with)
}
