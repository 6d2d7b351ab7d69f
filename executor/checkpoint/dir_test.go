package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/folder"
)

// saved saves checkpoints of little(step).
func saved(t testing.TB, d *Dir, steps ...int64) {
	t.Helper()
	for _, step := range steps {
		must(t, d.Save(little(uint64(step)), someMeta(step)))
	}
}

// wantLatest checks that the newest good checkpoint is that of step, whole, and how many newer files are bad.
func wantLatest(t testing.TB, d *Dir, step int64, bad int) {
	t.Helper()
	c, newer, err := d.Latest()
	if err != nil {
		t.Fatal(err)
	}
	into := little(0)
	must(t, c.Restore(into))
	must(t, c.Close())
	if name := differs(little(uint64(step)), into, training); c.Step != step || len(newer) != bad || name != "" {
		t.Errorf("the newest good checkpoint is of step %d (%s), want %d; bad are %v, want %d", c.Step, name, step, newer, bad)
	}
}

// wantFiles checks what a folder holds.
func wantFiles(t testing.TB, d *Dir, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(d.at.Path(""))
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if slices.Sort(names); !slices.Equal(got, names) {
		t.Errorf("the folder holds %q, want %q", got, names)
	}
}

// TestKeepsLast: the newest N stay, by number and not by name, and files of others are left alone.
func TestKeepsLast(t *testing.T) {
	t.Parallel()
	for keep, want := range map[int][]string{
		0: {"step-100.safetensors"}, 1: {"step-100.safetensors"}, 3: {"step-9.safetensors", "step-10.safetensors", "step-100.safetensors"},
		9: {"step-0.safetensors", "step-8.safetensors", "step-9.safetensors", "step-10.safetensors", "step-100.safetensors"},
	} {
		d := NewDir(filepath.Join(t.TempDir(), "a", "b"), keep)
		saved(t, d, 0)
		others := []string{"step-1.safetensors.bak", "step-01.safetensors", "best.safetensors", "step-.safetensors", "xstep-1.safetensors"}
		for _, name := range others {
			must(t, os.WriteFile(filepath.Join(d.at.Path(""), name), nil, 0o666))
		}
		saved(t, d, 8, 9, 10, 100)
		wantFiles(t, d, append(others, want...)...)
		wantLatest(t, d, 100, 0)
	}
}

// TestSaveAgain: a step that is saved again replaces its file, and a later one of an abandoned run is not removed.
func TestSaveAgain(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 1)
	saved(t, d, 5)
	must(t, d.Save(little(9), someMeta(5)))
	c, err := Open(d.Path(5))
	must(t, err)
	into := little(0)
	must(t, c.Restore(into))
	must(t, c.Close())
	if name := differs(little(9), into, training); name != "" {
		t.Errorf("%s is of the file before", name)
	}
	saved(t, d, 3)
	wantFiles(t, d, "step-3.safetensors", "step-5.safetensors")
}

// TestLatestPassesOverBad: damaged files are reported, newest first, and the newest good one is opened.
func TestLatestPassesOverBad(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 9)
	if _, _, err := d.Latest(); !errors.Is(err, ErrNone) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, _, err := NewDir(filepath.Join(d.at.Path(""), "none"), 1).Latest(); !errors.Is(err, ErrNone) {
		t.Errorf("no folder: %v", err)
	}
	saved(t, d, 1, 2, 3, 4)
	good, err := os.ReadFile(d.Path(4))
	must(t, err)
	must(t, os.WriteFile(d.Path(4), good[:len(good)/2], 0o666))
	must(t, os.WriteFile(d.Path(5), nil, 0o666))
	must(t, os.WriteFile(d.Path(6), good, 0o666)) // under another's name
	good[len(good)-40]++
	must(t, os.WriteFile(d.Path(7), good, 0o666))
	must(t, os.Mkdir(d.Path(8), 0o777))
	c, bad, err := d.Latest()
	must(t, err)
	must(t, c.Close())
	wants := []string{"step-8.safetensors: it is a folder, not a file", "step-7.safetensors: the checkpoint is damaged", `step-6.safetensors: not a checkpoint: metadata field "step" is 4`, "step-5.safetensors: not a valid safetensors file: it has 0 bytes", "step-4.safetensors: not a valid safetensors file: it is truncated"}
	for i, want := range wants {
		if len(bad) != len(wants) || !strings.Contains(bad[i].Error(), want) {
			t.Fatalf("bad are %q, want %q", bad, wants)
		}
	}
	wantLatest(t, d, 3, 5)
	saved(t, d, 4)
	wantLatest(t, d, 4, 4)
	for _, step := range []int64{1, 2, 3, 4} {
		must(t, os.Truncate(d.Path(step), 9))
	}
	if _, bad, err := d.Latest(); !errors.Is(err, ErrNone) || len(bad) != 8 {
		t.Errorf("nothing good: %v, %v", bad, err)
	}
}

