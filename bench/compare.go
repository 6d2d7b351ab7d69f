package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"plimsoll/executor"
	"plimsoll/executor/train"
	"plimsoll/planner/schedule"
)

// differ names the first thing in which two runners differ after a step, "" if every bit is the same: the loss and, in
// full, every weight, buffer, gradient and optimizer state in the order of the chain. What differs after a step shows in
// the losses and weights of later ones, so that a run needs only its last step compared in full.
func differ(step int, full bool, all, plan *train.Runner) (string, error) {
	if a, b := all.Last(), plan.Last(); a.Loss != b.Loss || a.Correct != b.Correct {
		return fmt.Sprintf("step %d, loss: %v, store-all's is %v", step, b.Loss, a.Loss), nil
	}
	if !full {
		return "", nil
	}
	for _, t := range all.Tensors() {
		want, got := make([]float32, t.Desc.Elements()), make([]float32, t.Desc.Elements())
		if err := errors.Join(all.Read(t, want), plan.Read(t, got)); err != nil {
			return "", err
		}
		if !bytes.Equal(train.Bytes(want), train.Bytes(got)) {
			return fmt.Sprintf("step %d, layer %d (%s): %s %s", step, t.Layer, all.Model.Layers[t.Layer-1].Name, t.Role, t.Name), nil
		}
	}
	return "", nil
}

// SideBySide trains along a plan and along store-all from the same start, looks at what every op leaves, and names the
// first op whose output, gradient, BatchNorm statistic or random state is not, to the bit, what store-all's was; ""
// if there is none.
func SideBySide(ctx context.Context, job *train.Job, seq schedule.Sequence, opt executor.Options, steps int, rate train.Rate) (first string, err error) {
	c := &comparison{seed: maphash.MakeSeed(), known: map[place]uint64{}}
	extent, err := job.ProfileBytes()
	if err != nil {
		return "", err
	}
	all, err := job.Start(job.Work.StoreAll(), executor.Options{Limit: extent, Observe: c.remember, Initial: opt.Initial})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	opt.Observe = c.compare
	plan, err := job.Start(seq, opt)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	for step := range steps {
		for _, r := range []*train.Runner{all, plan} {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			if _, err := r.Train(step, rate.At(step)); err != nil {
				return "", err
			}
		}
		if c.first != "" {
			return fmt.Sprintf("step %d, %s", step, c.first), nil
		}
		if first, err := differ(step, step == steps-1, all, plan); first != "" || err != nil {
			return first, err
		}
	}
	return "", nil
}

// comparison remembers what every op of store-all left, by layer and name, and finds the first op of a plan that left
// something else. It keeps hashes of 64 bits; weights and gradients are compared in full after the last step as well.
type comparison struct {
	seed  maphash.Seed
	known map[place]uint64
	first string
}

// place is one thing that an op leaves.
type place struct {
	layer int
	what  string
}

func (c *comparison) remember(o executor.Observation) {
	c.known[place{o.Op.Layer, o.What}] = maphash.Bytes(c.seed, o.Bytes)
}

func (c *comparison) compare(o executor.Observation) {
	if c.first == "" && c.known[place{o.Op.Layer, o.What}] != maphash.Bytes(c.seed, o.Bytes) {
		c.first = fmt.Sprintf("layer %d (%s), op %d %v: %s", o.Op.Layer, o.Layer, o.Index, o.Op, o.What)
	}
}
