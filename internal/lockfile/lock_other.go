//go:build !unix

package lockfile

func try(uintptr) error { return ErrUnsupported }
