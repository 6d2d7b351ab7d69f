package pipeline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/executor/internal/cycle"
	"plimsoll/executor/internal/order"
	"plimsoll/executor/internal/table"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// With updates of 65 minibatches and 7 or 8 slabs, all that a stage works in comes together after thousands of periods. Such plans train
// what the equations of two versions train, and their tables are what a longer dry run does.
func TestCyclesThatMeetLate(t *testing.T) {
	t.Parallel()
	const group, updates = 65, 2
	m := testModel(t)
	w := workload(t, m)
	for seed, slabs := range map[uint64]int{2: 7, 3: 8} {
		c := costs(w, 5, seed)
		plan := planFor(t, "madpipe", c, pipeline.Options{Versions: pipeline.DoubleBuffered})
		e, out := trainedWith(t, w, c, plan, updates*group, host.Config{}, Options{Group: group})
		out.Tensors = tensors(t, e)
		same(t, reference(t, m, plan, program(pipeline.DoubleBuffered, delays(t, c, plan), group), updates*group), out)
		most, together := 0, 1
		for _, d := range e.drivers {
			for _, s := range d.stages {
				if s != nil {
					most = max(most, len(s.slabs))
				}
			}
			for i := range d.table.Rows {
				one := 1
				for _, a := range d.table.Rows[i].Axes {
					one = cycle.Together(one, len(a.Round))
				}
				together = max(together, one)
			}
		}
		if most != slabs || together < longestDryRun/20 {
			t.Errorf("a stage has %d slabs, want %d; all operands of a task come together after %d periods, want %d", most, slabs, together, longestDryRun/20)
		}
		if seed == 3 {
			nothingNew(t, e, 24)
		}
	}
}

// madeUpOperand maps a period to the number of the slot, version or sum that a command works in.
type madeUpOperand func(k int) int

// madeUpOperands makes operands like those of tables: slots in turn, some of which settle late, and versions and sums of updates of so many
// periods. Their cycles come together after some periods.
func madeUpOperands(r *rand.Rand, group int) (all []madeUpOperand, together int) {
	together = 1
	for range 2 + r.IntN(4) {
		n, shift, late := 1+r.IntN(13), r.IntN(13), r.IntN(20)
		together = together / order.GCD(together, n) * n
		all = append(all, func(k int) int {
			if k < late {
				return (k * 5) % n
			}
			return (k + shift) % n
		})
	}
	for range 2 {
		versions, shift := 1+r.IntN(4), r.IntN(group)
		n := versions * group
		together = together / order.GCD(together, n) * n
		all = append(all, func(k int) int { return max(0, (k+shift)/group-1) % versions })
	}
	return all, together
}

// madeUpCell is a copy whose two ends are operands; it is played in some periods alone, and in a list of them alone.
type madeUpCell struct {
	number   int
	dst, src madeUpOperand
	first    int // it is played where the period is a multiple of this
}

func (c *madeUpCell) command(k int) table.Command {
	span := func(part int, of madeUpOperand) runtime.Span {
		return runtime.Span{Offset: int64(part+2*c.number)<<20 + 64*int64(of(k)), Bytes: 64}
	}
	x := table.Command{Verb: table.DoCopy, On: table.Queue{Number: 1}, Dst: span(0, c.dst), Src: span(1, c.src)}
	if k%c.first != 0 {
		x.Played = table.Never
	}
	return x
}

// A row is made of a recording that shows each operand's cycle some times, and plays what is to be done in any later period.
func TestEachOperandGoesRoundByItself(t *testing.T) {
	t.Parallel()
	cases, long := 1500, 0
	if testing.Short() {
		cases = 300
	}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 29))
		group := 1 + r.IntN(100)
		operands, together := madeUpOperands(r, group)
		any := func() madeUpOperand { return operands[r.IntN(len(operands))] }
		var steady, last []madeUpCell
		for i := range 2 + r.IntN(6) {
			c := madeUpCell{i, any(), any(), 1}
			if r.IntN(4) == 0 {
				c.first = group
			}
			steady = append(steady, c)
		}
		for i := range r.IntN(3) { // an update
			versions := operands[len(operands)-2:]
			last = append(last, madeUpCell{100 + i, versions[r.IntN(2)], versions[r.IntN(2)], 1})
		}
		does := func(k int) (all []table.Command) {
			for i := range steady {
				all = append(all, steady[i].command(k))
			}
			for i := range last {
				if k%group == group-1 {
					all = append(all, last[i].command(k))
				}
			}
			return all
		}
		rec := table.NewRecording(newBinder(0, nil, nil), false, 1, 0)
		var w table.Row
		for n, ok := max(firstDryRun, firstUpdates*group), false; !ok; n *= 2 {
			if n > max(longestDryRun, longestUpdates*group) {
				t.Fatalf("case %d: updates of %d periods: refused", seed, group)
			}
			for k := len(rec.Done[0]); k < n; k++ {
				rec.Row(0, k)
				for _, c := range does(k) {
					*rec.At = append(*rec.At, rec.Number(c))
				}
			}
			rec.Close()
			var err error
			w, ok, err = rec.FoldRow(order.Instruction{}, rec.Done[0], false)
			must(t, err)
		}
		if cycle.TimesSeen*together > longestDryRun {
			long++
		}
		now := make([]int32, len(w.Axes))
		for i := range 200 {
			k := r.IntN(len(rec.Done[0]))
			if i > 20 {
				k = r.IntN(1 << 22)
			}
			want, cells := does(k), w.List(k, now)
			got := make([]table.Command, len(cells))
			for i := range cells {
				got[i] = *cells[i].Command(now)
			}
			if !slices.EqualFunc(got, want, func(a, b table.Command) bool { return a.Key() == b.Key() }) {
				t.Fatalf("case %d, period %d of which %d were seen: %s", seed, k, len(rec.Done[0]), fmt.Sprint(got, want))
			}
		}
	}
	if long < cases/5 {
		t.Errorf("the operands of %d of %d cases come together late, want %d", long, cases, cases/5)
	}
}
