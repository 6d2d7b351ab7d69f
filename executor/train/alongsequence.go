package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	pipe "plimsoll/executor/pipeline"
)

// alongSequence is a pipelineEngine's state of a run along a sequence of one device. Each step is timed op by op, each microbatch of it
// as a part of the step.
type alongSequence struct {
	idle idleness
	sum  *pipe.Result // of the step that has run, and is not counted yet; nil: none is
}

// notFiniteError is the end of a run whose loss, or norm, is no number, as long as nobody has looked for the layer.
type notFiniteError struct{ result pipe.Result }

func (e *notFiniteError) Error() string { return ErrDiverged.Error() }

// trainStep trains a step along a sequence, and saves what is due behind it. After an error of the data of its first batch the state is
// that of the steps before, which is saved.
func (c *pipelineEngine) trainStep(ctx context.Context) error {
	start, before := time.Now(), c.feed.from.Waited()
	if err := c.feed.prepare(c.current.next); err != nil {
		return errors.Join(fmt.Errorf("batch of step %d: %w", c.step, err), c.keep())
	}
	begun, waited := time.Now(), c.feed.from.Waited()-before
	err := c.send(context.WithoutCancel(ctx), c.segments())
	if bad, ok := errors.AsType[*notFiniteError](err); ok {
		return c.diverged(bad.result)
	}
	if err != nil {
		return c.broken(err)
	}
	took, late := time.Since(begun), c.feed.from.Waited()-before-waited
	c.busy += begun.Sub(start)
	if err := c.countTimed(took, waited, late); err != nil {
		return err
	}
	if c.SavesAfter(c.step) {
		c.save()
	}
	return nil
}

// countTimed counts the step that has run, and which took so long behind the wait for its first batch. Of the time for which later batches
// were late, the device computed during a part.
func (c *pipelineEngine) countTimed(took, waited, late time.Duration) error {
	ran, err := c.x.Timings()
	if err != nil {
		return err
	}
	parts := pipe.PartTimes(ran, c.Plan.Sequence(), c.parts)
	sum, along := *c.along.sum, c.along
	along.sum = nil
	rec := c.record(sum)
	covered := 0.0
	for k := range parts {
		x := &parts[k]
		covered += x.Upload + x.Sequence + x.Update
		rec.SequenceS, rec.UpdateS = rec.SequenceS+x.Sequence, x.Update
		c.recent.Add(x, k)
	}
	late = max(min(late, took-time.Duration(covered*float64(time.Second))), 0)
	waited += late
	for k := range parts {
		along.idle.add(&parts[k], 0)
	}
	along.idle.data += waited.Seconds()
	c.waited += waited
	rec.Seconds, rec.DataWaitS = (took - late).Seconds(), waited.Seconds()
	return c.loop.add(rec)
}

// diverged names the first layer whose output is not finite. The step's own weights are still there: an update is skipped unless the loss
// alone is not finite.
func (c *pipelineEngine) diverged(r pipe.Result) error {
	batch, layer := c.Job.newHeld(c.Job.Work), ""
	err := c.Job.load(batch, r.Minibatch)
	if err == nil {
		layer, err = c.x.FirstNotFinite(r.Minibatch, batch.values, batch.labels)
	}
	return diverged(c.step, r.Loss, r.Norm, layer, err, "lower --lr, give --clip-norm, or pass over such steps with --on-nan skip")
}

// diverged says at which step, and in which layer, a run is no longer finite, and what to do.
func diverged(step int, loss, norm float64, layer string, err error, advice string) error {
	where := fmt.Sprintf("layer %q is the first whose output is not finite", layer)
	if layer == "" {
		where = "every layer's output is finite, the gradients are not"
	}
	if err != nil {
		where = fmt.Sprintf("which layer is the first cannot be told: %v", err)
	}
	return fmt.Errorf("%w: loss %v, norm %v at step %d; %s: %s", ErrDiverged, loss, norm, step, where, advice)
}
