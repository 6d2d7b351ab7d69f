package devices

import "errors"

var (
	// ErrSpec is returned for a spec that cannot be read.
	ErrSpec = errors.New("bad device")
	// ErrUnknown is returned for a kind of device that is not known here.
	ErrUnknown = errors.New("unknown device")
)
