package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

// want checks that a folder holds exactly the named files, and that the first has the given text.
func want(t *testing.T, dir, text string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the folder holds %q, want %q", got, names)
	}
	if len(names) == 0 {
		return
	}
	if data, err := os.ReadFile(filepath.Join(dir, names[0])); err != nil || string(data) != text {
		t.Errorf("%s holds %q, %v; want %q", names[0], data, err, text)
	}
}

func TestWriteFileReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, text := range []string{"first", strings.Repeat("second and longer ", 10000), ""} {
		if err := WriteFile(path, write(text)); err != nil {
			t.Fatal(err)
		}
		want(t, dir, text, "a.json")
	}
}

// TestErrorLeavesNothing: neither the temporary file nor half of the new one stays, and the old file is untouched.
func TestErrorLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	half := func(w io.Writer) error {
		if _, err := io.WriteString(w, strings.Repeat("half", 100000)); err != nil {
			return err
		}
		return broken
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	if err := WriteFile(path, half); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	want(t, dir, "")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, half); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	want(t, dir, "old", "a.json")
}

func TestPanicLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	func() {
		defer func() { _ = recover() }()
		_ = WriteFile(filepath.Join(dir, "a.json"), func(io.Writer) error { panic("in the middle") })
	}()
	want(t, dir, "")
}

func TestBadPaths(t *testing.T) {
	dir := t.TempDir()
	if err := WriteFile(dir, write("x")); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if err := WriteFile(filepath.Join(dir, "none", "a.json"), write("x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a missing directory: %v", err)
	}
	want(t, dir, "")
}

// TestLeftoverDoesNotMatter: a temporary file of a killed process is in nobody's way.
func TestLeftoverDoesNotMatter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	f, err := createSibling(OS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, write("new")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestPermissionsAndLinksStay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.json", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "link"), write("new")); err != nil {
		t.Fatal(err)
	}
	want(t, dir, "new", "a.json", "link")
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "link")); err != nil || target != "a.json" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}

// TestPipesAreWrittenDirectly: a path that is no regular file stays what it is.
func TestPipesAreWrittenDirectly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	got := make(chan string)
	go func() {
		data, err := os.ReadFile(path)
		if err != nil {
			data = []byte(err.Error())
		}
		got <- string(data)
	}()
	if err := WriteFile(path, write("through")); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "through" {
		t.Errorf("the reader got %q", text)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("%v, %v", info, err)
	}
}
