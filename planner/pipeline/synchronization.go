package pipeline

import (
	"encoding/json"
	"fmt"

	"plimsoll/internal/fields"
)

// Synchronization is one message of the gradients of a stage's replicas, at the end of a round (Plan.Round) or, of a flush plan, of the
// step. It carries as many bytes as the weights of its bucket, or of its part of it.
type Synchronization struct {
	Kind        SynchronizationKind
	Stage       int     // counted from 0
	First, Last int     // the layers of the bucket, counted from 1
	Part        int     // of the bucket, counted from 1: what the replica at that place of the stage owns (Plan.Zero); 0: all of it
	From, To    int     // devices, counted from 0
	Start       float64 // seconds, as a task's
	Shift       int     // of the last minibatch of the round; of a flush plan the last microbatch
	Extra       map[string]json.RawMessage
}

// String returns the message in short. For example, "reduce2[4-6] 0-1(5)" is the message of layers 4 to 6 of stage 2, from device
// 0 to 1, for shift 5. The second part of it is "reduce2[4-6]#2 0-1(5)".
func (s Synchronization) String() string {
	part := ""
	if s.Part != 0 {
		part = fmt.Sprintf("#%d", s.Part)
	}
	return fmt.Sprintf("%v%d[%d-%d]%s %d-%d(%d)", s.Kind, s.Stage, s.First, s.Last, part, s.From, s.To, s.Shift)
}

func (s Synchronization) list() fields.List {
	out := fields.List{
		{Name: "kind", Value: s.Kind.String()}, {Name: "stage", Value: s.Stage},
		{Name: "first_layer", Value: s.First}, {Name: "last_layer", Value: s.Last},
	}
	return append(fields.Unless(out, 0, "part", s.Part),
		fields.Field{Name: "from", Value: s.From}, fields.Field{Name: "to", Value: s.To},
		fields.Field{Name: "start_s", Value: s.Start}, fields.Field{Name: "shift", Value: s.Shift}).With(s.Extra)
}

func takeSynchronization(o *fields.Object) (s Synchronization, err error) {
	o.Require("kind", "stage", "first_layer", "last_layer", "from", "to", "start_s", "shift")
	name := o.String("kind", "reduce")
	s.Stage, s.First, s.Last = int(o.Int("stage", 0)), int(o.Int("first_layer", 0)), int(o.Int("last_layer", 0))
	s.Part = int(o.Size("part", 0))
	s.From, s.To = int(o.Size("from", 0)), int(o.Size("to", 0))
	s.Start, s.Shift = o.Float("start_s", 0), int(o.Int("shift", 0))
	if err := o.Err(); err != nil {
		return s, err
	}
	for k := Reduce; k <= Gather; k++ {
		if synchronizationNames[k] == name {
			s.Kind, s.Extra = k, o.Rest()
			return s, nil
		}
	}
	return s, &fields.Error{Field: "kind", Value: fmt.Sprintf("%q", name), Reason: "is neither reduce nor gather"}
}

// of returns the message for a minibatch, the last of its round.
func (s Synchronization) of(minibatch int) Synchronization {
	s.Shift = minibatch
	return s
}
