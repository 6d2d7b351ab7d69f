//go:build !linux

package host

// reserveCore does nothing on this system.
func reserveCore() bool { return false }

// yieldCore does nothing on this system.
func yieldCore() {}

// releaseCore does nothing on this system.
func releaseCore() {}
