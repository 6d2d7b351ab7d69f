package commands

import (
	"strings"
	"testing"

	"plimsoll/runtime"
)

func example() []Table {
	memory := func(offset int64) runtime.Span { return runtime.Span{Offset: offset, Bytes: 8} }
	copied := func(from, to int64) Command {
		return Command{Verb: Copy, Stream: "to device 1", What: "a_1", Bytes: 8, Reads: memory(from), Writes: []runtime.Span{memory(to)}}
	}
	return []Table{
		{Device: "device 0", Period: "2 minibatches", Rows: []Row{
			Constant("F0(0)", []Command{
				{Verb: Work, Stream: Driver, What: "fill a batch"},
				{Verb: Launch, Stream: "compute", What: "relu forward", Writes: []runtime.Span{memory(0), memory(8), memory(16), memory(24)}},
				{Verb: Record, Stream: "compute", What: "event 1"},
			}),
			{Task: "CF0(0)", Ahead: 1, First: []int{0}, Round: []int{1, 2, 1}, Variants: [][]Command{{copied(0, 8)}, {copied(0, 16)}, {copied(0, 24)}}},
		}},
		{Device: "device 1", Period: "2 minibatches", Rows: []Row{
			Constant("F1(0)", []Command{{Verb: Take, Stream: Driver, What: "turn 1", When: "the link changes its direction"}}),
		}},
	}
}

const text = `device 0: a period is 2 minibatches, 6 commands in 2 rows
F0(0)
  driver       work    fill a batch
  compute      launch  relu forward, into arena[0:8] arena[8:16] and 2 more
  compute      record  event 1
CF0(0): variants 1 2 1, behind 0
  variant 0
  to device 1  copy    a_1, 8 B, from arena[0:8], into arena[8:16]
  variant 1
  to device 1  copy    a_1, 8 B, from arena[0:8], into arena[16:24]
  variant 2
  to device 1  copy    a_1, 8 B, from arena[0:8], into arena[24:32]

device 1: a period is 2 minibatches, 1 command in 1 row
F1(0)
  driver  take    turn 1, when the link changes its direction
`

// The text of tables has all commands, and of rows with variants the order in which these are played.
func TestText(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Write(&b, example()); err != nil || b.String() != text {
		t.Errorf("%v, got\n%s", err, b.String())
	}
}

// A row plays its first variants once, and then those of its round for ever.
func TestVariantsGoRound(t *testing.T) {
	t.Parallel()
	r := &example()[0].Rows[1]
	if got := r.In(-2); got != nil {
		t.Errorf("before the first period %v", got)
	}
	for k, want := range []int64{8, 16, 24, 16, 16, 24, 16} {
		if got := r.In(k - 1)[0].Writes[0].Offset; got != want {
			t.Errorf("in period %d it writes at %d, want %d", k-1, got, want)
		}
	}
	if got := len(r.Steady()); got != 3 {
		t.Errorf("%d variants go round", got)
	}
}
