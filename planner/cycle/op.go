package cycle

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/planner/schedule"
)

// Op is one op of a cyclic plan.
type Op struct {
	Kind       schedule.Kind
	Prime      bool // of ops of state: the op belongs to the step before
	Microbatch int  // of ops of activations, from 1; 0: the only one
	Layer      int  // 1..n
}

// Sequence is the ops of one step of the steady state, in issue order.
type Sequence []Op

// ParseError is a token of the text form that is no op.
type ParseError struct {
	Index  int // position of the token, counted from 0
	Token  string
	Reason string
}

func (e *ParseError) Error() string { return fmt.Sprintf("op %d: %q %s", e.Index, e.Token, e.Reason) }

// String returns the op's token in the text form: "Fck1.2", "H3'".
func (o Op) String() string { return string(o.append(nil)) }

func (o Op) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, o.Kind.Token()...), int64(o.Layer), 10)
	if o.Microbatch != 0 {
		b = strconv.AppendInt(append(b, '.'), int64(o.Microbatch), 10)
	}
	if o.Prime {
		b = append(b, '\'')
	}
	return b
}

// String returns the text form, one token per op: "Pw1 Fall1 B1 U1".
func (s Sequence) String() string {
	var b []byte
	for i, o := range s {
		if i > 0 {
			b = append(b, ' ')
		}
		b = o.append(b)
	}
	return string(b)
}

// Parse reads the text form; tokens are separated by white space. Errors: *ParseError.
func Parse(text string) (Sequence, error) {
	tokens := strings.Fields(text)
	seq := make(Sequence, len(tokens))
	for i, token := range tokens {
		op, reason := parseOp(token)
		if reason != "" {
			return nil, &ParseError{i, token, reason}
		}
		seq[i] = op
	}
	return seq, nil
}

// parseOp splits a token into letters, layer, microbatch and prime.
func parseOp(token string) (op Op, reason string) {
	text, prime := strings.CutSuffix(token, "'")
	digits := strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	kind, known := schedule.KindOf(strings.TrimSuffix(text, digits))
	layer, microbatch, several := strings.Cut(digits, ".")
	op = Op{Kind: kind, Prime: prime, Layer: parseNumber(layer)}
	if several {
		op.Microbatch = parseNumber(microbatch)
	}
	switch {
	case !known:
		return Op{}, "is no op: Fall, Fck, F, B, O, P, Pw, Ow, Dw, Ps, Os, Ds, Og, Pg, U or H, with a layer"
	case op.Layer == 0:
		return Op{}, "has a layer that is not a number from 1"
	case several && op.Microbatch == 0:
		return Op{}, "has a microbatch that is not a number from 1"
	}
	return op, op.misused()
}

// parseNumber reads a number from 1 on; 0: it is none.
func parseNumber(digits string) int {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > schedule.MaxLayer {
		return 0
	}
	return int(n)
}

// misused says whether the op has a prime or a microbatch that its kind does not go with; "": no.
func (o Op) misused() (reason string) {
	switch ofState := o.Kind.OfState(); {
	case o.Prime && !ofState:
		return "has a prime, which is for ops of weights, gradients and state"
	case o.Microbatch != 0 && ofState:
		return "has a microbatch, and the weights, gradient and state of a layer belong to all"
	}
	return ""
}

// MarshalJSON writes {"op":"forward_all","layer":1,"microbatch":2}; a prime is "prime":true.
func (o Op) MarshalJSON() ([]byte, error) { return o.Fields().MarshalJSON() }

// Fields lists the fields of an op in a file.
func (o Op) Fields() fields.List {
	out := fields.List{{Name: "op", Value: o.Kind.String()}, {Name: "layer", Value: o.Layer}}
	out = fields.Unless(out, 0, "microbatch", o.Microbatch)
	return fields.Unless(out, false, "prime", o.Prime)
}

// UnmarshalJSON reads what MarshalJSON writes; fields of other names are ignored.
func (o *Op) UnmarshalJSON(data []byte) error {
	obj, err := fields.Parse(data)
	if err != nil {
		return err
	}
	obj.Require("op", "layer")
	name := obj.String("op", "")
	layer, microbatch, prime := obj.Int("layer", 0), obj.OptionalInt("microbatch"), obj.Bool("prime", false)
	if err := obj.Err(); err != nil {
		return err
	}
	kind, err := schedule.ParseKind(name)
	if err != nil {
		return err
	}
	if layer < 1 || layer > schedule.MaxLayer {
		return &fields.Error{Field: "layer", Value: fmt.Sprint(layer), Reason: "is not the number of a layer"}
	}
	read := Op{Kind: kind, Prime: prime, Layer: int(layer)}
	if microbatch != nil {
		if read.Microbatch = int(*microbatch); *microbatch < 1 || *microbatch > schedule.MaxLayer {
			return &fields.Error{Field: "microbatch", Value: fmt.Sprint(*microbatch), Reason: "is not a number from 1"}
		}
	}
	if reason := read.misused(); reason != "" {
		return &fields.Error{Field: "op", Value: name, Reason: reason}
	}
	*o = read
	return nil
}

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
