package pipeline

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/internal/hazard"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/host"
)

// party is how an action is named: what it is, in which task of which minibatch, on which device and stream.
var party = regexp.MustCompile(`^.+ in (F|B|W|CF|CB|reduce|gather|sum|update |O|P)[0-9].* of minibatch \d+ on device \d+ \(stream \d+\)$`)

// mutate changes one action of a script as a slip would, and reports whether it found something to change.
var mutations = []struct {
	name   string
	mutate func(list []hazard.Action, i int) bool
}{
	{"a wait is dropped", func(list []hazard.Action, i int) bool {
		waits := list[i].Wait != hazard.None
		list[i].Wait = hazard.None
		return waits
	}},
	{"a wait comes behind what it is for", func(list []hazard.Action, i int) bool {
		for k := i + 1; k < len(list) && list[i].Wait != hazard.None; k++ {
			if list[k].Stream == list[i].Stream && len(list[k].Accesses) > 0 {
				list[i], list[k] = list[k], list[i]
				return true
			}
		}
		return false
	}},
	{"a record comes before what it is of", func(list []hazard.Action, i int) bool {
		for k := i - 1; k >= 0 && list[i].Record != hazard.None; k-- {
			if list[k].Stream == list[i].Stream && len(list[k].Accesses) > 0 {
				list[i], list[k] = list[k], list[i]
				return true
			}
		}
		return false
	}},
	{"a message arrives in another buffer", func(list []hazard.Action, i int) bool {
		if x := list[i].Accesses; len(x) != 2 || x[0].Device == x[1].Device {
			return false
		}
		for k := range list {
			if x := list[k].Accesses; len(x) == 2 && x[0].Device != x[1].Device && x[1].Device == list[i].Accesses[1].Device && x[1].Span.Offset != list[i].Accesses[1].Span.Offset {
				list[i].Accesses = []hazard.Access{list[i].Accesses[0], x[1]}
				return true
			}
		}
		return false
	}},
	{"a version of the weights replaces one that is in use elsewhere", func(list []hazard.Action, i int) bool {
		if x := list[i].Accesses; len(x) != 2 || x[0].Device != x[1].Device || x[0].Span.Space != x[1].Span.Space {
			return false
		}
		for k := range list { // in place of a buffer that another stream reads
			if x := list[k].Accesses; len(x) == 2 && x[0].Device != x[1].Device && x[0].Device == list[i].Accesses[0].Device {
				list[i].Accesses = []hazard.Access{list[i].Accesses[0], {Device: x[0].Device, Span: x[0].Span, Write: true}}
				return true
			}
		}
		return false
	}},
}

// played returns the commands that each driver issues in the first segment that is proved.
func (e *Executor) played() (lists [][]table.Played) {
	for _, d := range e.drivers {
		lists = append(lists, d.table.List(d.Device, e.provenSegments()[0]))
	}
	return lists
}

// issuedTwice goes through lists of what drivers issue, each twice.
func issuedTwice(lists [][]table.Played) (sources []iter.Seq[[]table.Played]) {
	for _, list := range lists {
		sources = append(sources, slices.Values([][]table.Played{list, list}))
	}
	return sources
}

// proveLists is prove for what drivers issue in a segment.
func (e *Executor) proveLists(lists [][]table.Played) error {
	var commands []iter.Seq[*table.Command]
	for _, list := range lists {
		commands = append(commands, func(yield func(*table.Command) bool) {
			for i := 0; i < len(list) && yield(list[i].Command); i++ {
			}
		})
	}
	return e.prover().Prove(issuedTwice(lists), commands)
}

// actions lists what is proved of a segment that is played twice, and says how many records there are.
func (e *Executor) actions(t *testing.T) (list []hazard.Action, records int) {
	numbers := map[*hazard.Event]int{nil: hazard.None}
	number := func(ev *hazard.Event) int {
		if _, have := numbers[ev]; !have {
			numbers[ev] = len(numbers) - 1
		}
		return numbers[ev]
	}
	must(t, e.prover().Weave(issuedTwice(e.played()), func(a *hazard.Action, wait, record *hazard.Event) error {
		own := *a
		own.Wait, own.Record = number(wait), number(record)
		if own.Name == nil {
			own.Name = table.HostWork{}
		}
		list = append(list, own)
		return nil
	}))
	return list, len(numbers) - 1
}

