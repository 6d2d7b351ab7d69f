// Command prose lists sentences that break the rule for sentences, in error messages, help texts, comments and documents, and fails if
// there are any.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	found, err := read(".")
	if err == nil {
		var inDocuments []breach
		inDocuments, err = documents(".")
		found = append(found, inDocuments...)
	}
	for _, b := range found {
		fmt.Println(b)
	}
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%d sentences break the rule (style: a named subject, one idea, at most %d words): write them anew", len(found), mostWords)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

// read returns the breaches of all Go files below a folder, tests apart.
func read(root string) (all []breach, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "out" || strings.HasPrefix(name, ".") && name != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := check(filepath.ToSlash(path), source)
		all = append(all, found...)
		return err
	})
	return all, err
}
