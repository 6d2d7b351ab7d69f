package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
)

// bits is the result of a run: the loss after every step and, after the last one, hashes of every weight, buffer, gradient
// and optimizer state. A difference after a step shows in the losses and weights of later ones, so that a run needs only its
// last step compared in full.
type bits struct {
	of      string // whose they are
	losses  []loss
	tensors train.Digests
}

type loss struct {
	value   float64
	correct int
}

// remember adds what a step has left, in full the tensors, too.
func (b *bits) remember(full bool, r *train.Runner) (err error) {
	b.losses = append(b.losses, loss{r.Last().Loss, r.Last().Correct})
	if full {
		b.tensors, err = train.DigestsOf(r)
	}
	return err
}

// compare names the first thing in which a runner differs after a step, "" if every bit is the same.
func (b *bits) compare(step int, full bool, r *train.Runner) (first string, err error) {
	if want, got := b.losses[step], (loss{r.Last().Loss, r.Last().Correct}); got != want {
		return fmt.Sprintf("step %d, loss: %v, that of %s is %v", step, got.value, b.of, want.value), nil
	}
	if !full {
		return "", nil
	}
	left, err := train.DigestsOf(r)
	if err != nil {
		return "", err
	}
	if t := left.First(b.tensors, r.Tensors()); t != nil {
		first = fmt.Sprintf("step %d, layer %d (%s): %s %s", step, t.Layer, r.Model.Layers[t.Layer-1].Name, t.Role, t.Name)
	}
	return first, nil
}

// storeAll is the name of most references.
const storeAll = "store-all"

// large returns a job whose device has room for store-all, and that plan; nil when there is none.
func (g *Grid) large() (*train.Job, *train.JobPlan, error) {
	plan, err := g.Job.StoreAll()
	if err != nil || plan.Limit <= g.Job.Device.Memory {
		return g.Job, plan, err
	}
	job, err := g.Job.Unbounded()
	if err != nil || plan.Limit > job.Device.Memory {
		return nil, nil, err
	}
	return job, plan, nil
}

// sideBySide trains along a row's plan and along store-all from the same start, and compares the results of every op. It
// names the first op with an output, gradient, BatchNorm statistic or random state that differs in a bit from store-all's;
// "" if there is none.
func (g *Grid) sideBySide(ctx context.Context, p *train.JobPlan, steps int) (first string, err error) {
	job, storesAll, err := g.large()
	if err == nil && job == nil {
		err = fmt.Errorf("--audit compares with store-all op by op, and no device here has room for it: leave it out")
	}
	if err != nil {
		return "", err
	}
	c := &comparison{seed: maphash.MakeSeed(), known: map[place]uint64{}}
	all, err := job.Start(storesAll, pipe.Options{Observe: c.remember})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	plan, err := g.Job.Start(p, pipe.Options{HostLimit: g.HostLimit, Observe: c.compare})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	left := &bits{of: storeAll}
	for step := range steps {
		for _, r := range []*train.Runner{all, plan} {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			if _, err := r.Train(g.Rate.At(step)); err != nil {
				return "", err
			}
		}
		if c.first != "" {
			return fmt.Sprintf("step %d, %s", step, c.first), nil
		}
		if err := left.remember(step == steps-1, all); err != nil {
			return "", err
		}
		if first, err := left.compare(step, step == steps-1, plan); first != "" || err != nil {
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

func (c *comparison) remember(o pipe.Observation) {
	c.known[place{o.Op.Layer, o.What}] = maphash.Bytes(c.seed, o.Bytes)
}

func (c *comparison) compare(o pipe.Observation) {
	if c.first == "" && c.known[place{o.Op.Layer, o.What}] != maphash.Bytes(c.seed, o.Bytes) {
		c.first = fmt.Sprintf("layer %d (%s), op %d %v: %s", o.Op.Layer, o.Layer, o.Index, o.Op, o.What)
	}
}
