package data

import "errors"

var (
	// ErrUnknown is returned by Open for a name that no data set has.
	ErrUnknown = errors.New("unknown data set")
	// ErrOption is returned by Open, NewBatcher and NewLoader for an option out of range.
	ErrOption = errors.New("bad data option")
	// ErrUnreadable says that a file or folder cannot be opened or read. It is never skipped: whether it can be read is a
	// matter of time, and a batch may not be.
	ErrUnreadable = errors.New("unreadable")
	// ErrNoImages says that a folder, a split or a file has no image at all, or that every one of them is bad.
	ErrNoImages = errors.New("no images")
	// ErrEmptyClass says that a class has no image in a split.
	ErrEmptyClass = errors.New("empty class")
	// ErrCorrupt says that the bytes of a file are not what its format asks for.
	ErrCorrupt = errors.New("corrupt file")
	// ErrTruncated says that a file ends too early.
	ErrTruncated = errors.New("truncated file")
	// ErrTooLarge says that a file states a size beyond what is read; nothing of that size was allocated.
	ErrTooLarge = errors.New("too large")
	// ErrLabel says that a label is not one of the classes.
	ErrLabel = errors.New("label out of range")
	// ErrClosed is returned by Loader.Next after Close.
	ErrClosed = errors.New("the loader is closed")
)
