package flush

import (
	"cmp"
	"slices"

	"plimsoll/planner/pipeline"
)

// op is one piece of work of a device: F, B or W of a stage for a microbatch.
type op struct {
	kind  pipeline.Kind
	stage int
	micro int
}

// order holds the ops of every device, one list for each rank.
type order [][]op

// each returns the order in which rank d does of(d).
func each(devices int, of func(rank int) []op) order {
	all := make(order, devices)
	for d := range all {
		all[d] = of(d)
	}
	return all
}

// alternate is the one-forward-one-backward core of many schedules: warm forwards, then a backward and a forward in turn
// while there are forwards, then the backwards that are left. Forwards and backwards come as lists of equal length.
func alternate(forwards, backwards []op, warm int) []op {
	warm = min(warm, len(forwards))
	out := slices.Clone(forwards[:warm])
	for i, b := range backwards {
		out = append(out, b)
		if warm+i < len(forwards) {
			out = append(out, forwards[warm+i])
		}
	}
	return out
}

// micros returns the ops of one kind and stage for microbatches 0..m-1.
func micros(kind pipeline.Kind, stage, m int) []op {
	out := make([]op, m)
	for i := range out {
		out[i] = op{kind, stage, i}
	}
	return out
}

// reversed returns the list back to front.
func reversed(ops []op) []op {
	ops = slices.Clone(ops)
	slices.Reverse(ops)
	return ops
}

// lazy adds the W of every B as late as the cap on live activations allows: just before a forward that would exceed it,
// or else at the end. The scheduler pulls them forward into idle time.
func lazy(ops []op, most int) []op {
	var out, pending []op
	live := 0
	for _, o := range ops {
		if o.kind == pipeline.F {
			if live >= most && len(pending) > 0 {
				out, pending, live = append(out, pending[0]), pending[1:], live-1
			}
			live++
		}
		out = append(out, o)
		if o.kind == pipeline.B {
			pending = append(pending, op{pipeline.W, o.stage, o.micro})
		}
	}
	return append(out, pending...)
}

// timed is an op with the instant that a pattern gives it.
type timed struct {
	op
	at int
}

// byTime returns the ops in order of their instants; those of one instant as they come.
func byTime(ops []timed) []op {
	slices.SortStableFunc(ops, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	out := make([]op, len(ops))
	for i, o := range ops {
		out[i] = o.op
	}
	return out
}
