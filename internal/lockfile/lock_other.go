//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package lockfile

func try(uintptr) error { return ErrUnsupported }
