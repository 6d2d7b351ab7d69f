package profiles

import (
	"bytes"
	"errors"
	"fmt"

	"plimsoll/internal/bounded"
	"plimsoll/planner/chain"
)

// ErrNoChain is returned for a file that is no chain in any form that is known.
var ErrNoChain = errors.New("no chain")

// Source is a chain as read from a file.
type Source struct {
	Chain *chain.Chain
	Graph *Graph // what the chain was linearized from; nil for a file of layers
}

// ReadSource reads a chain in whatever form it is. Errors: those of ParseSource, with the file's name, and of the file system.
func ReadSource(path string) (*Source, error) {
	data, err := bounded.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseSource(path, data)
}

// ParseSource reads a chain file, PipeDream's graph.txt or a table of layers; file is its name in errors and, where the form has
// none, the chain's. Errors: ErrNoChain, those of package chain, *fields.FileError.
func ParseSource(file string, data []byte) (*Source, error) {
	var s Source
	var err error
	switch text := bytes.TrimSpace(data); {
	case bytes.HasPrefix(text, []byte("{")):
		if s.Chain, err = chain.Decode(bytes.NewReader(data)); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	case bytes.Contains(text, []byte("forward_compute_time=")):
		if s.Graph, err = ParseGraph(file, data); err == nil {
			s.Chain, err = s.Graph.Chain()
		}
	case looksLikeTable(text):
		s.Chain, err = ParseTable(file, data)
	default:
		err = fmt.Errorf("%s: %w: give a chain file (JSON), PipeDream's graph.txt (with \"forward_compute_time=\"), or a table of layers (its first line is as in \"name,forward_ms,backward_ms,output_bytes\")",
			file, ErrNoChain)
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}
