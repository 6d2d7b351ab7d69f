package pipeline

import "plimsoll/runtime"

// tableDevice is a device of a plan, as tables name it.
type tableDevice struct {
	device  int // its number in the plan
	process int // that has it
	dev     runtime.Device
	// recording takes what a dry run notes; nil outside of dry runs.
	recording *recording
}
