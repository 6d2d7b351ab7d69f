package measure

import (
	"errors"
	"fmt"

	"plimsoll/internal/units"
)

// ErrSlowLink is returned when the link to host memory is too slow to be measured.
var ErrSlowLink = errors.New("the link to host memory is too slow to be measured")

// WindowError says that a layer alone is too large to be measured.
type WindowError struct {
	Limit  int64  // bytes of the arena
	Needed int64  // static memory included
	Name   string // of the layer
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("%s alone needs %s to be measured, and the limit is %s", e.Name, units.Precise(e.Needed), units.Precise(e.Limit))
}
