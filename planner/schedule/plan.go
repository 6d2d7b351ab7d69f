package schedule

import (
	"encoding/json"
	"fmt"
	"io"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
)

// Format is the value of the "format" field of a plan file.
const Format = "plimsoll.plan/v1"

// Plan is a sequence with what it was made for and what it is predicted to cost.
type Plan struct {
	Chain     string // name of the chain
	Strategy  string
	Winner    string // of a strategy that chooses among others: the one whose plan it is; else ""
	Limits    Limits
	Predicted Predicted
	Ops       Sequence
	Bound     float64 // seconds: no sequence within the limits takes less, as its strategy has proved; 0: it proved nothing. Not in files
	// Extra and OpExtra keep the fields of the file that this package does not know; OpExtra by position of the op.
	Extra   map[string]json.RawMessage
	OpExtra map[int]map[string]json.RawMessage
}

// Predicted is the simulated cost of a plan.
type Predicted struct {
	Makespan float64 // seconds
	Peak     int64   // bytes
	Idle     float64 // seconds
	Extra    map[string]json.RawMessage
}

// NewPlan simulates a sequence within limits and makes it a plan. Errors: those of Simulate.
func NewPlan(c *chain.Chain, strategy string, seq Sequence, limits Limits) (*Plan, error) {
	r, err := Simulate(c, seq, limits)
	if err != nil {
		return nil, err
	}
	return &Plan{
		Chain:     c.Name,
		Strategy:  strategy,
		Limits:    limits,
		Predicted: Predicted{Makespan: r.Makespan, Peak: r.Peak, Idle: r.Idle},
		Ops:       seq,
	}, nil
}

// Name is the strategy for people, with the one that it chose: "auto (rotor-exact)".
func (p *Plan) Name() string { return Name(p.Strategy, p.Winner) }

// Name is Plan.Name of a strategy and a winner, which may be "".
func Name(strategy, winner string) string {
	if winner == "" {
		return strategy
	}
	return strategy + " (" + winner + ")"
}

// For refuses a chain that the plan was not made for. Errors: ErrOtherChain, *RuleError.
func (p *Plan) For(c *chain.Chain) error {
	if p.Chain != c.Name {
		return fmt.Errorf("%w: field \"chain\" is %q, the chain's name %q", ErrOtherChain, p.Chain, c.Name)
	}
	return Verify(c, p.Ops)
}

// Read reads a plan file. Whether it keeps the rules only its chain can tell: see For. Errors name the file, the
// op, the field and its value; ErrPipeline for a plan with stages.
func Read(path string) (*Plan, error) { return fields.ReadFile[Plan](path) }

// Write writes the plan to a file, whole or not at all.
func (p *Plan) Write(path string) error { return atomicfile.WriteFile(path, p.Encode) }

// Encode writes the plan with one op a line.
func (p *Plan) Encode(w io.Writer) error { return p.list().WriteLines(w, "ops") }

// MarshalJSON writes the plan on one line.
func (p Plan) MarshalJSON() ([]byte, error) { return p.list().MarshalJSON() }

func (p *Plan) list() fields.List {
	out := fields.List{
		{Name: "format", Value: Format},
		{Name: "chain", Value: p.Chain},
		{Name: "strategy", Value: p.Strategy},
	}
	out = fields.Unless(out, "", "winner", p.Winner)
	out = fields.Unless(out, NoLimit, "memory_bytes", p.Limits.Memory)
	out = fields.Unless(out, 0, "bandwidth_bytes_per_s", p.Limits.Link.Bandwidth)
	out = fields.Unless(out, false, "duplex", p.Limits.Link.Duplex)
	out = fields.Unless(out, 0, "host_memory_bytes", p.Limits.Host)
	predicted := fields.List{
		{Name: "makespan_s", Value: p.Predicted.Makespan},
		{Name: "peak_bytes", Value: p.Predicted.Peak},
		{Name: "idle_s", Value: p.Predicted.Idle},
	}
	ops := make([]fields.List, len(p.Ops))
	for i, op := range p.Ops {
		ops[i] = op.list().With(p.OpExtra[i])
	}
	out = append(out,
		fields.Field{Name: "predicted", Value: predicted.With(p.Predicted.Extra)},
		fields.Field{Name: "ops", Value: ops})
	return out.With(p.Extra)
}

// UnmarshalJSON reads a plan; on an error the plan is left as it was. Only format, chain and ops must be there.
func (p *Plan) UnmarshalJSON(data []byte) error {
	o, err := fields.Parse(data)
	if err != nil {
		return err
	}
	o.Format(Format)
	if o.Err() == nil && (o.Has("stages") || o.Has("tasks")) {
		return fmt.Errorf("%w: it has stages or tasks", ErrPipeline)
	}
	o.Require("chain", "ops")
	read := Plan{
		Chain:    o.String("chain", ""),
		Strategy: o.String("strategy", ""),
		Winner:   o.String("winner", ""),
		Limits:   takeLimits(o),
	}
	predicted := o.Object("predicted")
	ops := o.Array("ops")
	if err := o.Err(); err != nil {
		return err
	}
	if read.Predicted, err = takePredicted(predicted); err != nil {
		return fmt.Errorf("predicted: %w", err)
	}
	if err := read.takeOps(ops); err != nil {
		return err
	}
	read.Extra = o.Rest()
	*p = read
	return nil
}

func takeLimits(o *fields.Object) Limits {
	return Limits{
		Memory: o.Size("memory_bytes", NoLimit),
		Link: Link{
			Bandwidth: o.NotNegative("bandwidth_bytes_per_s", 0),
			Duplex:    o.Bool("duplex", false),
		},
		Host: o.Size("host_memory_bytes", 0),
	}
}

func takePredicted(o *fields.Object) (Predicted, error) {
	p := Predicted{
		Makespan: o.NotNegative("makespan_s", 0),
		Peak:     o.Size("peak_bytes", 0),
		Idle:     o.NotNegative("idle_s", 0),
		Extra:    o.Rest(),
	}
	return p, o.Err()
}

func (p *Plan) takeOps(raw []json.RawMessage) error {
	p.Ops = make(Sequence, len(raw))
	for i, r := range raw {
		o, err := fields.Parse(r)
		if err == nil {
			p.Ops[i], err = takeOp(o)
		}
		if err != nil {
			return fmt.Errorf("op %d: %w", i, err)
		}
		if rest := o.Rest(); rest != nil {
			if p.OpExtra == nil {
				p.OpExtra = map[int]map[string]json.RawMessage{}
			}
			p.OpExtra[i] = rest
		}
	}
	return nil
}
