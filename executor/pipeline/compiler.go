package pipeline

import (
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
)

// sumCompiler notes what adds up gradients over replicas, taskCompiler what tasks do with their minibatches, ringCompiler the steps of rings.
// Where gradients and weights are divided, turnCompiler notes what tasks wait for.
type (
	sumCompiler  struct{ *compiler }
	turnCompiler struct{ sumCompiler }
	taskCompiler struct{ sumCompiler }
	ringCompiler struct{ taskCompiler }
)

func (d *compiler) sums() sumCompiler { return sumCompiler{d} }

func turnsOf(d *compiler) turnCompiler { return turnCompiler{d.sums()} }

func (d *compiler) tasks() taskCompiler { return taskCompiler{d.sums()} }

func (d *compiler) ring() ringCompiler { return ringCompiler{d.tasks()} }

// note adds a command to what the driver does.
func (d *compiler) note(c table.Command) { d.Recording.Note(c) }

// noteTurn notes that the driver gives a turn to another one, or takes one.
func (d *compiler) noteTurn(v table.Verb, turn chan struct{}) {
	d.note(table.Command{Verb: v, Turn: turn})
}

// host lets the host work for a stage, or for what is issued to a queue.
func (d *compiler) host(c table.Command) {
	c.Verb = table.DoWork
	if c.On.Of == nil {
		c.On = d.compute
	}
	d.note(c)
}

// instructions returns the driver's instructions of a period, in order.
func (d *driver) instructions() []order.Instruction {
	t := d.ringed()
	if t == nil {
		return d.lay.order.Instructions[d.Number]
	}
	all := make([]order.Instruction, len(t.ring.steps))
	for i := range t.ring.steps {
		all[i] = t.ring.steps[i].Instruction
	}
	return all
}

// queueFor returns the stream at whose end a task ends.
func (d *driverQueues) queueFor(v order.Instance) table.Queue {
	switch {
	case v.Kind == pipeline.F && v.Layer > 0:
		return d.toHost
	case v.Kind == pipeline.B && v.Layer > 0:
		return d.fromHost
	case v.Message():
		return d.links[v.To]
	case v.Kind == pipeline.Joining:
		return d.adding
	}
	return d.compute
}

// put issues a command to its stream.
func (d *driver) put(c *table.Command) error {
	switch c.Verb {
	case table.DoLaunch, table.DoSend, table.DoReceive:
		return c.On.S.Launch(c.Launch)
	case table.DoRecord:
		return c.On.S.Record(c.Event)
	case table.DoWait:
		return c.On.S.Wait(c.Event)
	}
	if c.To != d.Device {
		return c.On.S.CopyPeer(c.To.Dev, c.Dst, c.Src)
	}
	return c.On.S.Copy(c.Dst, c.Src)
}

func (d *compiler) launch(list []table.Prepared) {
	for _, l := range list {
		d.compute.Launch(l)
	}
}
