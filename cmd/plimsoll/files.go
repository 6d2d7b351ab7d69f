package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// writable refuses a file whose folder is missing, before any work is done for it.
func writable(flag, path string) error {
	if path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return usage(fmt.Errorf("%s %s: there is no folder %s", flag, path, dir))
	case !info.IsDir():
		return usage(fmt.Errorf("%s %s: %s is not a folder", flag, path, dir))
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usage(fmt.Errorf("%s %s: it is a folder", flag, path))
	}
	return nil
}

// makeable refuses an --out folder that cannot be made, because a file is in the way or nothing can be written there, before
// any work is done for it.
func makeable(path string) error {
	for dir := path; dir != ""; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return usage(fmt.Errorf("--out %s: %s is a file", path, dir))
		case err == nil:
			return takesEntries(path, dir)
		case dir == filepath.Dir(dir):
			return nil
		}
	}
	return nil
}

// takesEntries tries whether a folder takes a new entry; what it tried with is gone again.
func takesEntries(path, dir string) error {
	probe, err := os.MkdirTemp(dir, ".plimsoll-")
	if err != nil {
		return usage(fmt.Errorf("--out %s: %w", path, err))
	}
	return os.Remove(probe)
}

// folder makes the folder for results.
func folder(flag, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return usage(fmt.Errorf("%s %s: %w", flag, path, err))
	}
	return nil
}

// required refuses an empty flag.
func required(flag, value, example string) error {
	if value == "" {
		return usage(fmt.Errorf("%s is missing: give it, as in %s", flag, example))
	}
	return nil
}
