package main

import (
	"fmt"
	"os"
)

// Permission bits of a file: those of its group and of everybody, and those of everybody alone.
const (
	notMine  = 0o077
	everyone = 0o007
)

// private refuses a file with a secret that others can read or write. Where the file belongs to another user, as secrets that
// Kubernetes mounts do, this process may read it as a member of its group.
func private(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return usage(fmt.Errorf("%s: %w", flag, err))
	}
	mine, known := owned(info)
	if !known {
		return nil
	}
	forbidden := os.FileMode(everyone)
	if mine {
		forbidden = notMine
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return usage(fmt.Errorf("%s %s: other users can read or change it (mode %#o): make a new secret, and let only its owner read the file, as with: chmod 600 %s", flag, path, mode, path))
	}
	return nil
}
