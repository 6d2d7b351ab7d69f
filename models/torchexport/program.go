package torchexport

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll/models/importer"
)

// The parts of archives that are read.
const (
	archiveVersion = "0"
	schemaMajor    = 8
)

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
	p := &program{written: map[string]string{}}
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
	written            map[string]string // by the names of tensors that steps change in place: the label of the node that does
}
