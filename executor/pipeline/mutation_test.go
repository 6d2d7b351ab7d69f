package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// tableSlip is a mistake in a table: change makes it at a variant of a cell of a row, if it can be made there.
type tableSlip struct {
	name   string
	change func(e *Executor, list []table.Cell, i, variant int) (changed []table.Cell, ok bool)
}

// moved returns cells of which one stands elsewhere.
func moved(list []table.Cell, from, to int) []table.Cell {
	x := list[from]
	return slices.Insert(slices.Delete(slices.Clone(list), from, from+1), to, x)
}

// other returns cells of which a variant of one is another command.
func other(list []table.Cell, i, variant int, change func(c *table.Command)) []table.Cell {
	list = slices.Clone(list)
	list[i].Variants = slices.Clone(list[i].Variants)
	c := *list[i].Variants[variant]
	change(&c)
	list[i].Variants[variant] = &c
	return list
}

func works(c *table.Command) bool {
	return c.Played != table.Never && len(c.Touches()) > 0 && c.Verb != table.DoWork
}

var tableSlips = []tableSlip{
	{"a wait is dropped", func(_ *Executor, list []table.Cell, i, variant int) ([]table.Cell, bool) {
		return other(list, i, variant, func(c *table.Command) { c.Played = table.Never }), list[i].Variants[variant].Verb == table.DoWait
	}},
	{"two commands are swapped", func(_ *Executor, list []table.Cell, i, variant int) ([]table.Cell, bool) {
		c := list[i].Variants[variant]
		if i == 0 || c.Verb != table.DoRecord {
			return nil, false
		}
		before := list[i-1].Variants[0]
		return moved(list, i, i-1), works(before) && before.On == c.On
	}},
	{"a buffer is shifted", func(_ *Executor, list []table.Cell, i, variant int) ([]table.Cell, bool) {
		c := list[i].Variants[variant]
		switch {
		case c.Verb == table.DoCopy && c.Channel != nil && c.Dst.Offset >= c.Dst.Bytes:
			return other(list, i, variant, func(c *table.Command) { c.Dst.Offset -= c.Dst.Bytes }), true
		case c.Verb == table.DoReceive && len(c.Accesses) > 0 && c.Dst.Offset >= c.Dst.Bytes:
			return other(list, i, variant, func(c *table.Command) {
				c.Accesses = slices.Clone(c.Accesses)
				c.Accesses[0].Span.Offset -= c.Dst.Bytes
			}), true
		}
		return nil, false
	}},
	{"a message is received early", func(_ *Executor, list []table.Cell, i, variant int) ([]table.Cell, bool) {
		c := list[i].Variants[variant]
		for k := i + 1; k < len(list) && c.Verb == table.DoWait; k++ {
			if x := list[k].Variants[0]; x.On.Number == c.On.Number && works(x) {
				return moved(list, i, k), true
			}
		}
		return nil, false
	}},
	{"a variant is off by one", func(_ *Executor, list []table.Cell, i, variant int) ([]table.Cell, bool) {
		n := len(list[i].Variants)
		next := list[i].Variants[(variant+1)%n]
		return other(list, i, variant, func(c *table.Command) { *c = *next }), n > 1 && works(next)
	}},
	{"a slot is reused", func(e *Executor, list []table.Cell, i, variant int) ([]table.Cell, bool) {
		c := list[i].Variants[variant]
		k := slices.IndexFunc(c.Accesses, func(a hazard.Access) bool { return a.Write && a.Span.Space != runtime.Host })
		if c.Verb != table.DoLaunch || k < 0 {
			return nil, false
		}
		for _, l := range e.channels { // the slot of a message that comes
			if l.to == c.Accesses[k].Device && len(l.blocks) > 0 && l.blocks[0].Bytes > 0 {
				return other(list, i, variant, func(c *table.Command) {
					c.Accesses = slices.Clone(c.Accesses)
					c.Accesses[k].Span = l.blocks[0]
				}), true
			}
		}
		return nil, false
	}},
}

