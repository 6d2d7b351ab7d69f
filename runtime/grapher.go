package runtime

// Grapher is a device that can keep a piece of a step as one launch, so that repeating it costs one call.
type Grapher interface {
	// Capture calls issue and, instead of running what issue puts on the streams of this device, keeps it in the Launch
	// that it returns. Launching that on origin does what issuing the piece again would do: it starts behind
	// everything that the streams used in the piece hold, what is issued to them later runs behind it, and the events
	// recorded in it are recorded, with their times.
	//
	// In issue, streams of the device may be used from any goroutine, but not synchronized; a Wait for an event that
	// is not recorded in the piece is for the event's latest Record at each launch, and copies use the same spans at
	// each launch. When something cannot be captured the call that asks for it fails, and Capture with it; nothing
	// has run then, and the streams are as they were.
	Capture(origin Stream, issue func() error) (Launch, error)
}
