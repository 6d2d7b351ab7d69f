package pipeline

import (
	"cmp"
	"context"

	"plimsoll/runtime"
)

// command is one thing that a driver does, in the order in which it does it.
type command struct {
	verb
	prepared                // of a launch
	on       queue          // that it is issued to, if it is
	dst, src runtime.Span   // of a copy
	to       *driver        // in whose arena dst is
	channel  *channel       // of a copy that is a message
	event    runtime.Event  // recorded, or waited for; by the host, too
	pages    []runtime.Span // of page-locked memory that the host reads, or writes
	writes   bool
	turn     chan struct{}                                        // that is given or taken
	work     func(d *driver, c command, firstMinibatch int) error // of the host
	stage    *localStage                                          // for which the host works
	slot     int                                                  // of its staging memory
	task     instance
}

// verb says what a command does.
type verb uint8

const (
	doLaunch verb = iota
	doCopy
	doRecord
	doWait
	doGive  // tell another driver that what it waits for was issued
	doTake  // wait until another driver has said so
	doWork  // of the host
	doBegin // a task
	doEnd   // put an event behind it
)

// do lets the driver do what the command says, at once, or notes it in a dry run.
func (d *driver) do(c command) error {
	if d.dryRun {
		d.note(c)
		return nil
	}
	return d.put(&c)
}

// note adds a command to the script of the driver, in dry runs that write one.
func (d *driver) note(c command) {
	if d.e.noting {
		c.task = d.now
		d.script = append(d.script, c)
	}
}

// noteTurn notes that the driver gives a turn to another one, or takes one.
func (d *driver) noteTurn(v verb, turn chan struct{}) {
	if d.dryRun {
		d.note(command{verb: v, turn: turn})
	}
}

// host lets the host work for a stage, or for what is issued to a queue.
func (d *driver) host(c command) error {
	c.verb, c.task = doWork, d.now
	if c.on.of == nil {
		c.on = d.compute
	}
	if d.dryRun {
		d.note(c)
		return nil
	}
	return c.work(d, c, 0)
}

// put issues a command to its stream.
func (d *driver) put(c *command) error {
	switch c.verb {
	case doLaunch:
		return c.on.s.Launch(c.Launch)
	case doRecord:
		return c.on.s.Record(c.event)
	case doWait:
		return c.on.s.Wait(c.event)
	}
	if c.to != d {
		return c.on.s.CopyPeer(c.to.dev, c.dst, c.src)
	}
	return c.on.s.Copy(c.dst, c.src)
}

// play does what the script of a step says, for all steps of a run: it decides nothing and looks nothing up.
func (d *driver) play(ctx context.Context, run *bound) error {
	if err := d.auditor.begin(); err != nil {
		return err
	}
	for first := 0; run.in(first); first += d.e.group {
		for i := range d.script {
			if err := d.playCommand(ctx, &d.script[i], first); err != nil {
				return d.failed(d.now, err)
			}
		}
	}
	return nil
}

func (d *driver) playCommand(ctx context.Context, c *command, first int) error {
	switch c.verb {
	case doGive:
		c.turn <- struct{}{}
	case doTake:
		select {
		case <-c.turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case doWork:
		return c.work(d, *c, first)
	case doBegin:
		v := c.task
		v.minibatch += first
		d.starts(v)
		d.current = d.recorder.add(v, d.done)
		return cmp.Or(context.Cause(ctx), d.auditor.before())
	case doEnd:
		d.progress.end()
		return cmp.Or(d.current.close(c.on), d.auditTask())
	default:
		return d.put(c)
	}
	return nil
}

// writeTask adds a task to the script.
func (d *driver) writeTask(ctx context.Context, v instance) error {
	d.note(command{verb: doBegin})
	if err := d.issue(ctx, v); err != nil {
		return err
	}
	d.note(command{verb: doEnd, on: d.queueFor(v)})
	return nil
}

// queueFor returns the stream at whose end a task ends.
func (d *driver) queueFor(v instance) queue {
	switch {
	case v.message():
		return d.links[v.to]
	case v.kind == joining:
		return d.adding
	}
	return d.compute
}

// writeScripts writes the scripts of all drivers for a run of some segments. Errors: those of dryRun.
func (e *Executor) writeScripts(lengths ...int) error {
	for _, d := range e.drivers {
		d.script = nil
	}
	e.noting = true
	defer func() { e.noting = false }()
	return e.dryRun(lengths...)
}
