package pipeline

import (
	"plimsoll/planner/pipeline"
)

// sumCompiler notes what adds up gradients over replicas, taskCompiler what tasks do with their minibatches, ringCompiler the steps of rings.
type (
	sumCompiler  struct{ *compiler }
	taskCompiler struct{ sumCompiler }
	ringCompiler struct{ taskCompiler }
)

func (d *compiler) sums() sumCompiler { return sumCompiler{d} }

func (d *compiler) tasks() taskCompiler { return taskCompiler{d.sums()} }

func (d *compiler) ring() ringCompiler { return ringCompiler{d.tasks()} }

// note adds a command to what the driver does.
func (d *compiler) note(c command) error { return d.recording.note(c) }

// noteTurn notes that the driver gives a turn to another one, or takes one.
func (d *compiler) noteTurn(v verb, turn chan struct{}) { _ = d.note(command{verb: v, turn: turn}) }

// host lets the host work for a stage, or for what is issued to a queue.
func (d *compiler) host(c command) error {
	c.verb = doWork
	if c.on.of == nil {
		c.on = d.compute
	}
	return d.note(c)
}

// instructions returns what the driver does in a period, in order.
func (d *driver) instructions() []instruction {
	t := d.ringed()
	if t == nil {
		return d.e.order.instructions[d.device]
	}
	all := make([]instruction, len(t.ring.steps))
	for i := range t.ring.steps {
		all[i] = t.ring.steps[i].instruction
	}
	return all
}

// queueFor returns the stream at whose end a task ends.
func (d *driver) queueFor(v instance) queue {
	switch {
	case v.kind == pipeline.F && v.layer > 0:
		return d.toHost
	case v.kind == pipeline.B && v.layer > 0:
		return d.fromHost
	case v.message():
		return d.links[v.to]
	case v.kind == pipeline.Joining:
		return d.adding
	}
	return d.compute
}

// put issues a command to its stream.
func (d *driver) put(c *command) error {
	switch c.verb {
	case doLaunch, doSend, doReceive:
		return c.on.s.Launch(c.Launch)
	case doRecord:
		return c.on.s.Record(c.event)
	case doWait:
		return c.on.s.Wait(c.event)
	}
	if c.to != d.tableDevice {
		return c.on.s.CopyPeer(c.to.dev, c.dst, c.src)
	}
	return c.on.s.Copy(c.dst, c.src)
}

func (d *compiler) launch(list []prepared) error {
	for _, l := range list {
		if err := d.compute.launch(l); err != nil {
			return err
		}
	}
	return nil
}
