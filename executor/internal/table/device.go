package table

import "plimsoll/runtime"

// Device is a device of a plan, as tables name it.
type Device struct {
	Number  int // its number in the plan
	Process int // that has it
	Dev     runtime.Device
	// Recording takes what a dry run notes; nil outside of dry runs.
	Recording *Recording
}
