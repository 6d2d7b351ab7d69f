package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/internal/folder"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// asProgram tells the test program to be plimsoll itself, for tests that kill it.
const asProgram = "PLIMSOLL_TEST_PROGRAM"

// TestMain keeps the measurements of the tests out of the user's cache.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if rank, text, given := strings.Cut(os.Getenv(asFaults), " "); given && rank == os.Getenv("RANK") {
			failAs(text)
		}
		if does, rank := strings.Fields(os.Getenv(asChild)), os.Getenv("RANK"); len(does) > 0 && rank != "" {
			child(does[rank[0]-'0'])
		}
		main()
	}
	flag.Parse()
	folder.Wrap = withFaults
	cache, err := os.MkdirTemp("", "plimsoll-cache-")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("XDG_CACHE_HOME", cache); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(cache)
	os.Exit(code)
}

// result holds the exit code and the outputs of one command line.
type result struct {
	code     int
	out, err string
}

func plimsoll(t *testing.T, args ...string) result {
	t.Helper()
	return plimsollIn(context.Background(), t, "", args...)
}

func plimsollIn(ctx context.Context, t *testing.T, stdin string, args ...string) result {
	t.Helper()
	if testing.Short() && len(args) > 0 && slices.Contains(args[1:], "residency") && slices.Contains([]string{"plan", "train"}, args[0]) {
		args = slices.Insert(slices.Clone(args), 1, "--option", "residency.trials=300") // its plans run, they need not be fast
	}
	var out, errs bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// works runs a command line that must succeed.
func works(t *testing.T, args ...string) result {
	t.Helper()
	r := plimsoll(t, args...)
	if r.code != exitOK {
		t.Fatalf("plimsoll %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r
}

// object runs a command line with --json and decodes what it prints.
func object(t *testing.T, args ...string) map[string]any {
	t.Helper()
	r := works(t, append(args, "--json")...)
	d := json.NewDecoder(strings.NewReader(r.out))
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		t.Fatalf("plimsoll %s --json: %v\n%s", strings.Join(args, " "), err, r.out)
	}
	if d.More() {
		t.Fatalf("plimsoll %s --json prints more than one object", strings.Join(args, " "))
	}
	return o
}

// tree lists the files under a folder.
func tree(t *testing.T, folder string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, folder+string(filepath.Separator)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		write(t, path, got)
	}
	if want := read(t, path); got != want {
		t.Errorf("%s (go test -update rewrites it):\n--- got\n%s--- want\n%s", path, got, want)
	}
}
