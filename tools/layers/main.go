// Command layers prints how the files of each package form layers, where a file uses the files below it.
//
// An arrow goes from one file to another that declares a type, function, method, variable, constant or field which the first one
// names. A circle is a set of files that all reach each other along arrows, and forms no layers. Its files are put in the order in
// which the fewest arrows run back, from a file to one above it (layering.go says how). Both figures are compared with baseline.txt,
// as are the sizes of types, functions and folders. Tests are not measured.
//
//	go run ./tools/layers                    print the figures
//	go run ./tools/layers FOLDER             print the circles of a package, the highest file first, and their arrows
//	go run ./tools/layers -check             fail when a figure is above the baseline
//	go run ./tools/layers -update [-raise]   write the baseline, where a figure grows only with -raise
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	check := flag.Bool("check", false, "fail when a figure is above that of "+baselineFile)
	update := flag.Bool("update", false, "write the figures to "+baselineFile)
	raise := flag.Bool("raise", false, "with -update: also figures that are above the baseline")
	flag.Parse()
	var err error
	switch {
	case *raise && !*update:
		err = errors.New("-raise goes with -update")
	case *check && *update:
		err = errors.New("-check does not go with -update")
	case flag.NArg() > 1 || flag.NArg() > 0 && (*check || *update):
		err = errors.New("the only argument is the folder of a package, without -check and -update")
	default:
		err = run(os.Stdout, ".", flag.Arg(0), *check, *update, *raise)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
}

// run measures the module in a folder and does what the flags say.
func run(w io.Writer, root, path string, check, update, raise bool) error {
	folders, err := load(root)
	if err != nil {
		return err
	}
	if path != "" {
		return explain(w, folders, path)
	}
	lines, err := linesOf(root)
	if err != nil {
		return err
	}
	now := figuresOf(folders, lines)
	if !check && !update {
		return show(w, folders, now)
	}
	file := filepath.Join(root, baselineFile)
	baseline, err := read(file)
	if err != nil && !(raise && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	worst, better := compare(baseline, now)
	switch {
	case len(worst) > 0 && !raise:
		blame(w, root, folders, worst)
		return fmt.Errorf("%d figures are above %s: see go run ./tools/layers FOLDER", len(worst), baselineFile)
	case update:
		return os.WriteFile(file, now.ceilings().write(), 0o644) //nolint:gosec // a file of the repository
	case better:
		fmt.Fprintln(w, "layers: figures are below the baseline: lower it with go run ./tools/layers -update")
	}
	return nil
}

// blame says what is worse, with the files of circles and the arrows in them that came since the baseline was written.
func blame(w io.Writer, root string, folders []*folder, worst []worse) {
	var before []*folder
	told := map[string]bool{}
	for _, x := range worst {
		fmt.Fprintf(w, "%s: %s %d, %d in the baseline\n", x.subject, x.name, x.is, x.was)
		if x.subject == "functions" && x.name == "max" {
			longFunctions(w, folders, x.was)
		}
		f := named(folders, x.subject)
		if f == nil || told[x.subject] {
			continue
		}
		told[x.subject] = true
		if before == nil {
			before, _ = loadCommitted(root) // without a history, all arrows are new
		}
		f.printNew(w, named(before, x.subject))
	}
}

func longFunctions(w io.Writer, folders []*folder, most int) {
	for _, f := range folders {
		for _, one := range f.functions {
			if one.lines > most {
				fmt.Fprintf(w, "  %s/%s has %d lines\n", f.path, one.name, one.lines)
			}
		}
	}
}

// named returns the package in a folder, nil for none.
func named(folders []*folder, path string) *folder {
	for _, f := range folders {
		if f.path == path {
			return f
		}
	}
	return nil
}

// printNew prints the files of each circle, and those arrows between them that an older version of the package does not have.
func (f *folder) printNew(w io.Writer, before *folder) {
	known := map[string]bool{}
	if before != nil {
		for a := range before.arrows {
			known[before.name(a)] = true
		}
	}
	for _, circle := range f.circles() {
		fmt.Fprintln(w, "  circle:", f.names(circle))
		for _, a := range f.inside(circle) {
			if !known[f.name(a)] {
				fmt.Fprintf(w, "  new: %s (%s)\n", f.name(a), f.arrows[a])
			}
		}
	}
}

// name writes an arrow as "a.go -> b.go".
func (f *folder) name(a arrow) string { return f.files[a.from] + " -> " + f.files[a.to] }

func (f *folder) names(files []int) string {
	var words []string
	for _, i := range files {
		words = append(words, f.files[i])
	}
	return strings.Join(words, " ")
}

// explain prints the circles of a package.
func explain(w io.Writer, folders []*folder, path string) error {
	path = filepath.ToSlash(filepath.Clean(path))
	f := named(folders, path)
	if f == nil {
		return fmt.Errorf("no package of the module lies in %s", path)
	}
	for _, circle := range f.circles() {
		order, back := f.layer(circle)
		slices.Reverse(order)
		inside := f.inside(circle)
		fmt.Fprintf(w, "circle of %d files, %d arrows, %d of them back, the highest file first: %s\n", len(circle), len(inside), len(back), f.names(order))
		for _, a := range back {
			fmt.Fprintf(w, "  back: %s (%s)\n", f.name(a), f.arrows[a])
		}
		for _, a := range inside {
			if !slices.Contains(back, a) {
				fmt.Fprintf(w, "  down: %s (%s)\n", f.name(a), f.arrows[a])
			}
		}
	}
	return nil
}

// show prints the packages that have circles, then the gates.
func show(w io.Writer, folders []*folder, now figures) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "files\tarrows\tlargest circle\tarrows back\tpackage\t")
	for _, f := range folders {
		if circle := now[f.path]["circle"]; circle > 0 {
			fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%s\t\n", len(f.files), len(f.arrows), circle, now[f.path]["back"], f.path)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, gate := range []struct {
		title, name string
		above       int
	}{
		{"circles of more than 8 files", "circle", 8},
		{"types with more than 40 methods", "methods", most["methods"]},
		{"structs with more than 20 fields", "fields", most["fields"]},
		{"lines of Go, tests apart", "lines", 0},
	} {
		fmt.Fprintf(w, "\n%s:\n", gate.title)
		for _, subject := range slices.Sorted(maps.Keys(now)) {
			if n := now[subject][gate.name]; n > gate.above {
				fmt.Fprintf(w, "%8d  %s\n", n, subject)
			}
		}
	}
	of := now["functions"]
	_, err := fmt.Fprintf(w, "\nlines of functions, p50/p90/max: %d/%d/%d\n", of["p50"], of["p90"], of["max"])
	return err
}
