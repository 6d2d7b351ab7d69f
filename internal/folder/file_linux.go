package folder

import (
	"os"

	"golang.org/x/sys/unix"
)

// file is an open file that can take space before it is written.
type file struct{ *os.File }

// Allocate takes so many bytes on the disk.
func (f file) Allocate(size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }
