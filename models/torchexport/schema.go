package torchexport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll/models/importer"
)

// The descriptions of an archive (torch/_export/serde/schema.py of PyTorch 2.15, schema 8), as far as a model to train has them.

// What is read of archives.
const (
	archiveVersion = "0"
	schemaMajor    = 8
)

// program is an archive's description.
type program struct {
	Schema struct {
		Major, Minor int
	} `json:"schema_version"`
	Module struct {
		Graph     graph
		Signature struct {
			Inputs  list[map[string]json.RawMessage] `json:"input_specs"`
			Outputs list[map[string]json.RawMessage] `json:"output_specs"`
		}
	} `json:"graph_module"`

	weights, constants *tensors
}

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

// input is an argument by its name in the op's schema. Arguments that have the schema's default are left out.
type input struct {
	Name string
	Arg  argument
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

// readProgram reads an archive's descriptions, and where its tensors are.
func readProgram(b []byte) (*program, error) {
	a, err := openArchive(b)
	if err != nil {
		return nil, err
	}
	for name, want := range map[string]string{"archive_format": "pt2", "archive_version": archiveVersion, "byteorder": "little"} {
		if have, err := a.text(name); err != nil {
			return nil, err
		} else if have != want {
			return nil, fmt.Errorf("%s is %.40q, and only %q is read: export it with PyTorch 2.15 on a little-endian machine", name, have, want)
		}
	}
	if err := a.oneModel(); err != nil {
		return nil, err
	}
	p := &program{}
	if err := a.decode("models/model.json", p); err != nil {
		return nil, err
	}
	if p.Schema.Major != schemaMajor {
		return nil, fmt.Errorf("schema_version is %d.%d, and %d is read: export it with PyTorch 2.15", p.Schema.Major, p.Schema.Minor, schemaMajor)
	}
	if len(p.Module.Graph.Nodes) == 0 || len(p.Module.Graph.Nodes) > importer.MostNodes {
		return nil, fmt.Errorf("models/model.json has %d nodes, want 1 to %d", len(p.Module.Graph.Nodes), importer.MostNodes)
	}
	if p.weights, err = a.tensors("data/weights/", "model_weights_config.json"); err != nil {
		return nil, err
	}
	p.constants, err = a.tensors("data/constants/", "model_constants_config.json")
	return p, err
}

// oneModel refuses an archive of several models.
func (a *archive) oneModel() error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(a.entries)) {
		if strings.HasPrefix(name, "models/") && strings.HasSuffix(name, ".json") {
			all = append(all, name)
		}
	}
	if len(all) > 1 {
		return fmt.Errorf("it has %d models (%.60q, %.60q), want one", len(all), all[0], all[1])
	}
	return nil
}

// decode reads a description.
func (a *archive) decode(name string, to any) error {
	b, err := a.read(name, mostJSON)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("entry %q: %w", name, err)
	}
	return nil
}
