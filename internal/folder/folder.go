// Package folder owns folders of results. One run at a time writes into a folder (Folder). Files in it are opened by name, and no link
// or pipe that somebody else put there leads out of it (Dir). The package does not know the results.
package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"time"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/lockfile"
)

// lockName is the file in a folder that whoever writes there has locked. It is removed at the end; one that is left is of a
// process that was killed.
const lockName = ".plimsoll.lock"

// Folder is a folder that this run alone writes into, as long as all others ask here, too. Writes go to the folder that was opened,
// even if another one takes its place. A nil *Folder is none: it can be closed.
//
// Invariant: until Close a process of the run holds the lock, unless Unlocked.
type Folder struct {
	*Dir
	root *os.Root
	lock atomicfile.File // nil: another process of the run has it
	made bool            // by Open

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
	Run   string    `json:"run,omitempty"` // of several processes: the name that all of them give it
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

// Open makes the folder, and those above it, durably, and takes it; temporary files of processes that were killed are removed. A
// folder that another process of the same run has is shared with it; the run "" is of one process. Errors: *BusyError, ErrForeign,
// those of the operating system.
func Open(path, run string) (*Folder, error) {
	for {
		f, err := open(path, run)
		if f != nil || err != nil {
			return f, err
		}
	}
}

// open is Open; it returns nil when the last holder has removed the folder, or its lock, meanwhile.
func open(path, run string) (f *Folder, err error) {
	f = &Folder{}
	if f.made, err = atomicfile.MkdirAll(atomicfile.OS{}, path); err != nil {
		return nil, err
	}
	if f.root, err = os.OpenRoot(path); errors.Is(err, fs.ErrNotExist) { // who made it has removed it meanwhile
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	f.Dir = below(disk{path, f.root})
	taken, err := f.takeLock(run)
	if err != nil || !taken {
		return nil, errors.Join(err, f.abandon())
	}
	_ = f.Tidy() // a file that cannot be removed is in nobody's way
	return f, nil
}

// takeLock opens and takes the lock; it reports whether the lock that was taken is still the folder's.
func (f *Folder) takeLock(run string) (bool, error) {
	lock, err := f.on.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, errReplaced) { // removed, made or both meanwhile
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f.lock = lock
	if err := f.take(run); err != nil {
		return false, err
	}
	return f.lock == nil || f.Names(lockName, f.lock), nil
}

// abandon closes a folder that was not taken.
func (f *Folder) abandon() (err error) {
	if f.lock != nil {
		err = f.lock.Close()
	}
	return errors.Join(err, f.root.Close())
}

// take locks the folder, reads who had it and writes who has it.
func (f *Folder) take(run string) error {
	var was Holder
	_ = json.NewDecoder(io.NewSectionReader(f.lock, 0, maxHolder)).Decode(&was) // new, or of a process that was killed while it wrote
	if run != "" && was.Run == run {
		err := f.lock.Close()
		f.lock = nil
		return err
	}
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
	line, err := json.Marshal(Holder{User: username(), Host: hostname(), PID: os.Getpid(), Since: time.Now().Round(time.Second), Run: run})
	if err == nil {
		err = f.lock.Truncate(0)
	}
	if err == nil {
		_, err = f.lock.Write(append(line, '\n'))
	}
	return err
}

// maxHolder is how many bytes of a lock are read.
const maxHolder = 64 << 10

// Wait is Open, but waits until no other run has the folder. held is called once, if it has to wait.
func Wait(ctx context.Context, path, run string, held func(Holder)) (*Folder, error) {
	for first := true; ; first = false {
		f, err := Open(path, run)
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

// Check reports with ErrGone that the folder, or its lock, is not there any more.
func (f *Folder) Check() error {
	if f == nil || f.there() && (f.lock == nil || f.Names(lockName, f.lock)) {
		return nil
	}
	return fmt.Errorf("%s: %w", f.path, ErrGone)
}

// there reports whether the path still leads to the folder that was opened.
func (f *Folder) there() bool {
	open, err := f.root.Stat(".")
	if err != nil {
		return false
	}
	now, err := os.Stat(f.path)
	return err == nil && os.SameFile(open, now)
}

// Close gives the folder back. One that Open made and that nothing was written into is removed. Errors: as of Check.
func (f *Folder) Close() error {
	if f == nil {
		return nil
	}
	err := f.Check()
	if err == nil && f.lock != nil {
		err = f.on.Remove(lockName)
	}
	if err == nil && f.made {
		_ = os.Remove(f.path) // which only an empty folder lets happen
	}
	return errors.Join(err, f.abandon())
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