// bothNamed is how an error about tables names two commands: what they are, in which task of which minibatch, on which device.
var bothNamed = regexp.MustCompile(`(?s) in (F|B|W|CF|CB|reduce|gather|sum|update |O|P)[0-9].* of minibatch \d+ on device \d+.* in (F|B|W|CF|CB|reduce|gather|sum|update |O|P)[0-9].* of minibatch \d+ on device \d+`)

// tablePlaces lists all commands of all tables: by device, row, shape, cell and variant.
func (e *Executor) tablePlaces() (all [][5]int) {
	for d, x := range e.drivers {
		for i := range x.table.Rows {
			for s, list := range x.table.Rows[i].Lists {
				for k := range list {
					for v := range list[k].Variants {
						all = append(all, [5]int{d, i, s, k, v})
					}
				}
			}
		}
	}
	return all
}

// refuses makes a slip where it can be made, at places in random order, until one is refused, and restores the table.
func (x *tableSlip) refuses(e *Executor, r *rand.Rand) (tried int, err error) {
	const most = 40
	places := e.tablePlaces()
	r.Shuffle(len(places), func(i, k int) { places[i], places[k] = places[k], places[i] })
	for _, p := range places {
		w := &e.drivers[p[0]].table.Rows[p[1]]
		whole := w.Lists[p[2]]
		changed, ok := x.change(e, whole, p[3], p[4])
		if !ok {
			continue
		}
		w.Lists[p[2]] = changed
		err := e.prove()
		w.Lists[p[2]] = whole
		if tried++; err != nil || tried == most {
			return tried, err
		}
	}
	return tried, nil
}

// New proves the tables that are played, within a process and between several: of each kind of slip, in each plan, the prover refuses
// one, and names both commands. Not every command is needed by itself: streams and other events may order the same.
func TestSlipsInTablesAreFound(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	found, between, tried := 0, 0, 0
	for n, x := range []struct {
		name     string
		versions pipeline.Versions
		devices  int
		process  []int
	}{
		{"1f1b-flush", "", 3, nil}, {"1f1b*", pipeline.Stash, 3, nil}, {"list", pipeline.DoubleBuffered, 3, nil}, {"1f1b*", pipeline.Latest, 2, nil},
		{"1f1b-flush", "", 3, []int{0, 1, 2}}, {"1f1b*", pipeline.Stash, 3, []int{0, 1, 2}}, {"list", pipeline.DoubleBuffered, 3, []int{0, 0, 1}}, {"1f1b*", pipeline.Latest, 2, []int{0, 1}},
	} {
		c := costs(w, x.devices, 2)
		plan := planFor(t, x.name, c, pipeline.Options{Microbatches: 4, Versions: x.versions})
		var e *Executor
		if x.process == nil {
			var err error
			e, err = New(w, targets(t, x.devices, host.Config{}), c, plan, Options{Feed: still{}, Rate: rate})
			must(t, err)
		} else {
			e = newWorldOf(t, newProved, w, c, plan, x.process, cpus(t, host.Config{}), Options{}).all[0]
		}
		must(t, e.prove())
		r := rand.New(rand.NewPCG(uint64(n), 3))
		for i := range tableSlips {
			slip := &tableSlips[i]
			n, err := slip.refuses(e, r)
			tried += n
			what := fmt.Sprintf("%s, %s on %d devices, processes %v", slip.name, x.name, x.devices, x.process)
			var race *OrderError
			switch {
			case n == 0:
				t.Logf("%s: it cannot be made", what)
			case err == nil:
				t.Errorf("%s: none of %d was refused", what, n)
			case !errors.As(err, &race) && !errors.Is(err, order.ErrPlan) || !bothNamed.MatchString(err.Error()):
				t.Errorf("%s: %v", what, err)
			default:
				if found++; x.process != nil {
					between++
				}
			}
		}
		must(t, e.prove())
	}
	t.Logf("%d slips are refused, %d of them between processes; %d were made", found, between, tried)
	if found < 40 || between < 20 {
		t.Errorf("%d slips are refused, %d of them between processes", found, between)
	}
}
