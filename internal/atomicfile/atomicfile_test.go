package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	dir := t.TempDir()
	func() {
		defer func() { _ = recover() }()
		_ = WriteFile(filepath.Join(dir, "a.json"), func(io.Writer) error { panic("in the middle") })
	}()
	want(t, dir, "")
}

func TestBadPaths(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	_, f, err := createSibling(OS{}, path)
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
	t.Parallel()
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
	t.Parallel()
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

// TestTidyLeavesTheLiving: temporary files that nobody writes any more are removed, others and those that are being written stay.
func TestTidyLeavesTheLiving(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	left := []string{".a.json.tmp-123-0", ".step-7.safetensors.tmp-99999999-12"}
	strangers := []string{".a.json.tmp-x", ".tmp-1-1", "a.json.tmp-1-1", "b"}
	for _, name := range slices.Concat(left, strangers) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := WriteFile(filepath.Join(dir, "a.json"), func(w io.Writer) error {
		if err := Tidy(OS{}, dir); err != nil {
			t.Error(err)
		}
		_, err := io.WriteString(w, "new")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, dir, "", append(slices.Clone(strangers[:2]), "a.json", strangers[2], strangers[3])...)
	if data, err := os.ReadFile(filepath.Join(dir, "a.json")); err != nil || string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
	if err := Tidy(OS{}, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestTidyAndWritersMeet: whatever Tidy removes of files that are just made, every write succeeds.
func TestTidyAndWritersMeet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stop := make(chan struct{})
	var tidy sync.WaitGroup
	tidy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := Tidy(OS{}, dir); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 50 {
		if err := WriteFile(filepath.Join(dir, "a.json"), write(strconv.Itoa(i))); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	tidy.Wait()
	want(t, dir, "49", "a.json")
}

// syncs counts which folders are synced.
type syncs struct {
	OS
	opened []string
}

func (s *syncs) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	s.opened = append(s.opened, name)
	return s.OS.OpenFile(name, flag, perm)
}

// TestMkdirAllIsDurable: every folder that got an entry is synced, the highest first, and none that was there already.
func TestMkdirAllIsDurable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "c")
	s := &syncs{}
	if made, err := MkdirAll(s, path); err != nil || !made {
		t.Errorf("%v, %v", made, err)
	}
	if want := []string{dir, filepath.Join(dir, "a"), filepath.Join(dir, "a", "b")}; !slices.Equal(s.opened, want) {
		t.Errorf("synced %q, want %q", s.opened, want)
	}
	s.opened = nil
	if made, err := MkdirAll(s, path); err != nil || made || len(s.opened) > 0 {
		t.Errorf("once more: %v, %v, synced %q", made, err, s.opened)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "x", "y")} {
		if made, err := MkdirAll(s, path); err == nil || made {
			t.Errorf("%s: %v, %v", path, made, err)
		}
	}
}

// TestFilesThatBelongTogether: of several files all are replaced or none.
func TestFilesThatBelongTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := errors.New("broken")
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(a, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := WriteAll(OS{}, Output{a, write("new")}, Output{b, write("new")}, Output{filepath.Join(dir, "c"), func(io.Writer) error { return broken }})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	want(t, dir, "old", "a")
	if err := WriteAll(OS{}, Output{a, write("new")}, Output{b, write("newer")}); err != nil {
		t.Error(err)
	}
	want(t, dir, "new", "a", "b")
}
