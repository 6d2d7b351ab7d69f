package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"plimsoll/executor"
	"plimsoll/planner/chain"
)

// Together measures the ops of a model as Profile does, and nothing else, while n copies of it run at once, each on a device of its own. The times
// are the means of the copies. Beside those of Profile they tell what ops take from each other: cores, caches, memory bandwidth. load is called
// for one copy at a time. Errors: those of Profile.
func Together(ctx context.Context, w *executor.Workload, open func() (executor.Target, error), limit int64, load func(Batch) error, opt ProfileOptions, n int) (*chain.Chain, error) {
	var loading sync.Mutex
	opt.Progress = nil
	copies, plans := make([]*session, n), make([][]*Exercise, n)
	for i := range copies {
		copies[i] = &session{Workload: w, open: open, limit: limit, opt: opt, samples: NewSamples(w), load: func(b Batch) error {
			loading.Lock()
			defer loading.Unlock()
			return load(b)
		}}
		var err error
		if plans[i], err = copies[i].plan(); err != nil {
			return nil, err
		}
	}
	for k := range plans[0] {
		if err := runTogether(copies, func(s *session, i int, at *meeting) error { return s.measureBeside(ctx, plans[i][k], at) }); err != nil {
			return nil, fmt.Errorf("measuring %d at once: %w", n, err)
		}
	}
	return meanChain(copies)
}

// meeting lets copies begin to measure when all run, and run until all have measured.
type meeting struct {
	begin sync.WaitGroup
	left  atomic.Int32
}

// runTogether calls do for all copies at once.
func runTogether(copies []*session, do func(s *session, i int, at *meeting) error) error {
	var at meeting
	at.begin.Add(len(copies))
	at.left.Store(int32(len(copies)))
	errs := make([]error, len(copies))
	var all sync.WaitGroup
	for i, s := range copies {
		all.Go(func() { errs[i] = do(s, i, &at) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// measureBeside runs an exercise as measure does, and on until all copies have measured. A copy that fails holds up no other one.
func (s *session) measureBeside(ctx context.Context, x *Exercise, at *meeting) error {
	ready, measured := sync.OnceFunc(at.begin.Done), sync.OnceFunc(func() { at.left.Add(-1) })
	defer measured()
	defer ready()
	return s.with(x, windows{}, x.Extent, func(t *OpTimer) error {
		took := 0.0
		for i := 0; at.left.Load() > 0; i++ {
			if i == s.opt.Warmup {
				ready()
				at.begin.Wait()
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			times, err := t.Step()
			if err != nil {
				return err
			}
			enough := i >= s.opt.Warmup+s.opt.Repeats || s.opt.Enough > 0 && took >= s.opt.Enough.Seconds()
			if i >= s.opt.Warmup && !enough {
				s.samples.Add(x, times)
				took += times.Seconds()
			}
			if enough {
				measured()
			}
		}
		return nil
	})
}

// meanChain returns the chain whose times are the means of all copies.
func meanChain(copies []*session) (mean *chain.Chain, err error) {
	n := float64(len(copies))
	for k, s := range copies {
		c, err := s.samples.Chain()
		if err != nil {
			return nil, err
		}
		if k == 0 {
			mean = c
			for i := range c.Layers {
				c.Layers[i].ForwardS, c.Layers[i].BackwardS = c.Layers[i].ForwardS/n, c.Layers[i].BackwardS/n
			}
			continue
		}
		for i := range c.Layers {
			mean.Layers[i].ForwardS += c.Layers[i].ForwardS / n
			mean.Layers[i].BackwardS += c.Layers[i].BackwardS / n
		}
	}
	return mean, nil
}
