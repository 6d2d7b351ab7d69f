package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// files calls use with each file below a folder whose name ends with suffix. Test data, outputs and hidden folders are left out.
func files(root, suffix string, use func(path string, text []byte) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "out" || strings.HasPrefix(name, ".") && name != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return use(filepath.ToSlash(path), text)
	})
}
