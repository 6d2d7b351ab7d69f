package pipeline

import (
	"plimsoll/runtime"
)

// capture makes one launch of what follows each other on the compute streams, on devices that can keep that as a graph. Waits and
// messages stand between graphs: streams that carry messages must not be held up by the rest of a task.
func (e *Executor) capture() error {
	for _, d := range e.own() {
		device, able := d.dev.(runtime.Grapher)
		if !able || e.opt.NoGraph || e.opt.Pace != nil {
			continue
		}
		if err := d.capture(device); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) capture(device runtime.Grapher) error {
	var script []command
	for i := 0; i < len(d.script); {
		n := d.together(d.script[i:])
		if n < 2 {
			script = append(script, d.script[i])
			i++
			continue
		}
		list := d.script[i : i+n]
		graph, err := device.Capture(d.compute.s, func() error {
			for i := range list {
				if err := d.put(&list[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		script = append(script, command{verb: doLaunch, on: d.compute, task: list[0].task, prepared: prepared{Launch: graph}})
		i += n
	}
	d.script = script
	return nil
}

// together returns how many commands at the head of a list can be one launch.
func (d *driver) together(list []command) (n int) {
	for n < len(list) && list[n].on == d.compute && (list[n].verb == doLaunch || list[n].verb == doCopy && list[n].to == d) {
		n++
	}
	return n
}