// New proves the order of every plan; a script with a slip in it is refused, and both parties are named with device, task and
// minibatch. Not every event is needed by itself: streams and other events may order the same.
func TestSlipsInScriptsAreFound(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	const tries = 12
	tried, found := map[string]int{}, map[string]int{}
	for _, x := range []struct {
		name     string
		versions pipeline.Versions
		devices  int
	}{
		{"gpipe", "", 3}, {"1f1b-flush", "", 3}, {"interleaved", "", 2}, {"chimera", "", 4}, {"zb-h1", "", 3}, {"own", pipeline.Stash, 3},
		{"1f1b*", pipeline.Stash, 3}, {"list", pipeline.DoubleBuffered, 3}, {"offload", pipeline.Stash, 2},
	} {
		c := costs(w, x.devices, 2)
		var plan *pipeline.Plan
		switch x.name {
		case "own":
			plan = recomputing(planFor(t, "1f1b*", c, pipeline.Options{Versions: x.versions}))
		case "offload":
			c, plan = offloading(t, c, planFor(t, "1f1b*", c, pipeline.Options{Versions: x.versions}), 1)
		default:
			plan = planFor(t, x.name, c, pipeline.Options{Microbatches: 4, Versions: x.versions})
		}
		e, err := New(w, targets(t, x.devices, host.Config{}), c, plan, Options{Feed: still{}, Rate: rate})
		must(t, err)
		actions, records := e.actions(t)
		must(t, hazard.Check(actions, e.streams+len(e.drivers), records))
		r := rand.New(rand.NewPCG(7, uint64(x.devices)))
		for _, m := range mutations {
			for n := 0; n < tries; {
				list := slices.Clone(actions)
				i := r.IntN(len(list))
				for k := 0; k < len(list) && !m.mutate(list, (i+k)%len(list)); k++ {
					copy(list, actions)
				}
				n++
				tried[m.name]++
				err := hazard.Check(list, e.streams+len(e.drivers), records)
				var race *OrderError
				if err != nil && !errors.As(err, &race) {
					t.Fatal(err)
				}
				if err == nil {
					continue
				}
				found[m.name]++
				if !party.MatchString(race.First) || !party.MatchString(race.Second) {
					t.Errorf("%s: %s: %v", x.name, m.name, race)
				}
			}
		}
	}
	t.Logf("found %v of %v", found, tried)
	for _, m := range mutations {
		if found[m.name] < 12 {
			t.Errorf("%s: %d of %d were found", m.name, found[m.name], tried[m.name])
		}
	}
}

// The proof finds a message between two drivers that a script leaves out, and one that it has twice. Either drivers wait for each other, or
// a record and the wait for it may be issued in either order.
func TestMessagesLeftOutOfScriptsAreFound(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	tried, found := map[string]int{}, map[string]int{}
	for _, x := range []struct {
		name    string
		devices int
	}{{"gpipe", 3}, {"1f1b-flush", 4}, {"interleaved", 2}, {"chimera", 4}, {"zb-h1", 3}, {"zb-v", 2}} {
		c := costs(w, x.devices, 2)
		e, err := New(w, targets(t, x.devices, host.Config{}), c, planFor(t, x.name, c, pipeline.Options{Microbatches: 4}), Options{Feed: still{}, Rate: rate})
		must(t, err)
		lists := e.played()
		for d, whole := range lists {
			for i := range whole {
				if v := whole[i].Verb; v == table.DoWork && len(whole[i].Pages) > 0 {
					tried["work of the host, not awaited"]++
					without := *whole[i].Command
					without.Event = nil
					lists[d] = slices.Clone(whole)
					lists[d][i].Command = &without
					if err := e.proveLists(lists); err != nil {
						found["work of the host, not awaited"]++
					}
				}
				if v := whole[i].Verb; v != table.DoTake && v != table.DoGive {
					continue
				}
				without := slices.Delete(slices.Clone(whole), i, i+1)
				for slip, list := range map[string][]table.Played{
					"left out": without, "twice": slices.Insert(slices.Clone(whole), i, whole[i]),
					"late": slices.Insert(slices.Clone(without), min(i+3, len(without)), whole[i]),
				} {
					if slip == "late" && whole[i].Verb == table.DoGive {
						continue // a driver may tell late that it has done something
					}
					kind := fmt.Sprintf("%s, %s", table.Verbs[whole[i].Verb], slip)
					tried[kind]++
					lists[d] = list
					if err := e.proveLists(lists); err != nil {
						found[kind]++
					}
				}
			}
			lists[d] = whole
		}
		must(t, e.prove())
	}
	t.Log("found", found, "of", tried)
	for kind, n := range tried {
		if found[kind] < n && !strings.HasSuffix(kind, "late") || found[kind] < n/2 {
			t.Errorf("%s: %d of %d were found", kind, found[kind], n)
		}
	}
}

