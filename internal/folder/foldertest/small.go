package foldertest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"plimsoll/internal/atomicfile"
)

// Small is a disk of so many bytes: what is under a path may not take more.
type Small struct {
	Path  string
	Bytes int64

	mu sync.Mutex
}

// Over puts a file system on the disk.
func (s *Small) Over(on atomicfile.FS) atomicfile.FS { return &smallSystem{on, s} }

// used returns how many bytes are taken. Files may go while it looks.
func (s *Small) used() (n int64, err error) {
	err = filepath.WalkDir(s.Path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n, err
}

type smallSystem struct {
	atomicfile.FS
	disk *Small
}

// OpenFile implements atomicfile.FS.
func (s *smallSystem) OpenFile(name string, flag int, perm fs.FileMode) (atomicfile.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil || flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return f, err
	}
	return &smallFile{f, s.disk}, nil
}

type smallFile struct {
	atomicfile.File
	disk *Small
}

// Write writes as much as there is room for.
func (f *smallFile) Write(b []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	used, err := f.disk.used()
	if err != nil {
		return 0, err
	}
	if room := max(f.disk.Bytes-used, 0); int64(len(b)) > room {
		n, _ := f.File.Write(b[:room])
		return n, syscall.ENOSPC
	}
	return f.File.Write(b)
}
