package pipeline

import (
	"encoding/json"
	"fmt"
	"io"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
)

// Read reads a plan file: that of a sequence for one device, or that of stages. Whether it can run only Check tells. Errors name the
// file, the stage, task or op, the field and its value.
func Read(path string) (*Plan, error) { return fields.ReadFile[Plan](path) }

// Decode reads one plan; nothing but white space may follow it.
func Decode(r io.Reader) (*Plan, error) { return fields.Decode[Plan](r) }

// Write writes the plan to a file, whole or not at all.
func (p *Plan) Write(path string) error { return atomicfile.WriteFile(path, p.Encode) }

// Encode writes the plan with one stage and one task, or one op of a sequence for one device, a line.
func (p *Plan) Encode(w io.Writer) error {
	if p.IsSequence() || p.IsCycle() {
		return p.sequenceFields().WriteLines(w, "ops")
	}
	return p.list().WriteLines(w, "synchronization", "stages", "tasks")
}

// MarshalJSON writes the plan on one line.
func (p Plan) MarshalJSON() ([]byte, error) {
	if p.IsSequence() || p.IsCycle() {
		return p.sequenceFields().MarshalJSON()
	}
	return p.list().MarshalJSON()
}

func (p *Plan) list() fields.List {
	out := fields.List{
		{Name: "format", Value: Format},
		{Name: "chain", Value: p.Chain},
		{Name: "strategy", Value: p.Strategy},
	}
	out = fields.Unless(out, "", "winner", p.Winner)
	if next := p.RunnerUp; next != nil {
		out = append(out, fields.Field{Name: "runner_up", Value: next.Strategy}, fields.Field{Name: "runner_up_s", Value: next.Seconds})
	}
	if p.Platform != nil {
		out = append(out, fields.Field{Name: "platform", Value: p.Platform})
	}
	out = fields.Unless(out, "", "weight_versions", p.Versions)
	switch len(p.WeightCopies) {
	case 0:
	case 1:
		out = append(out, fields.Field{Name: "weight_copies", Value: p.WeightCopies[0]})
	default:
		out = append(out, fields.Field{Name: "weight_copies", Value: p.WeightCopies})
	}
	out = fields.Unless(out, 0, "optimizer_copies", p.OptimizerCopies)
	out = fields.Unless(out, 0, "zero", p.Zero)
	out = fields.Unless(out, false, "host_state", p.HostState)
	out = fields.Unless(out, "", "accounting", p.Accounting)
	out = fields.Unless(out, 0, "period_s", p.Period)
	out = fields.Unless(out, 0, "minibatches_per_period", p.MinibatchesPerPeriod)
	out = fields.Unless(out, 0, "microbatches", p.Microbatches)
	out = fields.Unless(out, 0, "batch", p.Batch)
	predicted := fields.Unless(nil, 0, "makespan_s", p.Predicted.Makespan)
	predicted = fields.Unless(predicted, 0, "period_s", p.Predicted.Period)
	predicted = fields.Unless(predicted, 0, "lower_bound_s", p.Predicted.LowerBound).With(p.Predicted.Extra)
	if len(predicted) > 0 {
		out = append(out, fields.Field{Name: "predicted", Value: predicted})
	}
	if p.PerDevicePeak != nil {
		out = append(out, fields.Field{Name: "per_device_peak_bytes", Value: p.PerDevicePeak})
	}
	if len(p.Portals) > 0 {
		out = append(out, fields.Field{Name: "portals", Value: lists(p.Portals, Portal.list)})
	}
	if len(p.Synchronization) > 0 {
		out = append(out, fields.Field{Name: "synchronization", Value: lists(p.Synchronization, Synchronization.list)})
	}
	return append(out,
		fields.Field{Name: "stages", Value: lists(p.Stages, Stage.list)},
		fields.Field{Name: "tasks", Value: lists(p.Tasks, Task.list)}).With(p.Extra)
}

