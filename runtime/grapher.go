package runtime

// Grapher is a device that can keep a piece of a step as one launch, so that repeating it costs one call.
type Grapher interface {
	// Capture calls issue and, instead of running what issue puts on the streams of this device, keeps it in the Launch
	// that it returns. Launching that on origin is equal to issuing the piece again. It starts after all earlier work
	// of the streams used in the piece, and later work on them runs after it. Events recorded in the piece are
	// recorded, with their times.
	//
	// In issue, streams of the device may be used from any goroutine, but not synchronized. A Wait for an event that
	// is not recorded in the piece is for the event's latest Record at each launch. Copies use the same spans at
	// each launch. When something cannot be captured the call that asks for it fails, and Capture with it; nothing
	// has run then, and the streams are as they were.
	Capture(origin Stream, issue func() error) (Launch, error)
}
