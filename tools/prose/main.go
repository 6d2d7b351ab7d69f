// Command prose counts sentences that break the rule for sentences, of at most 30 words, in error messages, help texts and comments of
// exported names. The counts of counts.json may only fall: more breaches fail, fewer ask for -update. A folder as argument lists its own.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const countsFile = "tools/prose/counts.json"

func main() {
	update := flag.Bool("update", false, "write lower counts to "+countsFile)
	flag.Parse()
	found, err := read(".")
	if err == nil && flag.NArg() > 0 {
		for _, b := range found {
			if b.folder == flag.Arg(0) {
				fmt.Println(b)
			}
		}
		return
	}
	if err == nil {
		err = judge(os.Stdout, found, *update)
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

// judge compares the breaches with the known counts. Errors: a count has grown; one has fallen and update is false.
func judge(w io.Writer, found []breach, update bool) error {
	var known map[string]int
	text, err := os.ReadFile(countsFile)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	first := update && errors.Is(err, fs.ErrNotExist)
	if err != nil && !first {
		return err
	}
	now := map[string]int{}
	for _, b := range found {
		now[b.key()]++
	}
	grown, fallen := compare(known, now)
	switch {
	case len(grown) > 0 && !first:
		for _, b := range found {
			if slices.Contains(grown, b.key()) {
				fmt.Fprintln(w, b)
			}
		}
		return fmt.Errorf("more sentences than before break the rule: write the new ones among these anew (%s)", strings.Join(grown, ", "))
	case update:
		text, _ := json.MarshalIndent(now, "", " ")                // of strings and numbers
		return os.WriteFile(countsFile, append(text, '\n'), 0o644) //nolint:gosec // a file of the repository
	case len(fallen) > 0:
		return fmt.Errorf("fewer sentences than before break the rule: lower the counts with go run ./tools/prose -update (%s)", strings.Join(fallen, ", "))
	}
	return nil
}

// compare returns the keys whose counts are higher than known, and the keys whose counts are lower.
func compare(known, now map[string]int) (grown, fallen []string) {
	for key, n := range now {
		if n > known[key] {
			grown = append(grown, key)
		}
	}
	for key, n := range known {
		if now[key] < n {
			fallen = append(fallen, key)
		}
	}
	slices.Sort(grown)
	slices.Sort(fallen)
	return grown, fallen
}
