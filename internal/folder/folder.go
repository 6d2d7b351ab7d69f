// Package folder opens folders for results such that one process at a time writes into each. It does not know what the
// results are.
package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/lockfile"
)

// lockName is the file in a folder that whoever writes there has locked. It is removed at the end; one that is left is of a
// process that was killed.
const lockName = ".plimsoll.lock"

// Folder is a folder that this process alone writes into, as long as all others ask here, too. A nil *Folder is none: it can
// be closed.
//
// Invariant: until Close the lock is held, unless Unlocked.
type Folder struct {
	path string
	lock *os.File
	made bool // by Open

	// Left is who had the folder before and ended without closing it; nil when nobody did.
	Left *Holder
	// Unlocked says that the file system has no locks: nothing keeps others out.
	Unlocked bool
}

// Holder is who has a folder, as they wrote into its lock file.
type Holder struct {
	User  string    `json:"user"`
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

func (h Holder) String() string {
	if h == (Holder{}) {
		return "a process that has not said who it is"
	}
	return fmt.Sprintf("process %d of %s on %s, since %s", h.PID, h.User, h.Host, h.Since.Format(time.RFC3339))
}

// Here reports whether the holder is a process of this machine.
func (h Holder) Here() bool { return h.Host == hostname() }

// BusyError says that another process writes into a folder.
type BusyError struct {
	Path string
	By   Holder
}

func (e *BusyError) Error() string { return fmt.Sprintf("%s is used by %v", e.Path, e.By) }

// ErrGone says that a folder was removed or replaced while it was open.
var ErrGone = errors.New("the folder was removed or replaced meanwhile")

// Open makes the folder, and those above it, durably, and takes it; temporary files of processes that were killed are removed.
// Errors: *BusyError, those of the operating system.
func Open(path string) (*Folder, error) {
	for {
		f, err := open(path)
		if f != nil || err != nil {
			return f, err
		}
	}
}

// open is Open, or nothing when the lock was removed by who had it just before.
func open(path string) (f *Folder, err error) {
	f = &Folder{path: path}
	if f.made, err = atomicfile.MkdirAll(atomicfile.OS{}, path); err != nil {
		return nil, err
	}
	f.lock, err = os.OpenFile(f.Path(lockName), os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := f.take(); err != nil {
		return nil, errors.Join(err, f.lock.Close())
	}
	if !lockfile.Names(f.lock.Name(), f.lock) {
		return nil, f.lock.Close()
	}
	_ = atomicfile.Tidy(atomicfile.OS{}, path) // what cannot be removed is in nobody's way
	return f, nil
}

// take locks the folder, reads who had it and writes who has it.
func (f *Folder) take() error {
	var was Holder
	_ = json.NewDecoder(f.lock).Decode(&was) // new, or of a process that was killed while it wrote
	switch err := lockfile.Try(f.lock); {
	case errors.Is(err, lockfile.ErrHeld):
		return &BusyError{Path: f.path, By: was}
	case errors.Is(err, lockfile.ErrUnsupported):
		f.Unlocked = true
	case err != nil:
		return err
	case was != Holder{}:
		f.Left = &was
	}
	line, err := json.Marshal(Holder{User: username(), Host: hostname(), PID: os.Getpid(), Since: time.Now().Round(time.Second)})
	if err == nil {
		err = f.lock.Truncate(0)
	}
	if err == nil {
		_, err = f.lock.WriteAt(append(line, '\n'), 0)
	}
	return err
}

// Wait is Open, but waits until nobody else has the folder. held is called once, if it has to wait.
func Wait(ctx context.Context, path string, held func(Holder)) (*Folder, error) {
	for first := true; ; first = false {
		f, err := Open(path)
		var busy *BusyError
		if !errors.As(err, &busy) {
			return f, err
		}
		if first {
			held(busy.By)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Path returns the path of something in the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.path, name) }

// Check reports with ErrGone that the folder, or its lock, is not there any more.
func (f *Folder) Check() error {
	if f == nil || lockfile.Names(f.lock.Name(), f.lock) {
		return nil
	}
	return fmt.Errorf("%s: %w", f.path, ErrGone)
}

// Close gives the folder back. One that Open made and that nothing was written into is removed. Errors: as of Check.
func (f *Folder) Close() error {
	if f == nil {
		return nil
	}
	err := f.Check()
	if err == nil {
		err = os.Remove(f.lock.Name())
	}
	if err == nil && f.made {
		_ = os.Remove(f.path) // which only an empty folder lets happen
	}
	return errors.Join(err, f.lock.Close())
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "an unknown host"
	}
	return name
}

func username() string {
	u, err := user.Current()
	if err != nil {
		return fmt.Sprint("user ", os.Getuid())
	}
	return u.Username
}
