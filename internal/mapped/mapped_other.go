//go:build !unix

// Package mapped reads files that may be larger than memory.
package mapped

import (
	"io"
	"os"
)

// Open returns the bytes of a file, all of them in memory: this system's mappings are not used.
func Open(path string) ([]byte, error) { return os.ReadFile(path) }

// File is Open of a file that is open.
func File(f *os.File) ([]byte, error) { return io.ReadAll(f) }
