// Package schedule is the one language in which single-device plans are written, and the one truth about them.
// Verify replays a sequence against the rules, Simulate gives its time and memory.
//
// Source: thesis, tables 2.1 and 2.2, assumptions 1, lemma 8.
package schedule

import (
	"encoding/json"
	"fmt"
	"strconv"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
)

// Kind is the kind of an op. The set is closed.
type Kind uint8

const (
	// ForwardAll (F^all) computes ā_ℓ from a_{ℓ-1} or ā_{ℓ-1} and keeps the input.
	ForwardAll Kind = iota
	// ForwardCheckpoint (F^ck) computes a_ℓ from a_{ℓ-1} or ā_{ℓ-1} and keeps the input.
	ForwardCheckpoint
	// ForwardDiscard (F^∅) computes a_ℓ from the plain a_{ℓ-1}, which it frees.
	ForwardDiscard
	// Backward (B) computes δ_{ℓ-1} from δ_ℓ, ā_ℓ and the input of ℓ; it frees δ_ℓ, ā_ℓ and a plain a_{ℓ-1}.
	Backward
	// Offload (O) copies the input of ℓ to host memory and frees it on the device.
	Offload
	// Prefetch (P) copies the input of ℓ back from host memory.
	Prefetch

	// The kinds from here on move and update weights, gradients and optimizer state. They belong to cyclic plans (package cycle) alone.

	// FetchWeights (Pw) copies the weights of ℓ from host memory.
	FetchWeights
	// WriteWeights (Ow) copies the weights of ℓ to host memory; the device's stay.
	WriteWeights
	// DropWeights (Dw) frees the device's weights of ℓ.
	DropWeights
	// FetchState (Ps) copies the optimizer state of ℓ from host memory.
	FetchState
	// WriteState (Os) copies the optimizer state of ℓ to host memory; the device's stays.
	WriteState
	// DropState (Ds) frees the device's optimizer state of ℓ.
	DropState
	// OffloadGradient (Og) copies the gradient of the weights of ℓ to host memory and frees it on the device.
	OffloadGradient
	// FetchGradient (Pg) copies the gradient of the weights of ℓ back from host memory.
	FetchGradient
	// Update (U) updates the weights and the state of ℓ on the device and frees the gradient.
	Update
	// HostUpdate (H) updates the weights and the state of ℓ on the host; the gradient is gone.
	HostUpdate
)

// spelling holds the two names of every kind: in files, and in the text form.
var spelling = [...]struct{ name, token string }{
	ForwardAll:        {"forward_all", "Fall"},
	ForwardCheckpoint: {"forward_checkpoint", "Fck"},
	ForwardDiscard:    {"forward_discard", "F"},
	Backward:          {"backward", "B"},
	Offload:           {"offload", "O"},
	Prefetch:          {"prefetch", "P"},
	FetchWeights:      {"fetch_weights", "Pw"},
	WriteWeights:      {"write_weights", "Ow"},
	DropWeights:       {"drop_weights", "Dw"},
	FetchState:        {"fetch_state", "Ps"},
	WriteState:        {"write_state", "Os"},
	DropState:         {"drop_state", "Ds"},
	OffloadGradient:   {"offload_gradient", "Og"},
	FetchGradient:     {"fetch_gradient", "Pg"},
	Update:            {"update", "U"},
	HostUpdate:        {"host_update", "H"},
}

// Op is one op of a sequence, applied to layer Layer (1..n).
type Op struct {
	Kind  Kind
	Layer int
}

// Seconds returns the planned time of an op that computes.
func (o Op) Seconds(c *chain.Chain) float64 {
	l := c.Layer(o.Layer)
	switch o.Kind {
	case Backward:
		return l.BackwardS
	case ForwardAll:
		return l.ForwardS
	}
	return l.DiscardSeconds()
}

// Sequence is the ops of one training step on one device, in issue order.
type Sequence []Op

// Transfer reports whether the op moves an activation over the link.
func (k Kind) Transfer() bool { return k == Offload || k == Prefetch }

// OfState reports whether the op moves, frees or updates weights, gradients or optimizer state.
func (k Kind) OfState() bool { return k > Prefetch }

// Token returns the letters of the kind in the text form: "Fck".
func (k Kind) Token() string {
	if int(k) < len(spelling) {
		return spelling[k].token
	}
	return k.String()
}

// KindOf is the inverse of Token; false: no kind has these letters.
func KindOf(token string) (Kind, bool) {
	for k, s := range spelling {
		if s.token == token {
			return Kind(k), true
		}
	}
	return 0, false
}

// String returns the name of the kind in plan files: "forward_all".
func (k Kind) String() string {
	if int(k) < len(spelling) {
		return spelling[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// ParseKind is the inverse of String.
func ParseKind(name string) (Kind, error) {
	for k, s := range spelling {
		if s.name == name {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("%w %q", ErrUnknownOp, name)
}

// String returns the op's token in the text form: "Fck1".
func (o Op) String() string { return string(o.append(nil)) }

// MarshalJSON writes {"op":"forward_all","layer":1}.
func (o Op) MarshalJSON() ([]byte, error) { return o.Fields().MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON writes; fields of other names are ignored.
func (o *Op) UnmarshalJSON(data []byte) error {
	obj, err := fields.Parse(data)
	if err != nil {
		return err
	}
	*o, err = TakeOp(obj)
	return err
}

// Fields returns the fields of the op in files.
func (o Op) Fields() fields.List {
	return fields.List{{Name: "op", Value: o.Kind.String()}, {Name: "layer", Value: o.Layer}}
}

// TakeOp takes the fields of an op. Errors: *fields.Error, ErrUnknownOp.
func TakeOp(obj *fields.Object) (Op, error) {
	obj.Require("op", "layer")
	name := obj.String("op", "")
	layer := obj.Int("layer", 0)
	if err := obj.Err(); err != nil {
		return Op{}, err
	}
	kind, err := ParseKind(name)
	if err != nil {
		return Op{}, err
	}
	switch {
	case kind.OfState():
		return Op{}, &fields.Error{Field: "op", Value: name, Reason: "belongs to a cyclic plan, with weights and optimizer state"}
	case layer < 1 || layer > MaxLayer:
		return Op{}, &fields.Error{Field: "layer", Value: fmt.Sprint(layer), Reason: "is not the number of a layer"}
	}
	return Op{kind, int(layer)}, nil
}

// MaxLayer keeps layer numbers within every int.
const MaxLayer = 1<<31 - 1

// UnmarshalJSON reads an array of ops; an error names the position of the op, counted from 0.
func (s *Sequence) UnmarshalJSON(data []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*s = make(Sequence, len(raw))
	for i, r := range raw {
		if err := (*s)[i].UnmarshalJSON(r); err != nil {
			return fmt.Errorf("op %d: %w", i, err)
		}
	}
	return nil
}

func (o Op) append(b []byte) []byte {
	return strconv.AppendInt(append(b, o.Kind.Token()...), int64(o.Layer), 10)
}
