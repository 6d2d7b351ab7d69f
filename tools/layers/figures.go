package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// figures are numbers that should be small. Subjects are a package ("planner/pofo": circle, back) or a type of one
// ("planner/pofo.table": methods, fields). Others are all functions ("functions": p50, p90, max, in lines), and a folder with all below
// it ("planner/...": lines).
type figures map[string]map[string]int

// most has the figures that types may have without a line in the baseline.
var most = map[string]int{"methods": 40, "fields": 20}

func (all figures) set(subject, name string, value int) {
	if all[subject] == nil {
		all[subject] = map[string]int{}
	}
	all[subject][name] = value
}

// allowed returns the value that a figure may have: that of the baseline, else that of most, else 0.
func (all figures) allowed(subject, name string) int {
	if value, ok := all[subject][name]; ok {
		return value
	}
	return most[name]
}

// figuresOf returns the figures of packages, and the lines of Go of each folder. Figures that are always allowed are
// left out.
func figuresOf(folders []*folder, lines map[string]int) figures {
	all := figures{}
	var functions []int
	for _, f := range folders {
		if circles := f.circles(); len(circles) > 0 {
			all.set(f.path, "circle", len(circles[0]))
			all.set(f.path, "back", len(f.back()))
		}
		for name, counts := range map[string]map[string]int{"methods": f.methods, "fields": f.fields} {
			for of, n := range counts {
				if n > most[name] {
					all.set(f.path+"."+of, name, n)
				}
			}
		}
		for _, one := range f.functions {
			functions = append(functions, one.lines)
		}
	}
	slices.Sort(functions)
	for name, share := range map[string]int{"p50": 50, "p90": 90, "max": 100} {
		if n := len(functions); n > 0 {
			all.set("functions", name, functions[(n*share+99)/100-1])
		}
	}
	for path, n := range lines {
		all.set(path, "lines", n)
	}
	return all
}

// worse is a figure above the baseline.
type worse struct {
	subject, name string
	was, is       int
}

// compare returns the figures that are above a baseline, by subject and name, and whether any is below it.
func compare(baseline, now figures) (worst []worse, better bool) {
	for _, subject := range slices.Sorted(maps.Keys(now)) {
		for _, name := range slices.Sorted(maps.Keys(now[subject])) {
			if was, is := baseline.allowed(subject, name), now[subject][name]; is > was {
				worst = append(worst, worse{subject, name, was, is})
			}
		}
	}
	for subject, known := range baseline {
		for name, was := range known {
			is := max(now[subject][name], most[name])
			if name == "lines" {
				is = ceiling(is)
			}
			better = better || is < was
		}
	}
	return worst, better
}

const linesStep = 500

// ceiling returns the lines of Go that the baseline gives a folder: a multiple of linesStep, so that small changes need no new one.
func ceiling(lines int) int { return (lines + linesStep - 1) / linesStep * linesStep }

// ceilings returns figures as the baseline has them.
func (all figures) ceilings() figures {
	rounded := figures{}
	for subject, known := range all {
		for name, value := range known {
			if name == "lines" {
				value = ceiling(value)
			}
			rounded.set(subject, name, value)
		}
	}
	return rounded
}

const baselineFile = "tools/layers/baseline.txt"

const heading = "# Figures that may fall and not grow, as go run ./tools/layers -update writes them; docs/CONTRIBUTING.md says what they mean.\n"

// write returns the text of a baseline: a line a subject, with names and values in turn.
func (all figures) write() []byte {
	text := []byte(heading)
	for _, subject := range slices.Sorted(maps.Keys(all)) {
		text = fmt.Appendf(text, "%-32s", subject)
		for _, name := range slices.Sorted(maps.Keys(all[subject])) {
			text = fmt.Appendf(text, "  %s %d", name, all[subject][name])
		}
		text = append(text, '\n')
	}
	return text
}

// read returns the baseline in a file.
func read(file string) (figures, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := figures{}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; scanner.Scan(); number++ {
		words := strings.Fields(scanner.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		for i := 1; i < len(words); i += 2 {
			value, err := 0, strconv.ErrSyntax
			if i+1 < len(words) {
				value, err = strconv.Atoi(words[i+1])
			}
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %s of %s has no number", file, number, words[i], words[0])
			}
			all.set(words[0], words[i], value)
		}
	}
	return all, scanner.Err()
}

// linesOf returns the lines of Go below each folder of a module's root ("planner/...") and of all ("./..."): of any platform, without
// tests, testdata and modules of their own.
func linesOf(root string) (map[string]int, error) {
	lines := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(root, path) // path begins with root
		if name := d.Name(); d.IsDir() && below != "." {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if name == "testdata" || name == "out" || strings.HasPrefix(name, ".") || err == nil {
				return fs.SkipDir
			}
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		n := bytes.Count(text, []byte("\n"))
		lines["./..."] += n
		if top, _, ok := strings.Cut(filepath.ToSlash(below), "/"); ok {
			lines[top+"/..."] += n
		}
		return err
	})
	return lines, err
}
