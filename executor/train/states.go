package train

import (
	"fmt"
	"slices"
	"sync"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
)

// states saves the states of a pipeline in shards while it trains: on a goroutine of each device, none of which waits for
// another.
//
// Invariant: a step is counted, and so in the log, before a shard of the state behind it is on the disk.
type states struct {
	run   *Run
	parts int // microbatches of a step

	mu      sync.Mutex
	moved   *sync.Cond                 // counted or over
	counted int                        // steps
	over    bool                       // none will be counted any more
	open    map[int]*checkpoint.Shards // by step
	told    map[int]*checkpoint.Shards // likewise: of which all processes tell what became of their shards
	ended   map[int]bool               // steps of which all have told
	results []attempt                  // that nobody has taken yet
}

// attempt is a checkpoint that was saved, or not.
type attempt struct {
	step int
	err  error
}

func newStates(r *Run, parts, done int) *states {
	s := &states{run: r, parts: parts, counted: done, open: map[int]*checkpoint.Shards{}, told: map[int]*checkpoint.Shards{}, ended: map[int]bool{}}
	s.moved = sync.NewCond(&s.mu)
	return s
}

// count says that so many steps are counted.
func (s *states) count(steps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = steps
	s.moved.Broadcast()
}

// end says that no step will be counted any more.
func (s *states) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.moved.Broadcast()
}

// save saves a stage. A state behind a step that failed is passed over.
func (s *states) save(x *pipe.Snapshot) {
	step := x.Done / s.parts
	shards := s.shards(x, step)
	if shards == nil {
		return
	}
	var sum string
	var err error
	x.Write(func() { sum, err = shards.Write(x.Stage, finiteSource{x}) })
	if w := s.run.World; w != nil {
		w.postShard(step, x.Stage, sum, err)
		return
	}
	s.written(shards, step, x.Stage, checkpoint.Saved{SHA256: sum}, err)
}

// written counts a shard.
func (s *states) written(shards *checkpoint.Shards, step, shard int, as checkpoint.Saved, err error) {
	last, err := shards.Written(shard, as, err)
	if !last {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.open[step].Discard(err)
	delete(s.open, step)
	delete(s.told, step)
	s.ended[step] = true
	s.results = append(s.results, attempt{step, err})
	s.moved.Broadcast()
}

// settle waits until all processes have saved what they have of the state behind a step, or none will.
func (s *states) settle(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended[step] && !s.over {
		s.moved.Wait()
	}
}

// shards returns the checkpoint of a step when it is counted; nil when it never is.
func (s *states) shards(x *pipe.Snapshot, step int) *checkpoint.Shards {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.counted < step && !s.over {
		s.moved.Wait()
	}
	if s.counted < step {
		return nil
	}
	if s.open[step] == nil {
		s.open[step] = s.begin(step, x.Updates())
	}
	return s.open[step]
}

// begin begins the checkpoint of a step.
func (s *states) begin(step int, updates []int64) *checkpoint.Shards {
	dir, n, meta := s.run.Saves.Dir, len(s.run.Plan.Stages), s.run.meta(int64(step), updates)
	if w := s.run.World; w != nil {
		return dir.SharedShards(meta, n, w.Rank() == 0)
	}
	return dir.Shards(meta, n)
}

// heard takes what a process tells of a shard.
func (s *states) heard(step, shard int, as checkpoint.Saved, err error) {
	s.mu.Lock()
	if s.told[step] == nil {
		s.told[step] = s.begin(step, nil)
	}
	shards := s.told[step]
	s.mu.Unlock()
	s.written(shards, step, shard, as, err)
}

// take returns the attempts to save checkpoints since its last call, in the order of their steps.
func (s *states) take() (all []attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, s.results = s.results, nil
	return all
}

// finiteSource reads what is finite, and nothing else: without a flush no norm tells whether gradients were.
type finiteSource struct{ checkpoint.Source }

// Read implements checkpoint.Source.
func (f finiteSource) Read(t executor.Tensor, dst []float32) error {
	if err := f.Source.Read(t, dst); err != nil {
		return err
	}
	if i := slices.IndexFunc(dst, func(v float32) bool { return !finite(float64(v)) }); i >= 0 {
		return fmt.Errorf("%w: element %d of the %s of %s is %v", ErrDiverged, i, t.Role, t.Name, dst[i])
	}
	return nil
}
