package folder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// Files are written, read, listed and removed by their names in a folder that is made when it is needed.
func TestFilesOfAFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b")
	d := At(path).Sub("c")
	if _, err := d.ReadFile("f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	must(t, d.Make())
	must(t, d.Write("f", text("one")))
	f, err := d.Append("f")
	must(t, err)
	_, err = io.WriteString(f, " two")
	must(t, errors.Join(err, f.Close()))
	if got, err := d.ReadFile("f"); err != nil || string(got) != "one two" || d.Path("f") != filepath.Join(path, "c", "f") {
		t.Errorf("%q, %v", got, err)
	}
	if all, err := d.List(); err != nil || len(all) != 1 || !d.Has("f") || d.HasDir("f") || !At(path).HasDir("c") {
		t.Errorf("%v, %v", all, err)
	}
	must(t, errors.Join(d.Remove("f"), d.Remove("f"), At(path).Remove("c")))
	if err := At(path).Sub("c").New(); err != nil {
		t.Error(err)
	}
	if err := At(path).Sub("c").New(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made again: %v", err)
	}
}

// Room that is reserved is taken on the disk, hidden, and given back.
func TestRoom(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	room, err := At(path).Reserve("f", 1<<20)
	must(t, err)
	entries, err := os.ReadDir(path)
	must(t, err)
	info, err := entries[0].Info()
	must(t, err)
	if len(entries) != 1 || info.Size() != 1<<20 || info.Sys().(*syscall.Stat_t).Blocks*512 < 1<<20 {
		t.Errorf("%v of %d bytes", entries, info.Size())
	}
	must(t, errors.Join(At(path).Tidy(), room.Free(), room.Free()))
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Whatever has the name of a file, or of the folder it is in, and is none, is refused, changes nothing and waits for nobody.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	for kind, put := range map[string]func(foreign, path string) error{
		"is a symbolic link": func(foreign, path string) error { return os.Symlink(filepath.Join(foreign, "file"), path) },
		"links are not followed": func(foreign, path string) error {
			return os.Symlink(filepath.Join(foreign, "none"), path)
		},
		"symbolic link": func(foreign, path string) error { return os.Symlink("../inside", path) }, // in the same folder
		"is a pipe":     func(_, path string) error { return syscall.Mkfifo(path, 0o600) },
		"another name":  func(foreign, path string) error { return os.Link(filepath.Join(foreign, "file"), path) },
	} {
		foreign, path := t.TempDir(), t.TempDir()
		must(t, os.WriteFile(filepath.Join(foreign, "file"), []byte("theirs"), 0o600))
		must(t, errors.Join(os.Mkdir(filepath.Join(path, "sub"), 0o700), os.WriteFile(filepath.Join(path, "inside"), []byte("ours"), 0o600)))
		must(t, put(foreign, filepath.Join(path, "sub", "f")))
		d := At(path).Sub("sub")
		open := func() error { _, err := d.Append("f"); return err }
		read := func() error { _, err := d.ReadFile("f"); return err }
		write := func() error { return d.Write("f", text("new")) }
		below := func() error { return At(path).Sub("sub").Sub("f").Write("g", text("new")) }
		for i, do := range []func() error{open, read, write, below} {
			linked := kind == "another name" // which may be read, and replaced
			if err := do(); linked && i > 0 && i < 3 {
				must(t, err)
			} else if i < 3 && (!errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), kind) || !strings.Contains(err.Error(), d.Path("f"))) || err == nil {
				t.Errorf("%s, %d: %v", kind, i, err)
			}
		}
		must(t, d.Remove("f"))
		theirs, err := os.ReadFile(filepath.Join(foreign, "file"))
		all, failure := os.ReadDir(foreign)
		ours, lost := os.ReadFile(filepath.Join(path, "inside"))
		if must(t, errors.Join(err, failure, lost)); string(theirs) != "theirs" || string(ours) != "ours" || len(all) != 1 {
			t.Errorf("%s: %q, %q, %v", kind, theirs, ours, all)
		}
	}
}

// A folder that is put in place of an open one is not written into.
func TestFoldersInPlaceOfOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	f := take(t, path)
	must(t, f.Write("kept", text("ours")))
	must(t, errors.Join(os.Rename(path, path+"b"), os.Mkdir(path, 0o700)))
	must(t, f.Write("late", text("ours")))
	if err := f.Check(); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if err := f.Close(); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if all, err := os.ReadDir(path); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// Processes of one run share a folder, which keeps others out until the one that has locked it gives it back.
func TestOneRunSharesAFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	first, err := Open(path, "run")
	must(t, err)
	second, err := Open(path, "run")
	must(t, err)
	for _, run := range []string{"", "another"} {
		if _, err := Open(path, run); !errors.As(err, new(*BusyError)) {
			t.Errorf("%q: %v", run, err)
		}
	}
	must(t, second.Close())
	if err := first.Check(); err != nil {
		t.Error(err)
	}
	must(t, first.Close())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder stays: %v", err)
	}
}

// Links of Hugging Face's cache stand for files of the same cached model, to be read; all others are refused by name.
func TestCachedModels(t *testing.T) {
	t.Parallel()
	model := filepath.Join(t.TempDir(), "models--org--name")
	snapshot := filepath.Join(model, "snapshots", "0123abcd")
	for _, dir := range []string{snapshot, filepath.Join(model, "blobs"), filepath.Join(model, "other", "0123abcd")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{filepath.Join(model, "blobs", "aa"): "blob", filepath.Join(model, "secret"): "secret"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(dir, name, target string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	link(snapshot, "config.json", "../../blobs/aa")
	at := At(snapshot)
	if text, err := at.ReadFile("config.json"); err != nil || string(text) != "blob" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := at.Stat("config.json"); err != nil || !info.Mode().IsRegular() {
		t.Error(info, err)
	}
	if _, err := at.Append("config.json"); !errors.Is(err, ErrForeign) {
		t.Errorf("to be written: %v", err)
	}
	link(filepath.Join(model, "blobs"), "bb", "../secret")
	for name, target := range map[string]string{
		"a": "../../secret", "b": "../../blobs/../secret", "c": filepath.Join(model, "blobs", "aa"), "d": "../../blobs/bb", "e": "../../blobs", "f": "../../blobs/..", "g": "a",
		"h": "../../blobs/none",
	} {
		link(snapshot, name, target)
		if text, err := at.ReadFile(name); err == nil || name != "h" && (!errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "link")) {
			t.Errorf("%s, a link to %s: %q, %v", name, target, text, err)
		}
	}
	other := filepath.Join(model, "other", "0123abcd") // is no snapshot
	link(other, "config.json", "../../blobs/aa")
	if _, err := At(other).ReadFile("config.json"); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
}
