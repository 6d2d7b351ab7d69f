package chain

import (
	"errors"
	"fmt"

	"plimsoll/internal/fields"
)

var (
	// ErrFormat: a chain breaks the rules of plimsoll.chain/v1; the message names layer, field and value.
	ErrFormat = errors.New("bad chain")
	// ErrGroups: the groups asked for are not consecutive ranges of all layers.
	ErrGroups = errors.New("bad groups")
)

// inLayer says in which layer an error is; i counts from 0, the message from 1.
func (c *Chain) inLayer(i int, err error) error {
	if name := c.Layers[i].Name; name != "" {
		return fmt.Errorf("layer %d (%s): %w", i+1, name, err)
	}
	return fmt.Errorf("layer %d: %w", i+1, err)
}

func badOwner(value, reason string) error {
	return &fields.Error{Field: "weights_of", Value: value, Reason: reason}
}
