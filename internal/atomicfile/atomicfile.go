// Package atomicfile writes files that are either complete or not there.
//
// It writes wherever an FS leads: anywhere, for files that users name (OS), or below one folder (package folder).
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"plimsoll/internal/fields"
	"plimsoll/internal/lockfile"
)

// FS is the file system that a file is written to. Tests make its operations fail.
type FS interface {
	// OpenFile is os.OpenFile; a directory is opened to be synced.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Mkdir(name string) error
	Rename(from, to string) error
	Remove(name string) error
	Lstat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	// Resolve returns the name of the file that a write replaces, and its description: nil when there is none yet.
	Resolve(name string) (string, fs.FileInfo, error)
}

// File is an open file of an FS; *os.File is one.
type File interface {
	io.WriteCloser
	io.ReaderAt
	lockfile.File
	Chmod(fs.FileMode) error
	Truncate(size int64) error
	Sync() error
}

// OS is the operating system's file system.
type OS struct{}

// OpenFile implements FS.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	return os.OpenFile(name, flag, perm)
}

// Mkdir implements FS.
func (OS) Mkdir(name string) error { return os.Mkdir(name, 0o777) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// Lstat implements FS.
func (OS) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(name) }

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Resolve implements FS: it follows symbolic links.
func (OS) Resolve(name string) (string, fs.FileInfo, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil, nil
	}
	if err == nil {
		name, err = filepath.EvalSymlinks(name)
	}
	return name, info, err
}

// WriteFile replaces the file at path by what write produces. The bytes go to a temporary file in the same
// directory, which is synced and renamed over path. A reader, or a crash, sees either the old file or the new
// one. On any error path is untouched and the temporary file removed.
//
// An existing file keeps its permissions, a symbolic link keeps pointing to the file that is replaced. A path
// that is no regular file (a pipe, a terminal, /dev/stdout) is written directly.
func WriteFile(path string, write func(io.Writer) error) error { return Write(OS{}, path, write) }

// WriteJSON is WriteFile of a value as JSON, indented for people.
func WriteJSON(path string, value any) error { return WriteFile(path, fields.Indented(value)) }

// Write is WriteFile on a file system.
func Write(on FS, path string, write func(io.Writer) error) error {
	return WriteAll(on, Output{path, write})
}

// Output is a file to be written and what produces it.
type Output struct {
	Path  string
	Write func(io.Writer) error
}

// WriteAll is Write for files that belong together: none is replaced before all of them are durable under temporary names.
func WriteAll(on FS, all ...Output) (err error) {
	var ready []*replacement
	defer func() {
		for _, r := range ready {
			err = errors.Join(err, r.drop())
		}
	}()
	for _, o := range all {
		r := &replacement{on: on}
		ready = append(ready, r)
		if err := r.prepare(o); err != nil {
			return err
		}
	}
	for _, r := range ready {
		if err := r.commit(); err != nil {
			return err
		}
	}
	return nil
}

// replacement is a file under its temporary name.
type replacement struct {
	on         FS
	path, temp string
	f          File // nil when there is none, or none any more
}

// prepare writes the file; a path that is no regular file is written directly, and then there is nothing to commit.
func (r *replacement) prepare(o Output) error {
	info, err := r.create(o.Path)
	switch {
	case err != nil:
		return err
	case r.f == nil:
		return writeDirectly(r.on, o.Path, o.Write)
	}
	return r.fill(info, o.Write)
}

// create creates a sibling of the file that a write to path replaces; none where that is no regular file.
func (r *replacement) create(path string) (info fs.FileInfo, err error) {
	r.path, info, err = r.on.Resolve(path)
	switch {
	case err != nil:
		return nil, err
	case info != nil && info.IsDir():
		return nil, fmt.Errorf("write %s: is a directory", path)
	case info != nil && !info.Mode().IsRegular():
		return info, nil
	}
	r.temp, r.f, err = createSibling(r.on, r.path)
	return info, err
}

