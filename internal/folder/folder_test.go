package folder

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func take(t *testing.T, path string) *Folder {
	t.Helper()
	f, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if f.Unlocked {
		t.Skip("the file system has no locks")
	}
	return f
}

func give(t *testing.T, f *Folder) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A folder is made when it is taken and is refused to others until it is given back; what was made in vain is gone again.
func TestOneHasTheFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs", "a")
	f := take(t, path)
	_, err := Open(path, "")
	var busy *BusyError
	if !errors.As(err, &busy) || busy.By.PID != os.Getpid() || !busy.By.Here() || busy.By.User == "" {
		t.Fatalf("a second one: %v", err)
	}
	if f.Left != nil {
		t.Errorf("a new folder was left by %v", f.Left)
	}
	give(t, f)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder stays: %v", err)
	}
	f = take(t, path)
	if err := os.WriteFile(f.Path("result"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	give(t, f)
	if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	give(t, take(t, path))
	if _, err := os.Stat(filepath.Join(path, "result")); err != nil {
		t.Error(err)
	}
	give(t, nil)
}

// A lock that a killed process left is told, whatever is in it, and its temporary files are removed.
func TestLeftLocksAreTakenOver(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	killed := Holder{User: "ann", Host: "elsewhere", PID: 12}
	text, err := json.Marshal(killed)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		text string
		left bool
	}{{string(text), true}, {string(text[:9]), false}, {"", false}, {"\x00\x00", false}, {strings.Repeat(string(text), 9), true}} {
		for name, text := range map[string]string{lockName: of.text, ".log.jsonl.tmp-12-0": "half"} {
			if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := take(t, path)
		if left := f.Left != nil; left != of.left || left && (*f.Left != killed || f.Left.Here()) {
			t.Errorf("%q: left by %v", of.text, f.Left)
		}
		var now Holder
		if text, err := os.ReadFile(f.Path(lockName)); err != nil || json.Unmarshal(text, &now) != nil || now.PID != os.Getpid() {
			t.Errorf("the lock holds %q, %v", text, err)
		}
		give(t, f)
		if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
			t.Errorf("the folder holds %v, %v", entries, err)
		}
	}
}

// Who waits gets the folder when it is given back, one after the other, and gives up when told to.
func TestWaiting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	f := take(t, path)
	ctx, stop := context.WithCancel(t.Context())
	if _, err := Wait(ctx, path, "", func(Holder) { stop() }); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
	var all sync.WaitGroup
	var waiting, inside atomic.Int32
	const n = 4
	for range n {
		all.Go(func() {
			f, err := Wait(t.Context(), path, "", func(h Holder) { waiting.Add(1) })
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) > 1 {
				t.Error("two are in the folder")
			}
			inside.Add(-1)
			give(t, f)
		})
	}
	for waiting.Load() == 0 {
	}
	give(t, f)
	all.Wait()
}

// Whoever opens a folder while another one, who made it, gives it back and removes it gets it, or is told that it is in use.
func TestOpeningWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				f, err := Open(path, "")
				if errors.As(err, new(*BusyError)) {
					continue
				}
				if err == nil {
					err = f.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// A folder that is removed, replaced or robbed of its lock while it is open is noticed, and what replaces it is left alone.
func TestFoldersThatGo(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path string) error{
		"removed": os.RemoveAll,
		"robbed":  func(path string) error { return os.Remove(filepath.Join(path, lockName)) },
		"replaced": func(path string) error {
			return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, lockName), nil, 0o600))
		},
	} {
		path := filepath.Join(t.TempDir(), "a")
		f := take(t, path)
		if err := f.Check(); err != nil {
			t.Error(err)
		}
		if err := harm(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadDir(path) // some are gone
		if err := f.Check(); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Close(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: closed: %v", name, err)
		}
		if after, _ := os.ReadDir(path); len(after) != len(before) {
			t.Errorf("%s: %v became %v", name, before, after)
		}
	}
}

// A path that is no folder, or takes no file, is refused.
func TestBadFolders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "a"), "", "/proc/none"} {
		if f, err := Open(path, ""); err == nil || f != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}
