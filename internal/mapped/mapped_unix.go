//go:build unix

// Package mapped reads files that may be larger than memory.
package mapped

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open returns the bytes of a file, which are read from the disk at their first use. They are never unmapped: a data set lasts as long
// as the program. They must not be written. A process that shortens the file meanwhile ends the program.
func Open(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the mapping stays
	return File(f)
}

// File is Open of a file that is open; it may be closed then.
func File(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", f.Name())
	}
	if info.Size() == 0 {
		return nil, nil
	}
	return unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
}
