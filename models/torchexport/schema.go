package torchexport

import (
	"bytes"
	"encoding/json"
	"fmt"

	"plimsoll/models/importer"
)

// The descriptions of an archive (torch/_export/serde/schema.py of PyTorch 2.15, schema 8), as far as a model to train has them.

type graph struct {
	Nodes  list[*node]
	Values map[string]json.RawMessage `json:"tensor_values"`
}

// node is an op, with what PyTorch knows of where it comes from.
type node struct {
	Target  string
	Inputs  list[input]
	Outputs list[argument]
	Meta    map[string]string `json:"metadata"`
}

// argument is a value with its kind: {"as_ints": [2, 2]}.
type argument struct {
	kind string
	raw  json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *argument) UnmarshalJSON(b []byte) error {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	if len(all) != 1 {
		return fmt.Errorf("an argument has %d kinds, want 1: %.100s", len(all), b)
	}
	for kind, raw := range all {
		a.kind, a.raw = kind, raw
	}
	return nil
}

// list is a list of at most importer.MostTensors values.
type list[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return fmt.Errorf("want a list, have %.100s", b)
	}
	for d.More() {
		if len(*l) == importer.MostTensors {
			return fmt.Errorf("a list has more than %d values", importer.MostTensors)
		}
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		*l = append(*l, v)
	}
	return nil
}

// extent is a number, or a symbol that stands for one.
type extent struct {
	Int  *int64          `json:"as_int"`
	Name string          `json:"as_name"`
	Expr json.RawMessage `json:"as_expr"`
}

// meta describes a tensor.
type meta struct {
	DType    int64
	Sizes    list[extent]
	Strides  list[extent]
	Offset   extent `json:"storage_offset"`
	Requires bool   `json:"requires_grad"`
	Layout   int64
}

// key tells tensors of one storage apart.
func (m *meta) key() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(text)
}

// input is an argument by its name in the op's schema. Arguments that have the schema's default are left out.
type input struct {
	Name string
	Arg  argument
}
