package executor

import "plimsoll/planner/schedule"

// Role is the purpose of a piece of memory.
type Role string

// The roles.
const (
	Weights         Role = "weights"
	WeightGrads     Role = "gradients of weights"
	States          Role = "optimizer state"
	NextBatch       Role = "the next batch, staged"
	OtherStatic     Role = "labels, scalars"
	Activations     Role = "activation"
	SavedSets       Role = "saved set"
	ActivationGrads Role = "gradient"
	Workspaces      Role = "workspace"
)

// Held is a tensor, or a block of them, that the arena holds.
type Held struct {
	Role  Role
	Layer int // whose it is, from 1; 0: the input, or no layer's
	Bytes int64
}

// AtPeak returns which op of a sequence needs most memory, the first of them, and everything that the arena holds while it runs;
// together they are the peak. Arguments and errors are those of Layout.
func (w *Workload) AtPeak(seq schedule.Sequence, limit int64, sim Sim) (op int, all []Held, err error) {
	b, err := w.pack(seq, limit, sim)
	if err != nil {
		return 0, nil, err
	}
	at := b.layout.fullest()
	all = w.heldStatic()
	for i, owner := range b.layout.owners() {
		if it := &b.layout.items[i]; it.First <= at && at <= it.Last {
			owner.Bytes = it.Bytes
			all = append(all, owner)
		}
	}
	return b.layout.Order[at], all, nil
}

// fullest returns the first moment at which most lives.
func (t *layout) fullest() (at int) {
	change := make([]int64, len(t.seq)+1)
	for i := range t.items {
		change[t.items[i].First] += t.items[i].Bytes
		change[t.items[i].Last+1] -= t.items[i].Bytes
	}
	live, most := int64(0), int64(-1)
	for m := range t.seq {
		if live += change[m]; live > most {
			most, at = live, m
		}
	}
	return at
}

// owners says of every item of the arena what it is.
func (t *layout) owners() []Held {
	all, copies := make([]Held, len(t.items)), make([]Held, len(t.host))
	for i := range all {
		all[i] = Held{Role: Activations} // the inputs, which no op makes
	}
	for p, op := range t.seq {
		blocks := &t.ops[p]
		own := func(block int, role Role, layer int) {
			if block != none {
				all[block] = Held{Role: role, Layer: layer}
			}
		}
		own(blocks.scratch, Workspaces, op.Layer)
		switch op.Kind {
		case schedule.Offload:
			copies[blocks.host] = all[blocks.input]
		case schedule.Prefetch:
			all[blocks.output] = copies[blocks.host]
		case schedule.Backward:
			own(blocks.gradInput, ActivationGrads, op.Layer-1)
			for _, e := range blocks.joined {
				own(e.gradInput, ActivationGrads, op.Layer-1)
			}
		case schedule.ForwardAll:
			own(blocks.output, SavedSets, op.Layer)
		default:
			own(blocks.output, Activations, op.Layer)
		}
	}
	return all
}

// heldStatic lists the static memory by layer.
func (w *Workload) heldStatic() (all []Held) {
	rest := w.StaticBytes()
	add := func(role Role, layer int, bytes int64) {
		if bytes > 0 {
			all = append(all, Held{role, layer, bytes})
			rest -= bytes
		}
	}
	for i, l := range w.Static.Layers {
		add(Weights, i+1, l.Params.Bytes)
		add(WeightGrads, i+1, l.Grads.Bytes)
		for _, s := range l.States {
			add(States, i+1, s.Bytes)
		}
	}
	add(NextBatch, 0, w.StagedBytes())
	add(OtherStatic, 0, rest)
	return all
}
