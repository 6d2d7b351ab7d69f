// Package atomicfile writes files that are either complete or not there.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// FS is the file system that a file is written to. Tests make its operations fail.
type FS interface {
	// OpenFile is os.OpenFile; a directory is opened to be synced.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(name string) error
}

// File is an open file of an FS; *os.File is one.
type File interface {
	io.WriteCloser
	Name() string
	Chmod(fs.FileMode) error
	Sync() error
}

// OS is the operating system's file system.
type OS struct{}

// OpenFile implements FS.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	return os.OpenFile(name, flag, perm)
}

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// WriteFile replaces the file at path by what write produces. The bytes go to a temporary file in the same
// directory, which is synced and renamed over path, so that a reader (or a crash) sees the old file or the new
// one and nothing between. On any error path is untouched and the temporary file removed.
//
// An existing file keeps its permissions, a symbolic link keeps pointing to the file that is replaced. A path
// that is no regular file (a pipe, a terminal, /dev/stdout) is written directly.
func WriteFile(path string, write func(io.Writer) error) error { return Write(OS{}, path, write) }

// Write is WriteFile on a file system.
func Write(on FS, path string, write func(io.Writer) error) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return replace(on, path, 0, write)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("write %s: is a directory", path)
	case !info.Mode().IsRegular():
		return writeDirectly(on, path, write)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	return replace(on, path, info.Mode().Perm(), write)
}

// replace writes a sibling of path and renames it; perm 0 leaves the permissions to the umask.
func replace(on FS, path string, perm fs.FileMode, write func(io.Writer) error) (err error) {
	f, err := createSibling(on, path)
	if err != nil {
		return err
	}
	defer func() {
		if f != nil { // not renamed: an error or a panic of write
			err = errors.Join(err, f.Close(), on.Remove(f.Name()))
		}
	}()
	if perm != 0 {
		if err := f.Chmod(perm); err != nil {
			return err
		}
	}
	if err := fill(f, write); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := on.Rename(f.Name(), path); err != nil {
		return err
	}
	err = f.Close()
	f = nil
	return errors.Join(err, SyncDir(on, filepath.Dir(path)))
}

// createSibling creates a new hidden file beside path. It is not os.CreateTemp because that ignores the umask
// and makes files that only their owner can read.
func createSibling(on FS, path string) (File, error) {
	dir, base := filepath.Split(path)
	for i := 0; ; i++ {
		name := filepath.Join(dir, fmt.Sprintf(".%s.tmp-%d-%d", base, os.Getpid(), i))
		f, err := on.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

func writeDirectly(on FS, path string, write func(io.Writer) error) error {
	f, err := on.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(fill(f, write), f.Close())
}

func fill(f File, write func(io.Writer) error) error {
	w := bufio.NewWriter(f)
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}

// SyncDir makes what was renamed, made or removed in a directory durable. File systems that cannot sync a directory say EINVAL.
func SyncDir(on FS, dir string) error {
	d, err := on.OpenFile(dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