func (s Stage) list() fields.List {
	out := fields.List{
		{Name: "first_layer", Value: s.First},
		{Name: "last_layer", Value: s.Last},
		{Name: "devices", Value: append([]int{}, s.Devices...)}, // never null
	}
	if len(s.Ops) > 0 {
		out = append(out, fields.Field{Name: "ops", Value: s.ops()})
	}
	if len(s.LastOps) > 0 {
		out = append(out, fields.Field{Name: "last_ops", Value: s.LastOps})
	}
	return out.With(s.Extra)
}

func (t Task) list() fields.List {
	out := fields.List{{Name: "kind", Value: t.Kind.String()}, {Name: "stage", Value: t.Stage}}
	out = fields.Unless(out, 0, "to_stage", t.To)
	out = fields.Unless(out, NoDevice, "device", t.Device)
	out = append(out, fields.Field{Name: "start_s", Value: t.Start}, fields.Field{Name: "shift", Value: t.Shift})
	return fields.Optional(out, "duration_s", t.Duration).With(t.Extra)
}

// UnmarshalJSON reads a plan; on an error the plan is left as it was. Only format, stages and tasks must be there, or format, chain and
// ops.
func (p *Plan) UnmarshalJSON(data []byte) error {
	o, err := fields.Parse(data)
	if err != nil {
		return err
	}
	o.Format(Format)
	take := takeSequence
	if o.Has("stages") || o.Has("tasks") {
		take = takeStages
	}
	read, err := take(o)
	if err == nil {
		*p = *read
	}
	return err
}

// takeStages takes a plan with stages and tasks.
func takeStages(o *fields.Object) (read *Plan, err error) {
	o.Require("stages", "tasks")
	read = new(Plan)
	read.takeHead(o)
	stages, tasks, portals, synchronization := o.Array("stages"), o.Array("tasks"), o.Array("portals"), o.Array("synchronization")
	if err := o.Err(); err != nil {
		return nil, err
	}
	if read.Stages, err = objects("stage", stages, takeStage); err != nil {
		return nil, err
	}
	if read.Tasks, err = objects("task", tasks, takeTask); err != nil {
		return nil, err
	}
	if len(portals) > 0 {
		if read.Portals, err = objects("portal", portals, takePortal); err != nil {
			return nil, err
		}
	}
	if len(synchronization) > 0 {
		if read.Synchronization, err = objects("synchronization", synchronization, takeSynchronization); err != nil {
			return nil, err
		}
	}
	if err := read.takeParts(o); err != nil {
		return nil, err
	}
	read.Extra = o.Rest()
	return read, nil
}

// takeHead takes the fields of the plan that are plain values.
func (p *Plan) takeHead(o *fields.Object) {
	p.Chain = o.String("chain", "")
	p.Strategy = o.String("strategy", "")
	p.Winner = o.String("winner", "")
	if next := (RunnerUp{o.String("runner_up", ""), o.NotNegative("runner_up_s", 0)}); next.Strategy != "" {
		p.RunnerUp = &next
	}
	p.Versions = Versions(o.String("weight_versions", ""))
	p.OptimizerCopies = o.NotNegative("optimizer_copies", 0)
	p.Zero = Zero(o.Size("zero", 0))
	p.HostState = o.Bool("host_state", false)
	p.Accounting = Accounting(o.String("accounting", ""))
	p.Period = o.NotNegative("period_s", 0)
	p.MinibatchesPerPeriod = atLeastOne(o, "minibatches_per_period")
	p.Microbatches = atLeastOne(o, "microbatches")
	p.Batch = atLeastOne(o, "batch")
}

// atLeastOne takes a whole number above 0; 0 when it is missing.
func atLeastOne(o *fields.Object, name string) int {
	if !o.Has(name) {
		return 0
	}
	n := o.Size(name, 0)
	if n == 0 {
		o.Refuse(name, "0", "is not at least 1")
	}
	return int(n)
}