// faulty is a file system that fails: each operation whose field is set, with that error; writes after room bytes.
type faulty struct {
	atomicfile.FS
	open, write, sync, rename, remove, syncDir error
	room                                       int
}

func (f *faulty) over(on atomicfile.FS) atomicfile.FS {
	f.FS = on
	return f
}

func (f *faulty) OpenFile(name string, flag int, perm fs.FileMode) (atomicfile.File, error) {
	if f.open != nil && flag&os.O_CREATE != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.open}
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	return &faultyFile{file, f, flag == os.O_RDONLY}, err
}

func (f *faulty) Rename(from, to string) error {
	if f.rename != nil {
		return f.rename
	}
	return f.FS.Rename(from, to)
}

func (f *faulty) Remove(name string) error {
	if f.remove != nil {
		return f.remove
	}
	return f.FS.Remove(name)
}

type faultyFile struct {
	atomicfile.File
	on        *faulty
	directory bool
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if f.on.write == nil {
		return f.File.Write(b)
	}
	n, err := f.File.Write(b[:min(len(b), f.on.room)])
	if f.on.room -= n; err == nil && n < len(b) {
		err = f.on.write
	}
	return n, err
}

func (f *faultyFile) Sync() error {
	switch {
	case f.directory && f.on.syncDir != nil:
		return f.on.syncDir
	case !f.directory && f.on.sync != nil:
		return f.on.sync
	}
	return f.File.Sync()
}

// TestFailuresKeepTheLast: whatever fails while a checkpoint is saved, the previous checkpoint stays, and no half-written one does. The
// error names the failure and the checkpoint to resume from, and the next try succeeds.
func TestFailuresKeepTheLast(t *testing.T) {
	t.Parallel()
	bytes := len(encode(t, little(2), someMeta(2)))
	type failure struct {
		what   string
		f      faulty
		want   error
		unsure bool // whether the new file is there, but perhaps not on the disk
	}
	failures := []failure{
		{"a read-only folder", faulty{open: syscall.EROFS}, syscall.EROFS, false},
		{"no right to write", faulty{open: syscall.EACCES}, syscall.EACCES, false},
		{"a failed sync", faulty{sync: syscall.EIO}, syscall.EIO, false},
		{"a failed rename", faulty{rename: syscall.EIO}, syscall.EIO, false},
		{"a failed sync of the folder", faulty{syncDir: syscall.EIO}, syscall.EIO, true},
	}
	for room := 0; room < bytes; room += 97 {
		failures = append(failures, failure{fmt.Sprintf("a disk full after %d bytes", room), faulty{write: syscall.ENOSPC, room: room}, syscall.ENOSPC, false})
	}
	for _, c := range failures {
		for _, again := range []bool{false, true} { // whether the step's file is there already
			d := NewDir(t.TempDir(), 1)
			saved(t, d, 1)
			step := int64(2)
			if again {
				step = 1
			}
			d.at = d.at.On(c.f.over)
			err := d.Save(little(uint64(step)), someMeta(step))
			var e *SaveError
			if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Last != d.Path(1) || !strings.Contains(err.Error(), "is not saved: ") {
				t.Fatalf("%s: %v", c.what, err)
			}
			if c.unsure && !again { // a crash now could undo the rename
				must(t, os.Remove(d.Path(2)))
			}
			wantFiles(t, d, "step-1.safetensors")
			wantLatest(t, d, 1, 0)
			d.at = folder.At(d.at.Path(""))
			saved(t, d, 2)
			wantFiles(t, d, "step-2.safetensors")
		}
	}
	if len(failures) < 20 {
		t.Errorf("%d failures were tried", len(failures))
	}
}

// TestNothingToGoOnFrom: a first checkpoint that fails says that there is none, and one beside a damaged file too.
func TestNothingToGoOnFrom(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 3)
	d.at = d.at.On((&faulty{write: syscall.ENOSPC}).over)
	for range 2 {
		err := d.Save(little(2), someMeta(2))
		if e := (*SaveError)(nil); !errors.As(err, &e) || e.Last != "" || !strings.HasSuffix(err.Error(), "no space left on device; there is no earlier good one") {
			t.Errorf("%v", err)
		}
		must(t, os.WriteFile(d.Path(1), []byte("damaged"), 0o666))
	}
	d.at = folder.At(filepath.Join(d.at.Path(""), "new")).On((&faulty{syncDir: syscall.EIO}).over)
	if err := d.Save(little(2), someMeta(2)); !errors.Is(err, syscall.EIO) {
		t.Errorf("a new folder that is not synced: %v", err)
	}
	d.at = folder.At(filepath.Join(t.TempDir(), "file"))
	must(t, os.WriteFile(d.at.Path(""), nil, 0o666))
	if err := d.Save(little(2), someMeta(2)); !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file as folder: %v", err)
	}
}

