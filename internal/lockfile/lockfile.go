// Package lockfile takes advisory locks on open files. A lock is held until its file is closed, by whatever ends the process,
// and keeps out only those who ask for it.
package lockfile

import (
	"io/fs"
	"os"
)

// File is an open file; *os.File is one.
type File interface {
	Fd() uintptr
	Stat() (fs.FileInfo, error)
}

// Namer tells what a name stands for.
type Namer interface {
	Lstat(name string) (fs.FileInfo, error)
}

// Try locks a file and does not wait. Errors: ErrHeld, ErrUnsupported, those of the operating system.
func Try(f File) error { return try(f.Fd()) }

// Names reports whether a path still names an open file: a file that was removed or replaced can be locked, too.
func Names(on Namer, path string, f File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := on.Lstat(path)
	return err == nil && os.SameFile(open, there)
}
