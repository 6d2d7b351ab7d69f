package folder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"plimsoll/internal/atomicfile"
)

// ErrForeign says that a name in a folder is taken by something that this program has not written. That is a link, a pipe, a
// device, or a file with a second name in another folder.
var ErrForeign = errors.New("remove it, or give another folder")

// disk is the file system below a folder. Names are paths relative to it.
//
// Invariants:
//   - No link is followed out of the folder, even if it is put there meanwhile (os.Root). To be read, a link in a snapshot of Hugging Face's
//     cache stands for a file of the same cached model: see cached.
//   - Only regular files and folders are opened, so that no opening waits for another process, as that of a pipe does.
//   - A file with a second name is not opened to be written.
type disk struct {
	path string
	root *os.Root // nil: opened anew for each operation
}

// in calls do with the root of the folder. Errors name paths, as those of package os.
func (d disk) in(do func(*os.Root) error) (err error) {
	root := d.root
	if root == nil {
		if root, err = os.OpenRoot(d.path); err != nil {
			return err
		}
		defer func() { _ = root.Close() }() // files stay open
	}
	return d.named(do(root))
}

// named makes the names in an error paths.
func (d disk) named(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) && !filepath.IsAbs(e.Path) {
		return &fs.PathError{Op: strings.TrimSuffix(e.Op, "at"), Path: filepath.Join(d.path, e.Path), Err: e.Err}
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) && !filepath.IsAbs(e.Old) {
		return &os.LinkError{Op: strings.TrimSuffix(e.Op, "at"), Old: filepath.Join(d.path, e.Old), New: filepath.Join(d.path, e.New), Err: e.Err}
	}
	return err
}

// OpenFile implements atomicfile.FS.
func (d disk) OpenFile(name string, flag int, perm fs.FileMode) (f atomicfile.File, err error) {
	if at, blob, is := d.cached(name); is && flag == os.O_RDONLY {
		return at.OpenFile(blob, flag, perm)
	}
	err = d.in(func(root *os.Root) error {
		before, err := look(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
			flag |= os.O_EXCL
		case err != nil:
			return err
		case flag&os.O_EXCL != 0:
			return &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
		case flag&(os.O_WRONLY|os.O_RDWR) != 0 && !before.IsDir() && names(before) > 1:
			return foreign(name, "is a file that another name stands for, too")
		}
		open, err := root.OpenFile(name, flag|syscall.O_NONBLOCK, perm)
		if err != nil {
			return err
		}
		if f = (file{open}); before == nil {
			return nil
		}
		if after, err := open.Stat(); err != nil || !os.SameFile(before, after) {
			return errors.Join(err, open.Close(), &fs.PathError{Op: "open", Path: name, Err: errReplaced})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Names of Hugging Face's cache: models--ORG--NAME/snapshots/REVISION has links to files in models--ORG--NAME/blobs.
const (
	cachePrefix = "models--"
	snapshots   = "snapshots"
	blobs       = "blobs"
)

// cached returns the file that a link in a snapshot of Hugging Face's cache stands for, and the folder of the cached model. It is false for all
// other names: for files, for links that leave the folder of the model, and in other folders.
func (d disk) cached(name string) (at disk, blob string, is bool) {
	if name != filepath.Base(name) {
		return disk{}, "", false
	}
	var target string
	if err := d.in(func(root *os.Root) (err error) { target, err = root.Readlink(name); return err }); err != nil {
		return disk{}, "", false
	}
	blob, is = strings.CutPrefix(filepath.ToSlash(target), "../../"+blobs+"/")
	if !is || blob != filepath.Base(blob) || strings.ContainsAny(blob, `/\`) || blob == ".." || blob == "." {
		return disk{}, "", false
	}
	path, err := filepath.EvalSymlinks(d.path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	model := filepath.Dir(filepath.Dir(path))
	if err != nil || filepath.Base(filepath.Dir(path)) != snapshots || !strings.HasPrefix(filepath.Base(model), cachePrefix) {
		return disk{}, "", false
	}
	return disk{path: model}, filepath.Join(blobs, blob), true
}

// look describes a regular file or a folder, and refuses anything else, also among the folders above it. Errors: ErrForeign, those of
// the operating system.
func look(root *os.Root, name string) (info fs.FileInfo, err error) {
	parts := strings.Split(filepath.Clean(name), string(filepath.Separator))
	for i := range parts {
		part := filepath.Join(parts[:i+1]...)
		info, err = root.Lstat(part)
		switch {
		case err != nil:
			return nil, err
		case info.Mode().IsRegular() && i < len(parts)-1:
			return nil, &fs.PathError{Op: "open", Path: part, Err: syscall.ENOTDIR}
		case !info.Mode().IsRegular() && !info.IsDir():
			return nil, foreign(part, kind(info.Mode()))
		}
	}
	return info, nil
}

// errReplaced says that a name stood for another file when it was opened than just before.
var errReplaced = fmt.Errorf("it was replaced while it was opened: %w", ErrForeign)

// foreign returns an ErrForeign that describes a name.
func foreign(name, what string) error {
	return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("it %s: %w", what, ErrForeign)}
}

// kind describes the type of a name that stands for neither a regular file nor a folder.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "is a symbolic link, and links are not followed"
	case mode&fs.ModeNamedPipe != 0:
		return "is a pipe, not a file"
	}
	return "is not a file"
}

// Mkdir implements atomicfile.FS.
func (d disk) Mkdir(name string) error {
	return d.in(func(root *os.Root) error {
		if _, err := look(root, filepath.Dir(name)); err != nil {
			return err
		}
		return root.Mkdir(name, 0o777)
	})
}

// Rename implements atomicfile.FS.
func (d disk) Rename(from, to string) error {
	return d.in(func(root *os.Root) error {
		if _, err := look(root, filepath.Dir(to)); err != nil {
			return err
		}
		return root.Rename(from, to)
	})
}

// Remove implements atomicfile.FS.
func (d disk) Remove(name string) error {
	return d.in(func(root *os.Root) error {
		if _, err := look(root, filepath.Dir(name)); err != nil {
			return err
		}
		return root.Remove(name)
	})
}

// Lstat implements atomicfile.FS. Errors: ErrForeign of what is no regular file and no folder, those of the operating system.
func (d disk) Lstat(name string) (info fs.FileInfo, err error) {
	if at, blob, is := d.cached(name); is {
		return at.Lstat(blob)
	}
	err = d.in(func(root *os.Root) (err error) { info, err = look(root, name); return err })
	return info, err
}

// ReadDir implements atomicfile.FS.
func (d disk) ReadDir(name string) (all []fs.DirEntry, err error) {
	err = d.in(func(root *os.Root) error {
		if _, err := look(root, name); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		all, err = f.ReadDir(-1)
		return errors.Join(err, f.Close())
	})
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return all, err
}

// Resolve implements atomicfile.FS.
func (d disk) Resolve(name string) (string, fs.FileInfo, error) {
	info, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return name, info, err
}