// fill writes the sibling and makes it durable. It gets the permissions of the file that it replaces; those of a new file are left to
// the umask.
func (r *replacement) fill(info fs.FileInfo, write func(io.Writer) error) error {
	if info != nil {
		if err := r.f.Chmod(info.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := fill(r.f, write); err != nil {
		return err
	}
	return r.f.Sync()
}

// commit gives the file its name.
func (r *replacement) commit() error {
	if r.f == nil {
		return nil
	}
	if err := r.on.Rename(r.temp, r.path); err != nil {
		return err
	}
	err := r.f.Close()
	r.f = nil
	return errors.Join(err, SyncDir(r.on, filepath.Dir(r.path)))
}

// drop removes what was not renamed, after an error or a panic.
func (r *replacement) drop() error {
	if r.f == nil {
		return nil
	}
	err := errors.Join(r.f.Close(), r.on.Remove(r.temp))
	r.f = nil
	return err
}

// Room is space on a disk that a temporary file keeps free for a later one.
type Room struct{ r replacement }

// Reserve keeps so many bytes free beside path, in a temporary file (see Tidy). Errors: those of writing so many bytes.
func Reserve(on FS, path string, size int64) (*Room, error) {
	room := &Room{replacement{on: on}}
	if _, err := room.r.create(path); err != nil || room.r.f == nil {
		return nil, err
	}
	if err := allocate(room.r.f, size); err != nil {
		return nil, errors.Join(err, room.r.drop())
	}
	return room, nil
}

// Free gives the space back; once more, or of nil, it does nothing.
func (m *Room) Free() error {
	if m == nil {
		return nil
	}
	return m.r.drop()
}

// allocate takes space for a file: at once where the file system can, else it writes zeros.
func allocate(f File, size int64) error {
	if on, able := f.(interface{ Allocate(size int64) error }); able && on.Allocate(size) == nil {
		return nil
	}
	_, err := io.Copy(f, io.LimitReader(zeros{}, size))
	return err
}

// zeros is an endless reader.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// createSibling creates a new hidden file beside path, locked until it is closed: see Tidy. It is not os.CreateTemp because that
// ignores the umask and makes files that only their owner can read.
func createSibling(on FS, path string) (name string, f File, err error) {
	dir, base := filepath.Split(path)
	for i := range 1000 {
		name = filepath.Join(dir, fmt.Sprintf(".%s.tmp-%d-%d", base, os.Getpid(), i))
		f, err = on.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if err = lockfile.Try(f); !errors.Is(err, lockfile.ErrHeld) && lockfile.Names(on, name, f) {
			return name, f, nil
		}
		_ = f.Close() // a Tidy that came between takes it for one that was left, and removes it
	}
	return "", nil, fmt.Errorf("write %s: no name for a temporary file is free: %w", path, err)
}

// unfinishedName matches the names that createSibling gives.
var unfinishedName = regexp.MustCompile(`^\..+\.tmp-[0-9]+-[0-9]+$`)

// Tidy removes what processes that ended while they wrote files have left in a folder: the temporary files that nobody has
// locked. Where the file system has no locks it removes nothing.
func Tidy(on FS, dir string) error {
	entries, err := on.ReadDir(dir)
	for _, e := range entries {
		if unfinishedName.MatchString(e.Name()) && e.Type().IsRegular() {
			err = errors.Join(err, removeLeft(on, filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// removeLeft removes a temporary file unless its writer lives.
func removeLeft(on FS, path string) error {
	f, err := on.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) { // renamed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	if lockfile.Try(f) == nil && lockfile.Names(on, path, f) {
		err = on.Remove(path)
	}
	return errors.Join(err, f.Close())
}

// MkdirAll makes a folder and those above it, each of them durable. made says whether the folder itself is new.
func MkdirAll(on FS, path string) (made bool, err error) {
	above := filepath.Dir(path)
	err = mkdir(on, path)
	if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) && above != path {
		if _, err = MkdirAll(on, above); err == nil {
			err = mkdir(on, path)
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, SyncDir(on, above)
}

// mkdir makes a folder; where there is one it returns fs.ErrExist.
func mkdir(on FS, path string) error {
	err := on.Mkdir(path)
	if err == nil {
		return nil
	}
	_, info, there := on.Resolve(path)
	switch {
	case there != nil && errors.Is(err, fs.ErrExist):
		return there
	case there != nil || info == nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is a file", path)
	}
	return fs.ErrExist
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
