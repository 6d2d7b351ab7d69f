package folder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/bounded"
	"plimsoll/internal/fields"
	"plimsoll/internal/lockfile"
)

// Dir reads and writes files of one folder by their names. Files are replaced whole; links and pipes are refused (ErrForeign). The
// folder need not exist until Make.
type Dir struct {
	on   atomicfile.FS // below path
	path string
	sub  string // this folder, by its name below path
}

// Wrap replaces the file system below a path, unless it is nil. Tests let operations fail with it.
var Wrap func(path string, on atomicfile.FS) atomicfile.FS

// At returns the folder at a path. Each operation finds it anew; see Open for a folder that nobody can replace.
func At(path string) *Dir { return below(disk{path: path}) }

// On returns the folder with another file system. Tests let its operations fail.
func (d *Dir) On(wrap func(atomicfile.FS) atomicfile.FS) *Dir {
	other := *d
	other.on = wrap(d.on)
	return &other
}

func below(at disk) *Dir {
	d := &Dir{on: at, path: at.path, sub: "."}
	if Wrap != nil {
		d.on = Wrap(at.path, at)
	}
	return d
}

// Sub returns a folder in this one.
func (d *Dir) Sub(name string) *Dir { return &Dir{d.on, d.path, d.name(name)} }

// Path returns the path of something in the folder, for people.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, d.name(name)) }

// name returns a name below the folder that the file system is of.
func (d *Dir) name(name string) string { return filepath.Join(d.sub, name) }

// Make makes the folder, and those above it, durably.
func (d *Dir) Make() error {
	if _, err := d.on.Lstat("."); errors.Is(err, fs.ErrNotExist) {
		if _, err := atomicfile.MkdirAll(atomicfile.OS{}, d.path); err != nil {
			return err
		}
	}
	_, err := atomicfile.MkdirAll(d.on, d.sub)
	return err
}

// New makes the folder, which is in one that exists, and returns fs.ErrExist where there is one.
func (d *Dir) New() error {
	if err := d.on.Mkdir(d.sub); err != nil {
		return err
	}
	return atomicfile.SyncDir(d.on, filepath.Dir(d.sub))
}

// List lists what is in the folder, by name.
func (d *Dir) List() ([]fs.DirEntry, error) { return d.on.ReadDir(d.sub) }

// Stat describes a file or a folder in the folder. Errors: ErrForeign, those of the operating system.
func (d *Dir) Stat(name string) (fs.FileInfo, error) { return d.on.Lstat(d.name(name)) }

// Has reports whether there is a file or a folder of that name.
func (d *Dir) Has(name string) bool {
	_, err := d.Stat(name)
	return err == nil
}

// HasDir reports whether there is a folder of that name.
func (d *Dir) HasDir(name string) bool {
	info, err := d.Stat(name)
	return err == nil && info.IsDir()
}

// Open opens a file to read.
func (d *Dir) Open(name string) (atomicfile.File, error) {
	f, err := d.on.OpenFile(d.name(name), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, errors.Join(err, f.Close(), foreign(d.Path(name), "is a folder, not a file"))
	}
	return f, nil
}

// ReadFile reads a file of at most bounded.Most bytes.
func (d *Dir) ReadFile(name string) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := bounded.ReadAll(io.NewSectionReader(f, 0, bounded.Most+1), d.Path(name))
	return text, errors.Join(err, f.Close())
}

// Write replaces a file by what write produces, as atomicfile.WriteFile does.
func (d *Dir) Write(name string, write func(io.Writer) error) error {
	return atomicfile.Write(d.on, d.name(name), write)
}

// WriteJSON is Write of a value as JSON, indented for people.
func (d *Dir) WriteJSON(name string, value any) error { return d.Write(name, fields.Indented(value)) }

// Append opens a file to write at its end; it makes one where there is none.
func (d *Dir) Append(name string) (atomicfile.File, error) {
	return d.on.OpenFile(d.name(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
}

// Names reports whether a name still stands for an open file.
func (d *Dir) Names(name string, f atomicfile.File) bool {
	return lockfile.Names(d.on, d.name(name), f)
}

// Remove removes a file, or a folder that is empty. One that is not there is removed.
func (d *Dir) Remove(name string) error {
	err := d.on.Remove(d.name(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Reserve keeps room for a file of so many bytes.
func (d *Dir) Reserve(name string, size int64) (*atomicfile.Room, error) {
	return atomicfile.Reserve(d.on, d.name(name), size)
}

// Tidy removes the temporary files of writers that were killed.
func (d *Dir) Tidy() error { return atomicfile.Tidy(d.on, d.sub) }

// Sync makes new and removed names of the folder durable.
func (d *Dir) Sync() error { return atomicfile.SyncDir(d.on, d.sub) }

// File is a file of a folder. The zero File is none.
type File struct {
	Dir  *Dir
	Name string
}

// Path returns its path, for people.
func (f File) Path() string { return f.Dir.Path(f.Name) }

// IsZero reports whether it is none.
func (f File) IsZero() bool { return f.Dir == nil }
