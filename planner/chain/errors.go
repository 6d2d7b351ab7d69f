package chain

import "errors"

var (
	// ErrFormat: a chain breaks the rules of plimsoll.chain/v1; the message names layer, field and value.
	ErrFormat = errors.New("bad chain")
	// ErrGroups: the groups asked for are not consecutive ranges of all layers.
	ErrGroups = errors.New("bad groups")
)
