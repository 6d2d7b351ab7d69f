package pipeline

// Gradients of replicas
//
// Messages (Plan.Synchronization) add up the gradients of a stage on several devices d_0, ..., d_{r-1} that work, in the order of
// Stage.Devices. A periodic plan has them once for each round (Plan.Round), a flush plan once in a step. The layers of the stage that have
// weights are in buckets of consecutive layers, each in one. For each bucket:
//
//	reduces   d_0 to d_1, d_1 to d_2, ..., d_{r-2} to d_{r-1}: the sum so far, to which the next device adds its own. So bits do not
//	          depend on times
//	gathers   the sum of all, from any device that has it, until all have it. Synchronize sends it back along the line: with links of two
//	          directions each then carries the bytes once
//
// In a plan with a flush the buckets of a stage may instead all be in r parts of as many bytes (reduce-scatter and all-gather). Device d_i
// owns part i+1. The bits are the same. Each part has messages of both kinds:
//
//	reduces   from each device to the owner, which adds them up in the order of the devices
//	gathers   the sum, from the owner or another device that has it, until all have it
//
// A message takes as long as the weights of its bucket take on the link from one device to the other, which carries nothing else
// meanwhile. It may start:
//
//	the first reduce   when the gradients of the bucket are made on d_0 and d_1, in all backwards of the round
//	another reduce     when they are made on the device that it goes to, and the reduce before it has ended
//	a part's reduce    when they are made on the device that sends
//	a gather           when the device that sends has the sum
//
// The owner of a part has the sum when the part's reduces have ended, and its own gradients are made.
//
// A backward comes down from the last layer of its stage. It has made the gradients of layers i and above when only the layers of the stage
// below i remain. These layers take their times of the chain. In a stage with ops or with a split backward, and in a task with a timing,
// these times are not known. Gradients are then there when the last task of the minibatch ends.
//
// The update of a round is made when its last message has ended, and of all rounds before. The weights that a minibatch sees follow
// (Report.Missed); no task waits for a message. Weights that are double buffered are updated for groups of minibatches. A group has as many
// rounds as the executor needs, which a period does not determine. So the plan has messages in every round, and the sum of a group takes
// the messages of its last round.
//
// A plan has all these messages, of all stages with weights on several devices that work, or none: then that takes no time. Where the
// platform counts buffers, a device has blocks for the reduces that come to it, from each device that sends some. For each sender it has
// two blocks of the largest of these messages, or one where a round has one message. Parts are added up in the order of the
// devices, so there are at least as many blocks as parts are there at once. A part is there from the start of its message until it
// is added up: all messages of it have come, and its owner has made its own gradients. Rounds are added up in their order. Copies of the weights follow the papers, by Versions and
// minibatches in flight. If an update comes while another minibatch is live, one version is kept longer. Only the executor's accounts,
// which know each byte before the first step, count this version.

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
	Part        int     // of the bucket, counted from 1: what the replica at that place of the stage owns; 0: all of it
	From, To    int     // devices, counted from 0
	Start       float64 // seconds, as a task's
	Shift       int     // of the last minibatch of the round; of a flush plan the last microbatch; of weights for a turn that of its first task
	Before      Kind    // F or B, the first task of the turn that the weights are for (ZeroWeights); else 0
	Extra       map[string]json.RawMessage
}

// String returns the message in short. For example, "reduce2[4-6] 0-1(5)" is the message of layers 4 to 6 of stage 2, from device
// 0 to 1, for shift 5. The second part of it is "reduce2[4-6]#2 0-1(5)".
func (s Synchronization) String() string {
	part := ""
	if s.Part != 0 {
		part = fmt.Sprintf("#%d", s.Part)
	}
	if s.Before != 0 {
		part += " before " + s.Before.String()
	}
	return fmt.Sprintf("%v%d[%d-%d]%s %d-%d(%d)", s.Kind, s.Stage, s.First, s.Last, part, s.From, s.To, s.Shift)
}

func (s Synchronization) list() fields.List {
	out := fields.List{
		{Name: "kind", Value: s.Kind.String()}, {Name: "stage", Value: s.Stage},
		{Name: "first_layer", Value: s.First}, {Name: "last_layer", Value: s.Last},
	}
	out = append(fields.Unless(out, 0, "part", s.Part),
		fields.Field{Name: "from", Value: s.From}, fields.Field{Name: "to", Value: s.To},
		fields.Field{Name: "start_s", Value: s.Start}, fields.Field{Name: "shift", Value: s.Shift})
	if s.Before != 0 {
		out = append(out, fields.Field{Name: "before", Value: s.Before.String()})
	}
	return out.With(s.Extra)
}

func takeSynchronization(o *fields.Object) (s Synchronization, err error) {
	o.Require("kind", "stage", "first_layer", "last_layer", "from", "to", "start_s", "shift")
	name := o.String("kind", "reduce")
	s.Stage, s.First, s.Last = int(o.Int("stage", 0)), int(o.Int("first_layer", 0)), int(o.Int("last_layer", 0))
	s.Part = int(o.Size("part", 0))
	s.From, s.To = int(o.Size("from", 0)), int(o.Size("to", 0))
	s.Start, s.Shift = o.Float("start_s", 0), int(o.Int("shift", 0))
	before := o.String("before", "")
	if err := o.Err(); err != nil {
		return s, err
	}
	if before != "" {
		if s.Before, _ = ParseKind(before); s.Before != F && s.Before != B {
			return s, &fields.Error{Field: "before", Value: fmt.Sprintf("%q", before), Reason: "is neither F nor B"}
		}
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
