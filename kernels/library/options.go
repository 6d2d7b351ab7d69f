package library

import (
	"encoding/json"

	"plimsoll/runtime"
)

// Options holds the options of all libraries; each library reads its own. The zero value is every library's default.
type Options struct {
	Threads int // workers of the CPU library; 0: all cores
	// Vendor says whether vendors' GPU libraries are used: one of Vendors; "": prefer.
	Vendor     string
	VendorPath string // folders with vendors' libraries, as in PATH; "": as the library's documentation says
	// Choices are the choices of another process, by kernels.Chooser: the library repeats them, and makes only the others
	// itself.
	Choices json.RawMessage
	// Note, when not nil, is told in one line what a library does not use and why.
	Note func(string)
	// Reference asks for kernels/ref in place of the device's own library: every element type, in plain Go, slow. Only
	// for devices whose memory can be read in place.
	Reference bool
}

// Vendors are the values that Options.Vendor can have.
var Vendors = []string{"refuse", "prefer", "require"}

// HostMemory is the host space of a device as memory of this process.
type HostMemory struct{ device runtime.Device }