// takeParts takes the fields that are objects or arrays.
func (p *Plan) takeParts(o *fields.Object) (err error) {
	if raw := o.Raw("platform"); raw != nil {
		p.Platform = new(Platform)
		if err := p.Platform.UnmarshalJSON(raw); err != nil {
			return fmt.Errorf("field \"platform\": %w", err)
		}
	}
	if p.WeightCopies, err = takeCopies(o); err != nil {
		return err
	}
	if p.PerDevicePeak, err = each(o, "per_device_peak_bytes", (*fields.Object).Size); err != nil {
		return err
	}
	predicted := o.Object("predicted")
	p.Predicted = Predicted{
		Makespan: predicted.NotNegative("makespan_s", 0), Period: predicted.NotNegative("period_s", 0),
		LowerBound: predicted.NotNegative("lower_bound_s", 0),
	}
	p.Predicted.Extra = predicted.Rest()
	if err := predicted.Err(); err != nil {
		return fmt.Errorf("field \"predicted\": %w", err)
	}
	return o.Err()
}

// takeCopies takes a number, or a list with one for each stage.
func takeCopies(o *fields.Object) ([]float64, error) {
	const name = "weight_copies"
	raw := o.Raw(name)
	if raw == nil {
		return nil, nil
	}
	inner := fields.Of(map[string]json.RawMessage{name: raw})
	if raw[0] == '[' {
		return each(inner, name, (*fields.Object).NotNegative)
	}
	copies := inner.NotNegative(name, 0)
	return []float64{copies}, inner.Err()
}

// each takes an array of which every element is read as a field would be; nil when the array is missing.
func each[T any](o *fields.Object, name string, read func(o *fields.Object, name string, missing T) T) ([]T, error) {
	raw := o.Array(name)
	if raw == nil {
		return nil, o.Err()
	}
	out := make([]T, len(raw))
	for i, r := range raw {
		entry := fmt.Sprintf("%s[%d]", name, i)
		element := fields.Of(map[string]json.RawMessage{entry: r})
		var missing T
		element.Require(entry)
		if out[i] = read(element, entry, missing); element.Err() != nil {
			return nil, element.Err()
		}
	}
	return out, nil
}

func takeStage(o *fields.Object) (s Stage, err error) {
	o.Require("first_layer", "last_layer", "devices")
	s.First = int(o.Int("first_layer", 0))
	s.Last = int(o.Int("last_layer", 0))
	devices, err := each(o, "devices", (*fields.Object).Int)
	if err != nil {
		return s, err
	}
	for _, d := range devices {
		s.Devices = append(s.Devices, int(d))
	}
	if raw := o.Array("ops"); raw != nil {
		if s.Ops, s.OpExtra, err = takeOps(raw); err != nil {
			return s, fmt.Errorf("field \"ops\": %w", err)
		}
	}
	if raw := o.Array("last_ops"); raw != nil {
		if s.LastOps, _, err = takeOps(raw); err != nil {
			return s, fmt.Errorf("field \"last_ops\": %w", err)
		}
	}
	s.Extra = o.Rest()
	return s, o.Err()
}

func takeTask(o *fields.Object) (t Task, err error) {
	o.Require("kind", "stage", "start_s", "shift")
	name := o.String("kind", "F")
	t.Stage = int(o.Int("stage", 0))
	t.To = int(o.Size("to_stage", 0))
	t.Device = int(o.Size("device", NoDevice))
	t.Start = o.Float("start_s", 0)
	t.Shift = int(o.Int("shift", 0))
	t.Duration = o.OptionalFloat("duration_s")
	if err := o.Err(); err != nil {
		return t, err
	}
	kind, ok := ParseKind(name)
	if !ok {
		return t, &fields.Error{Field: "kind", Value: fmt.Sprintf("%q", name), Reason: "is none of F, B, W, CF, CB"}
	}
	t.Kind, t.Extra = kind, o.Rest()
	return t, nil
}
