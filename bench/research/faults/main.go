// Faults plants faults in a copy of the CUDA backend, one at a time, and runs the tests that must find each:
// `make test-cuda-faults`.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"

	"plimsoll/internal/atomicfile"
)

func main() {
	out := flag.String("out", "", "the file for the table; without it the table is only printed")
	only := flag.String("run", "", "a regular expression: plant the faults alone whose description it matches; the file keeps its other rows")
	flag.Parse()
	if err := run(*out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(out, only string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.root) }() // of temporary files
	earlier, err := readTable(out)
	if err != nil {
		return err
	}
	var table strings.Builder
	planted, survived, listed := 0, 0, 0
	for i, f := range faults {
		row, known := earlier[f.what]
		if pattern.MatchString(f.what) {
			found, err := b.judge(f)
			if err != nil {
				return fmt.Errorf("fault %d, %s: %w", i+1, f.what, err)
			}
			planted++
			if found == "" {
				survived++
				found = notFound
			}
			row, known = fmt.Sprintf("`%s` | %s |", f.edits[0].file, found), true
			fmt.Printf("| %d | %s | %s\n", i+1, f.what, row)
		}
		if known {
			listed++
			fmt.Fprintf(&table, "| %d | %s | %s\n", i+1, f.what, row)
		}
	}
	if out != "" {
		if err := atomicfile.WriteFile(out, func(w io.Writer) error {
			missed := strings.Count(table.String(), notFound)
			_, err := fmt.Fprintf(w, head+"%s", listed, listed-missed, len(faults)-listed, planted, listed-planted, tableHead+table.String())
			return err
		}); err != nil {
			return err
		}
	}
	if survived > 0 {
		return fmt.Errorf("%d of %d faults were not found", survived, planted)
	}
	fmt.Printf("all %d faults were found\n", planted)
	return nil
}

const head = `# Faults planted in the CUDA backend

Question: do tests on the emulated driver find a small change of the sources?

    make test-cuda-faults

Answer: of %d faults, each planted alone, %d are found. The changes are in bench/research/faults/faults.go, which lists %d more that no run has
planted yet. The last run planted %d; %d rows are of earlier runs (-run plants some alone).

`

const (
	tableHead = "| # | fault | planted in | found by |\n|--:|---|---|---|\n"
	notFound  = "**not found**"
)

// readTable returns the rows of an earlier table, from the third column on, by their faults. Without a file there are none.
func readTable(path string) (map[string]string, error) {
	rows := map[string]string{}
	text, err := os.ReadFile(path)
	if path == "" || errors.Is(err, os.ErrNotExist) {
		return rows, nil
	}
	for line := range strings.Lines(string(text)) {
		if columns := strings.SplitN(strings.TrimSpace(line), " | ", 3); len(columns) == 3 && strings.HasPrefix(line, "| ") {
			rows[columns[1]] = columns[2]
		}
	}
	return rows, err
}

// bench is a copy of the sources in which faults are planted, with a driver of it as it is for each build.
type bench struct {
	ctx    context.Context
	root   string
	passed map[string]bool // tests that were seen passing without a fault
}

func newBench(ctx context.Context) (*bench, error) {
	root, err := os.MkdirTemp("", "faults")
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, root: root, passed: map[string]bool{}}
	if err := b.command(".", "sh", "-c", `cd "$(git rev-parse --show-toplevel)" && git ls-files -z -co --exclude-standard | xargs -0 cp -p --parents -t "$0"`, b.tree()).Run(); err != nil {
		return nil, fmt.Errorf("copy the sources, which git lists: %w", err)
	}
	return b, nil
}

func (b *bench) tree() string { return filepath.Join(b.root, "tree") }

