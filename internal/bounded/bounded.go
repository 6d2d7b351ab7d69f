// Package bounded reads what others wrote without taking more memory for it than it may be worth.
package bounded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Most is how many bytes a text may have that is read whole: a chain, a plan, a schedule. Plans of millions of ops have fewer.
const Most = 128 << 20

// SizeError says that something is too large to be what it was taken for.
type SizeError struct {
	Name string
	Most int64 // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s is too large: it may have %d MiB", e.Name, e.Most>>20)
}

// errNoWriter says that nothing can come from a pipe; to wait for it would end with a second interrupt only.
var errNoWriter = errors.New("it is a pipe into which nothing is written: give a file, or start what writes into it first")

// ReadFile reads a file of at most Most bytes; a device or a pipe that gives more is not read further. Errors: *SizeError, those of
// the operating system, *fs.PathError for a pipe that nothing has opened to write.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is opened although nothing writes into it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // of a file that was read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > Most {
		return nil, &SizeError{path, Most}
	}
	text, err := readAll(f, path, max(info.Size(), 0))
	if err == nil && len(text) == 0 && info.Mode()&fs.ModeNamedPipe != 0 {
		err = &fs.PathError{Op: "read", Path: path, Err: errNoWriter}
	}
	return text, err
}

// ReadAll reads at most Most bytes to their end. Errors: *SizeError with the name, those of the reader.
func ReadAll(r io.Reader, name string) ([]byte, error) { return readAll(r, name, 0) }

// readAll is ReadAll of about so many bytes. Beyond them it takes memory in pieces: no more than there is to read, and once as much for
// the whole.
func readAll(r io.Reader, name string, size int64) ([]byte, error) {
	var pieces [][]byte
	read := int64(0)
	for next := max(size+1, 4<<10); ; next = 1 << 20 {
		piece := make([]byte, next)
		n, err := io.ReadFull(r, piece)
		pieces, read = append(pieces, piece[:n]), read+int64(n)
		switch {
		case read > Most:
			return nil, &SizeError{name, Most}
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // the piece is not full
			if len(pieces) == 1 {
				return piece[:n], nil
			}
			return bytes.Join(pieces, nil), nil
		case err != nil:
			return nil, err
		}
	}
}
