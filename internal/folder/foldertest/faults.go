// Package foldertest lets operations on the files of a folder fail.
package foldertest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"plimsoll/internal/atomicfile"
)

// Faults are failures of operations that change files, or that open them, below a folder. It may be used by several goroutines.
type Faults struct {
	After int   // operations that succeed before the first that fails
	Err   error // nil: none fails
	Ever  bool  // all later operations that Err can be of fail, too, not one alone

	mu     sync.Mutex
	all    []string
	failed []string
}

// Over lets operations of a file system fail.
func (f *Faults) Over(on atomicfile.FS) atomicfile.FS { return &system{on, f} }

// Failed returns which operations failed, in order: "rename log.jsonl".
func (f *Faults) Failed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Operations returns all operations, in order.
func (f *Faults) Operations() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// fail counts an operation, and lets it fail.
func (f *Faults) fail(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, op+" "+filepath.Base(name))
	first := len(f.failed) == 0
	if f.Err == nil || len(f.all) <= f.After || !first && !f.Ever || !can(f.Err, op) {
		return nil
	}
	f.failed = append(f.failed, f.all[len(f.all)-1])
	return &fs.PathError{Op: op, Path: name, Err: f.Err}
}

// can reports whether an operation can fail with an error: reading succeeds on disks that are full or read-only, removing on full ones.
func can(err error, op string) bool {
	switch err {
	case syscall.ENOSPC:
		return !strings.HasPrefix(op, "read") && op != "remove"
	case syscall.EROFS:
		return !strings.HasPrefix(op, "read")
	}
	return true
}

// system is a file system with faults.
type system struct {
	atomicfile.FS
	faults *Faults
}

// OpenFile implements atomicfile.FS.
func (s *system) OpenFile(name string, flag int, perm fs.FileMode) (atomicfile.File, error) {
	op := "open"
	if flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		op = "read"
	}
	if err := s.faults.fail(op, name); err != nil {
		return nil, err
	}
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{f, s.faults, name}, nil
}

// Mkdir implements atomicfile.FS.
func (s *system) Mkdir(name string) error {
	if err := s.faults.fail("mkdir", name); err != nil {
		return err
	}
	return s.FS.Mkdir(name)
}

// Rename implements atomicfile.FS.
func (s *system) Rename(from, to string) error {
	if err := s.faults.fail("rename", to); err != nil {
		return err
	}
	return s.FS.Rename(from, to)
}

// Remove implements atomicfile.FS.
func (s *system) Remove(name string) error {
	if err := s.faults.fail("remove", name); err != nil {
		return err
	}
	return s.FS.Remove(name)
}

// ReadDir implements atomicfile.FS.
func (s *system) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := s.faults.fail("read folder", name); err != nil {
		return nil, err
	}
	return s.FS.ReadDir(name)
}

// file is an open file of a system.
type file struct {
	atomicfile.File
	faults *Faults
	name   string
}

// Write writes half of what it is given when it fails.
func (f *file) Write(b []byte) (int, error) {
	if err := f.faults.fail("write", f.name); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, at int64) (int, error) {
	if err := f.faults.fail("read from", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, at)
}

// Truncate cuts the file.
func (f *file) Truncate(size int64) error {
	if err := f.faults.fail("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Sync makes the file durable.
func (f *file) Sync() error {
	if err := f.faults.fail("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// Parse returns faults as "after error" or "after error ever" says, as in "12 ENOSPC".
func Parse(text string) (*Faults, error) {
	f, name, ever := &Faults{}, "", ""
	if n, _ := fmt.Sscan(text, &f.After, &name, &ever); n < 2 || Errors[name] == nil {
		return nil, fmt.Errorf("faults are %q: want as in \"12 ENOSPC\"", text)
	}
	f.Err, f.Ever = Errors[name], ever != ""
	return f, nil
}

// Errors maps the names of a disk's errors to the errors.
var Errors = map[string]error{"ENOSPC": syscall.ENOSPC, "EROFS": syscall.EROFS, "EIO": syscall.EIO}