// The proof finds, and names, a fault that segments of one length do not show. Here the weights move at the end of a segment, beside the
// stream of kernels, only after every other update.
func TestSegmentsOfAllEndsAreProved(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	c := costs(w, 3, 2)
	found := 0
	for _, versions := range []pipeline.Versions{pipeline.DoubleBuffered, pipeline.Stash} {
		e, err := New(w, targets(t, 3, host.Config{}), c, planFor(t, "list", c, pipeline.Options{Versions: versions, WeightCopies: []float64{9}}), Options{Feed: still{}, Rate: rate})
		must(t, err)
		for _, d := range e.drivers {
			for i := range d.table.Ends {
				end := &d.table.Ends[i]
				for slot := 1; slot < len(end.Moves); slot++ {
					whole := end.Moves[slot]
					moved := *whole[1]
					moved.On = e.drivers[0].links[e.drivers[1].Number]
					if d == e.drivers[0] {
						moved.On = e.drivers[1].links[e.drivers[2].Number]
					}
					end.Moves[slot] = []*table.Command{whole[0], &moved, whole[2]}
					n := e.provenSegments()[0]
					for int(end.Entry(n/end.Group)) == slot {
						n += e.group
					}
					if err := e.proveSegments(n, n); err != nil {
						t.Errorf("%s, device %d, slot %d: segments of %d minibatches show it: %v", versions, d.Number, slot, n, err)
					}
					var race *OrderError
					if err := e.prove(); !errors.As(err, &race) || !bothNamed.MatchString(err.Error()) {
						t.Errorf("%s, device %d: weights that move out of slot %d beside all others: %v", versions, d.Number, slot, err)
					} else {
						found++
					}
					end.Moves[slot] = whole
				}
			}
		}
		must(t, e.prove())
	}
	if found < 6 {
		t.Errorf("%d faults are found, want 6", found)
	}
}

// The memory of a proof does not grow with the minibatches that it goes through.
func TestAProofRemembersLittle(t *testing.T) {
	t.Parallel()
	w := workload(t, plainModel(t))
	for _, versions := range []pipeline.Versions{pipeline.Stash, pipeline.DoubleBuffered} {
		c := costs(w, 3, 2)
		e, err := New(w, targets(t, 3, host.Config{}), c, planFor(t, "1f1b*", c, pipeline.Options{Versions: versions, WeightCopies: []float64{9}}), Options{Feed: still{}, Rate: rate})
		must(t, err)
		remembered := func(minibatches int) (added, most int) {
			checker := hazard.NewChecker(e.streams + len(e.drivers))
			var sources []iter.Seq[[]table.Played]
			for i, d := range e.drivers {
				sources = append(sources, d.table.Plays(d.Device, []int{minibatches}))
				for c := range d.table.Commands() {
					c.Expect(checker, d.Number, e.streams+i)
				}
			}
			must(t, e.prover().Weave(sources, func(a *hazard.Action, wait, record *hazard.Event) error {
				if added++; added%64 == 0 {
					most = max(most, checker.Remembered())
				}
				return checker.Add(a, wait, record)
			}))
			return added, most
		}
		n := 50 / e.group * e.group
		some, few := remembered(n)
		many, most := remembered(20 * n)
		if many < 15*some || 2*most > 3*few {
			t.Errorf("%s: of %d actions %d are remembered at one time, of %d only %d", versions, many, most, some, few)
		}
		t.Logf("%s: of %d actions %d are remembered at one time", versions, many, most)
	}
}
