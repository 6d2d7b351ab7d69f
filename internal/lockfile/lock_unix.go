//go:build unix

package lockfile

import (
	"errors"

	"golang.org/x/sys/unix"
)

// try is flock(2). On NFS Linux makes it a lock of the server's (flock(2), NFS details), so the file must be open for writing.
func try(fd uintptr) error {
	for {
		err := unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EINVAL):
			return ErrUnsupported
		default:
			return err
		}
	}
}