// command prepares a program in a folder, with what cgo needs.
func (b *bench) command(folder, name string, args ...string) *exec.Cmd {
	_ = os.MkdirAll(b.tree(), 0o755) // what is missing is said by the command
	c := exec.CommandContext(b.ctx, name, args...)
	c.Dir = folder
	cuda := filepath.Join(b.tree(), "runtime", "cuda")
	c.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations -I"+cuda+"/include", "CGO_LDFLAGS=-O2 -g -L"+cuda+"/lib",
		"PLIMSOLL_EMULATOR_OBJECTS="+filepath.Join(b.root, "objects"))
	return c
}

// judge plants a fault and returns the tests that fail because of it, "" when none does.
func (b *bench) judge(f fault) (string, error) {
	if key := fmt.Sprint(f.suite, f.tests); !b.passed[key] {
		if failed, err := b.test(f, b.driver(f.strict, false)); err != nil || failed != "" {
			return "", errors.Join(fmt.Errorf("without it %s fails: %s", f.tests, failed), err)
		}
		b.passed[key] = true
	}
	undo, err := b.plant(f.edits)
	if err != nil {
		return "", err
	}
	defer undo()
	return b.test(f, b.driver(f.strict, f.inKernels()))
}

// driver is the folder of an emulated driver; one of a fault is built anew from the objects of the one without.
func (b *bench) driver(strict, faulty bool) string {
	name := "driver"
	if strict {
		name += "-strict"
	}
	clean := filepath.Join(b.root, name)
	if !faulty {
		return clean
	}
	dirty := clean + "-faulty"
	_ = os.RemoveAll(dirty)
	_ = b.command(".", "cp", "-a", clean, dirty).Run() // without it everything is compiled
	return dirty
}

// plant changes files of the copy; undo restores them, with their times, so that what was compiled of them stays good.
func (b *bench) plant(edits []edit) (undo func(), err error) {
	var undos []func()
	undo = func() {
		for _, u := range undos {
			u()
		}
	}
	for _, e := range edits {
		path := filepath.Join(b.tree(), e.file)
		info, err := os.Stat(path)
		if err != nil {
			return undo, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return undo, err
		}
		undos = append([]func(){func() {
			_ = os.WriteFile(path, text, 0o644)
			_ = os.Chtimes(path, info.ModTime(), info.ModTime())
		}}, undos...)
		if n := strings.Count(string(text), e.old); n != 1 {
			undo()
			return nil, fmt.Errorf("%s has %d times, not once: %q", e.file, n, e.old)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o644); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)|^(out of bounds|unordered accesses|race in a block|barrier|instruction|early release|foreign memory|ignored error|leak)|^(panic|fatal error|SIG\w+)`)

// test builds driver and tests, which must work whatever is planted, runs the tests, and returns what failed.
func (b *bench) test(f fault, driver string) (string, error) {
	build := []string{"runtime/cuda/emulator/build.sh", driver, "runtime/cuda/cudatest/src", "kernels/cuda/src"}
	if f.strict {
		build = append(build, "--checked")
	}
	if text, err := b.command(b.tree(), "sh", build...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the driver does not compile: %w\n%s", err, text)
	}
	program := filepath.Join(b.root, "tests")
	if text, err := b.command(b.tree(), "go", "test", "-trimpath", "-tags", "cuda", "-c", "-o", program, "./"+f.folder).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the tests do not compile: %w\n%s", err, text)
	}
	c := b.command(filepath.Join(b.tree(), f.folder), program, "-test.run", f.tests, "-test.timeout", "30m")
	c.Env = append(c.Env, "LD_LIBRARY_PATH="+driver)
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil && !bytes.Contains(text, []byte("no tests to run")):
		return "", nil
	case b.ctx.Err() != nil:
		return "", b.ctx.Err()
	case !errors.As(err, &exit):
		return "", fmt.Errorf("%s: %w\n%s", f.tests, err, text)
	}
	return names(string(text)), nil
}

// names lists what a run says has failed, each once.
func names(text string) string {
	var all []string
	seen := map[string]bool{}
	for _, m := range failure.FindAllStringSubmatch(text, -1) {
		if name := strings.Join(m[1:], ""); !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return "a crash"
	}
	return strings.Join(all, ", ")
}
