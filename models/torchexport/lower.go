package torchexport

import (
	"encoding/json"
	"fmt"

	"plimsoll/models/importer"
)

// lowering makes the importer's graph of a program: each op of ATen becomes nodes that the importer reads.
type lowering struct {
	*program
	to      *importer.Graph
	names   map[string]string // of the graph, by those of the program
	stored  map[string]string // of tensors of the archive, by those of the program
	aliases *aliases
	cuts    map[string]cutout // by value
	made    int               // nodes
}

// cutout is a value that is a range of an axis of another one.
type cutout struct {
	of   string // a value of the program
	axis int64
	from string // values of the graph
	to   string
}

// input adds what the signature says of an input: a tensor of the archive, or one that the user gives.
func (l *lowering) input(spec map[string]json.RawMessage) error {
	for kind, raw := range spec {
		s := struct {
			Arg            json.RawMessage
			ParameterName  string `json:"parameter_name"`
			BufferName     string `json:"buffer_name"`
			TensorConstant string `json:"tensor_constant_name"`
		}{}
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("models/model.json: input %.100s: %w", raw, err)
		}
		switch kind {
		case "parameter":
			return l.tensor(s.Arg, l.weights, s.ParameterName)
		case "buffer":
			from := l.weights
			if from.byName[s.BufferName] == nil { // it is not persistent
				from = l.constants
			}
			return l.tensor(s.Arg, from, s.BufferName)
		case "tensor_constant":
			return l.tensor(s.Arg, l.constants, s.TensorConstant)
		case "user_input":
			return l.userInput(s.Arg)
		case "constant_input":
			return nil
		}
		return fmt.Errorf("an input is of kind %.100q, which is not supported", kind)
	}
	return nil
}

// tensor makes a name of the program stand for a tensor of the archive.
func (l *lowering) tensor(arg json.RawMessage, from *tensors, name string) error {
	value := struct{ Name string }{}
	if err := json.Unmarshal(arg, &value); err != nil {
		return fmt.Errorf("models/model.json: input %.100s: %w", arg, err)
	}
	s := from.byName[name]
	if s == nil || value.Name == "" {
		return fmt.Errorf("the archive has no tensor %.100q", name)
	}
	if have := l.to.Tensors[s.Name]; have != nil && have != s.tensor {
		return fmt.Errorf("two tensors are called %.100q", s.Name)
	}
	l.to.Tensors[s.Name], l.names[value.Name], l.stored[value.Name] = s.tensor, s.Name, s.Name
	l.aliases.add(value.Name)
	return nil
}

// userInput adds an input that is a tensor.
func (l *lowering) userInput(raw json.RawMessage) error {
	arg := argument{}
	if err := json.Unmarshal(raw, &arg); err != nil || arg.kind != "as_tensor" {
		return fmt.Errorf("input %.100s is no tensor: export a model that takes one", raw)
	}
	name, err := arg.name()
	if err != nil {
		return err
	}
	m, err := l.meta(name)
	if err != nil {
		return err
	}
	p := importer.Port{Name: l.named(name), DType: dtypes[m.DType]}
	for _, e := range m.Sizes {
		extent := int64(0) // open
		if e.Int != nil {
			extent = *e.Int
		}
		p.Shape = append(p.Shape, extent)
	}
	if name == "attention_mask" {
		l.to.Mask = p.Name
	}
	l.to.Inputs = append(l.to.Inputs, p)
	l.aliases.add(name)
	return nil
}

// output adds an output.
func (l *lowering) output(spec map[string]json.RawMessage) error {
	for kind, raw := range spec {
		s := struct{ Arg argument }{}
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("models/model.json: output %.100s: %w", raw, err)
		}
		if kind != "user_output" {
			return fmt.Errorf("an output is of kind %.100q: export with torch.export.export(model.train(), ...), without run_decompositions()", kind)
		}
		name, err := s.Arg.name()
		if err != nil {
			return fmt.Errorf("an output is no tensor: %w", err)
		}
		if l.aliases.stale(name) {
			return fmt.Errorf("the output is a tensor that was changed in place under another name: return what the change returns")
		}
		l.to.Outputs = append(l.to.Outputs, importer.Port{Name: l.names[name]})
	}
	return nil
}

// named gives a value of the program a name that no tensor of the archive has.
func (l *lowering) named(value string) string {
	l.names[value] = "%" + value
	return l.names[value]
}

// meta returns the description of a value of the program.
func (l *lowering) meta(value string) (*meta, error) {
	m := &meta{}
	raw := l.Module.Graph.Values[value]
	if raw == nil {
		return nil, fmt.Errorf("models/model.json does not describe the tensor %.100q", value)
	}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("models/model.json: tensor %.100q: %w", value, err)
	}
	if len(m.Sizes) > importer.MostAxes {
		return nil, fmt.Errorf("tensor %.100q has more than %d axes", value, importer.MostAxes)
	}
	return m, nil
}
