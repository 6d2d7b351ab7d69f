package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"plimsoll/internal/atomicfile"
)

// merge joins the results of several calls, each in a folder, into one folder. If a part ran in several of them, its latest result
// counts; all logs are kept.
func merge(into string, folders []string, out io.Writer) error {
	if len(folders) == 0 {
		return errors.New("merge needs the folders of results, as in merge smoke correctness")
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	all, err := readResults(into)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		r, err := readResults(folder)
		if err == nil && len(r.Parts) == 0 {
			err = fmt.Errorf("%s: there is no results.json with parts: name the folder that a call of run.sh filled", folder)
		}
		if err != nil {
			return err
		}
		for _, p := range r.Parts {
			all.add(p)
		}
	}
	if err := all.write(into); err != nil {
		return err
	}
	if err := mergeLogs(filepath.Join(into, logName), folders); err != nil {
		return err
	}
	return summarize(into, out)
}

// mergeLogs writes the logs of folders one behind the other.
func mergeLogs(path string, folders []string) error {
	return atomicfile.WriteFile(path, func(w io.Writer) error {
		for _, folder := range folders {
			text, err := os.ReadFile(filepath.Join(folder, logName))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
		}
		return nil
	})
}
