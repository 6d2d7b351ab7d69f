package schedule

// Link is the path between device and host memory. The zero value has no bandwidth: no transfers are possible.
type Link struct {
	Bandwidth float64 // β, bytes per second, each way
	// Duplex gives each direction its own queue, as devices with two copy engines have; otherwise transfers
	// of both directions share one queue (thesis, assumption O.1).
	Duplex bool
}
