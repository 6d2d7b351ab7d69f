package pipeline

import (
	"slices"

	"plimsoll/executor/internal/table"
	"plimsoll/runtime"
)

// capture makes one launch of what follows each other on the compute streams, on devices that can keep that as a graph. Waits and
// messages stand between graphs: streams that carry messages must not be held up by the rest of a task.
func (comp *compilation) capture() error {
	for _, d := range comp.own() {
		device, able := d.Dev.(runtime.Grapher)
		if !able || comp.opt.NoGraph || comp.opt.Pace != nil || !comp.order.Plan.IsFlush() {
			continue
		}
		if err := (capturer{d, device}).table(); err != nil {
			return err
		}
	}
	return nil
}

// capturer makes graphs of what a driver launches.
type capturer struct {
	*driver
	device runtime.Grapher
}

// table puts graphs into the table of the driver.
func (d capturer) table() error {
	for i := range d.driver.table.Rows {
		r := &d.driver.table.Rows[i]
		captured, err := d.list(slices.Collect(r.Commands()))
		if err != nil {
			return err
		}
		r.Lists = [][]table.Cell{table.Fixed(captured)}
	}
	return nil
}

// list returns commands in which those that follow each other on the compute stream are one.
func (d capturer) list(list []*table.Command) (all []*table.Command, err error) {
	for len(list) > 0 {
		n := d.together(list)
		if n < 2 {
			all, list = append(all, list[0]), list[1:]
			continue
		}
		graph, err := d.device.Capture(d.compute.S, func() error {
			for _, c := range list[:n] {
				if err := d.put(c); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		all, list = append(all, &table.Command{Verb: table.DoLaunch, On: d.compute, Prepared: table.Prepared{Launch: graph}}), list[n:]
	}
	return all, nil
}

// together returns how many commands at the head of a list can be one launch.
func (d capturer) together(list []*table.Command) (n int) {
	for n < len(list) && list[n].On == d.compute && list[n].Ahead == 0 && d.capturable(list[n]) {
		n++
	}
	return n
}

// capturable reports whether a graph can have a command: a launch, a copy within the device, or a record that tells the time.
func (d capturer) capturable(c *table.Command) bool {
	return c.Verb == table.DoLaunch || c.Verb == table.DoCopy && c.To == d.Device || c.Verb == table.DoRecord && c.Timed
}
