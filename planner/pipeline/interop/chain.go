package interop

import (
	"bytes"
	"errors"
	"fmt"

	"plimsoll/internal/bounded"
	"plimsoll/planner/chain"
)

// ErrNoChain is returned for a file that is no chain in any form that is known.
var ErrNoChain = errors.New("no chain")

// ReadChain reads a chain in whatever form it is. Errors: those of ParseChain, with the file's name, and of the file system.
func ReadChain(path string) (*chain.Chain, error) {
	data, err := bounded.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseChain(path, data)
}

// ParseChain reads a chain file, PipeDream's graph.txt or a table of layers; file is its name in errors and, where the form has
// none, the chain's. Errors: ErrNoChain, those of package chain, *Error.
func ParseChain(file string, data []byte) (*chain.Chain, error) {
	switch text := bytes.TrimSpace(data); {
	case bytes.HasPrefix(text, []byte("{")):
		c, err := chain.Decode(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return c, nil
	case bytes.Contains(text, []byte("forward_compute_time=")):
		g, err := ParseGraph(file, data)
		if err != nil {
			return nil, err
		}
		return g.Chain()
	case looksLikeTable(text):
		return ParseTable(file, data)
	}
	return nil, fmt.Errorf("%s: %w: a chain file is JSON, PipeDream's graph.txt has \"forward_compute_time=\" in the line of an operator, and a table of layers begins with the names of its columns, as in \"name,forward_ms,backward_ms,output_bytes\"",
		file, ErrNoChain)
}
