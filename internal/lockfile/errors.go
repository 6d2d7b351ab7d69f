package lockfile

import "errors"

var (
	// ErrHeld says that another open file has the lock.
	ErrHeld = errors.New("locked")
	// ErrUnsupported says that the file system, or the operating system, has no locks.
	ErrUnsupported = errors.New("the file system has no locks")
)