// TestModelFails: a tensor that cannot be read from the device is named, and nothing is saved.
func TestModelFails(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 1)
	saved(t, d, 1)
	m := little(2)
	m.values["state0 of fc.weight"] = nil
	err := d.Save(m, someMeta(2))
	if err == nil || !strings.Contains(err.Error(), `step-2.safetensors is not saved: tensor "optimizer.state0.fc.weight": state0 of fc.weight has another size; the last good one is `+d.Path(1)) {
		t.Errorf("%v", err)
	}
	wantFiles(t, d, "step-1.safetensors")
}

// TestRemovalFails: a checkpoint is saved all the same, and the error says that it is.
func TestRemovalFails(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 1)
	saved(t, d, 1)
	d.at = d.at.On((&faulty{remove: syscall.EPERM}).over)
	err := d.Save(little(2), someMeta(2))
	if e := (*SaveError)(nil); !errors.Is(err, ErrNotRemoved) || !errors.Is(err, syscall.EPERM) || errors.As(err, &e) {
		t.Errorf("%v", err)
	}
	wantLatest(t, d, 2, 0)
	d.at = folder.At(d.at.Path(""))
	saved(t, d, 3)
	wantFiles(t, d, "step-3.safetensors")
}

// TestLeftovers: what a killed process left unfinished goes before more disk is taken, and counts for nothing.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 1)
	saved(t, d, 1)
	left := filepath.Join(d.at.Path(""), ".step-2.safetensors.tmp-77-0")
	must(t, os.WriteFile(left, make([]byte, 99), 0o666))
	wantLatest(t, d, 1, 0)
	d.at = d.at.On((&faulty{remove: syscall.EPERM}).over)
	if err := d.Save(little(2), someMeta(2)); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a leftover that stays: %v", err)
	}
	d.at = folder.At(d.at.Path(""))
	saved(t, d, 2)
	wantFiles(t, d, "step-2.safetensors")
}

// TestAFolderThatIsAnothersGetsNothing: from when the folder may not be written any more, every save fails and leaves it as it is.
func TestAFolderThatIsAnothersGetsNothing(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	var now error
	path := t.TempDir()
	d := NewDir(path, 1).While(func() error { return now })
	saved(t, d, 1)
	now = gone
	var unsaved *SaveError
	if err := d.Save(little(2), someMeta(2)); !errors.Is(err, gone) || !errors.As(err, &unsaved) || unsaved.Last != d.Path(1) {
		t.Errorf("error %v", err)
	}
	if _, err := d.Shards(someMeta(3), 1).Save(0, little(3)); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
	if steps, err := d.Steps(); err != nil || len(steps) != 1 {
		t.Errorf("checkpoints %v, %v", steps, err)
	}
	now = nil
	if err := d.Clear(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		t.Errorf("the cleared folder holds %v, %v", entries, err)
	}
	if (*Dir)(nil).Check() != nil {
		t.Error("no folder is gone")
	}
}

// TestNoDescriptors: a process that may open no more files says so, and not that there is no good checkpoint.
func TestNoDescriptors(t *testing.T) {
	// Serial: it sets limits of the process.
	d := NewDir(t.TempDir(), 3)
	saved(t, d, 1)
	for name, save := range map[string]func() error{
		"whole":  func() error { return d.Save(little(2), someMeta(2)) },
		"shards": func() error { _, err := d.Shards(someMeta(2), 1).Save(0, little(2)); return err },
	} {
		var err error
		withoutDescriptors(t, func() { err = save() })
		var e *SaveError
		if !errors.As(err, &e) || !errors.Is(err, syscall.EMFILE) || e.Unknown == nil || strings.Contains(err.Error(), "there is no earlier") {
			t.Errorf("%s: %v", name, err)
		}
		wantLatest(t, d, 1, 0)
	}
}

// withoutDescriptors runs something while the process has no file descriptor left.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	next, err := os.Open(os.DevNull)
	must(t, err)
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	none := was
	none.Cur = uint64(next.Fd())
	must(t, next.Close())
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) }()
	do()
}

// vanishing is a disk that is full, on which a file goes away when another is begun.
type vanishing struct {
	atomicfile.FS
	path string
}

func (v vanishing) OpenFile(name string, flag int, perm fs.FileMode) (atomicfile.File, error) {
	if flag&os.O_CREATE == 0 {
		return v.FS.OpenFile(name, flag, perm)
	}
	return nil, errors.Join(syscall.ENOSPC, os.Remove(v.path))
}

// An earlier checkpoint that goes away while one is saved, and is not, is none to go on from.
func TestAnEarlierCheckpointGoesWhileASaveFails(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 3)
	saved(t, d, 1)
	d.at = d.at.On(func(on atomicfile.FS) atomicfile.FS {
		return vanishing{on, filepath.Join(d.at.Path(""), "step-1.safetensors")}
	})
	var e *SaveError
	if err := d.Save(little(2), someMeta(2)); !errors.As(err, &e) || !errors.Is(err, syscall.ENOSPC) || e.Last != "" || e.Unknown != nil {
		t.Errorf("%v", err)
	}
}
