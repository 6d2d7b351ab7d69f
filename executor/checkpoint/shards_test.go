package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/folder"
)

// portion is some of a model's tensors.
type portion struct {
	*memory
	tensors []executor.Tensor
}

func (p portion) Tensors() []executor.Tensor { return p.tensors }

// split deals a model's tensors out to so many shards, all of one name to one of them, as stages have them.
func split(m *memory, of int, seed uint64) []portion {
	r := rand.New(rand.NewPCG(seed, 3))
	parts, home := make([]portion, of), map[string]int{}
	for i := range parts {
		parts[i].memory = m
	}
	for _, t := range m.tensors {
		k, have := home[t.Name]
		if !have {
			k = r.IntN(of)
			home[t.Name] = k
		}
		parts[k].tensors = append(parts[k].tensors, t)
	}
	return parts
}

// sharded saves little(step) in so many shards at the same time, and returns the result.
func sharded(t testing.TB, d *Dir, step int64, of int) (result error) {
	t.Helper()
	s := d.Shards(someMeta(step), of)
	var all sync.WaitGroup
	var mu sync.Mutex
	ended := 0
	for k, part := range split(little(uint64(step)), of, uint64(step)) {
		all.Go(func() {
			last, err := s.Save(k, part)
			mu.Lock()
			defer mu.Unlock()
			if last {
				ended, result = ended+1, err
			} else if err != nil {
				t.Errorf("shard %d: %v before the last", k, err)
			}
		})
	}
	all.Wait()
	if ended != 1 {
		t.Fatalf("%d shards were the last", ended)
	}
	return result
}

// wantTree checks which files are below a folder.
func wantTree(t testing.TB, d *Dir, names ...string) {
	t.Helper()
	var got []string
	must(t, fs.WalkDir(os.DirFS(d.at.Path("")), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != "." && !e.IsDir() {
			got = append(got, path)
		}
		return err
	}))
	if slices.Sort(names); !slices.Equal(got, names) {
		t.Errorf("the folder holds %q, want %q", got, names)
	}
}

// Shards of any number, in any order, are what one file is: all fields, and every tensor bit for bit; and the newest few of
// both forms are kept.
func TestShardsAreOneCheckpoint(t *testing.T) {
	t.Parallel()
	for _, of := range []int{1, 2, 5, 11} { // of 11 some are empty
		d := NewDir(t.TempDir(), 2)
		saved(t, d, 1)
		must(t, sharded(t, d, 2, of))
		wantLatest(t, d, 2, 0)
		c, err := Open(d.Folder(2))
		must(t, err)
		if want := someMeta(2); fmt.Sprintf("%#v", c.Meta) != fmt.Sprintf("%#v", want) || c.Name() != d.Folder(2) {
			t.Errorf("%#v of %s, saved %#v", c.Meta, c.Name(), want)
		}
		must(t, c.Close())
		into := little(9)
		imported(t, d.Folder(2), into)
		if name := differs(little(2), into, inference); name != "" {
			t.Errorf("%s differs", name)
		}
		must(t, sharded(t, d, 10, 2))
		wantTree(t, d, append(shardNames(2, of), shardNames(10, 2)...)...)
		saved(t, d, 11)
		wantTree(t, d, append(shardNames(10, 2), "step-11.safetensors")...)
		wantLatest(t, d, 11, 0)
	}
}

func shardNames(step, of int) (names []string) {
	for k := range of {
		names = append(names, fmt.Sprintf("step-%d/stage-%d.safetensors", step, k))
	}
	return names
}

// Each fault of shards is reported with the file, and nothing is mixed.
func TestBadShards(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(folder string) error{
		"the checkpoint is incomplete: of 3 shards it has not stage-1.safetensors": func(folder string) error { return os.Remove(shardPath(folder, 1)) },
		"the checkpoint is incomplete: it has no shard": func(folder string) error {
			return errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o777))
		},
		"stage-2.safetensors: not a valid safetensors file: it is truncated":                  func(folder string) error { return os.Truncate(shardPath(folder, 2), 700) },
		"stage-2.safetensors: not a valid safetensors file: it has 0 bytes":                   func(folder string) error { return os.Truncate(shardPath(folder, 2), 0) },
		"stage-0.safetensors: the checkpoint is damaged":                                      func(folder string) error { return flip(shardPath(folder, 0)) },
		`stage-1.safetensors: not a checkpoint: metadata field "shard" is "2", want "1"`:      func(folder string) error { return clone(shardPath(folder, 2), shardPath(folder, 1)) },
		`stage-3.safetensors: not a checkpoint: metadata field "shard" is "0", want "3"`:      func(folder string) error { return clone(shardPath(folder, 0), shardPath(folder, 3)) },
		`stage-1.safetensors: not a checkpoint: metadata field "position" is "64", and "128"`: func(folder string) error { return clone(shardPath(older(folder), 1), shardPath(folder, 1)) },
		`step-2: not a checkpoint: metadata field "step" is 1`: func(folder string) error {
			return errors.Join(os.RemoveAll(folder), os.CopyFS(folder, os.DirFS(older(folder))))
		},
		`stage-0.safetensors: not a checkpoint: metadata field "shard" is ""`: func(folder string) error {
			d := NewDir(filepath.Dir(folder), 9)
			return errors.Join(d.Save(little(2), someMeta(2)), os.Rename(d.Path(2), shardPath(folder, 0)))
		},
	} {
		d := NewDir(t.TempDir(), 9)
		for _, step := range []int64{1, 2} {
			must(t, sharded(t, d, step, 3))
		}
		must(t, spoil(d.Folder(2)))
		c, bad, err := d.Latest()
		must(t, err)
		if c.Step != 1 || len(bad) != 1 || !strings.Contains(bad[0].Error(), want) || !strings.Contains(bad[0].Error(), d.Folder(2)) {
			t.Errorf("step %d, %v; want %q", c.Step, bad, want)
		}
		must(t, c.Close())
		must(t, sharded(t, d, 2, 2)) // what is there of an earlier attempt goes
		wantLatest(t, d, 2, 0)
	}
	d := NewDir(t.TempDir(), 1)
	must(t, sharded(t, d, 1, 2))
	path := shardPath(d.Folder(1), 0)
	if _, err := Open(path); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "it is shard 0 of 2: give its folder, "+d.Folder(1)) {
		t.Errorf("a shard alone: %v", err)
	}
}

func older(folder string) string { return filepath.Join(filepath.Dir(folder), "step-1") }

func clone(from, to string) error {
	text, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, text, 0o666))
}

func flip(path string) error {
	text, err := os.ReadFile(path)
	text[len(text)-40] ^= 4
	return errors.Join(err, os.WriteFile(path, text, 0o666))
}

// A tensor that two shards have, or none, is named with its file, and nothing is loaded.
func TestEveryTensorIsInOneShard(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(parts []portion){
		`1 missing: bn.weight: remove `: func(parts []portion) {
			for i := range parts {
				parts[i].tensors = slices.DeleteFunc(parts[i].tensors, func(t executor.Tensor) bool { return t.Name == "bn.weight" && t.Role == "weight" })
			}
		},
		`tensor "bn.weight": it means "bn.weight", as "bn.weight" of `: func(parts []portion) {
			for i := range parts {
				if !slices.ContainsFunc(parts[i].tensors, func(t executor.Tensor) bool { return t.Name == "bn.weight" }) {
					parts[i].tensors = append(parts[i].tensors, little(1).tensors[1])
				}
			}
		},
	} {
		d := NewDir(t.TempDir(), 1)
		parts := split(little(1), 2, 1)
		change(parts)
		s := d.Shards(someMeta(1), 2)
		for k, p := range parts {
			if last, err := s.Save(k, p); err != nil || last != (k == 1) {
				t.Errorf("shard %d: %v, %v", k, last, err)
			}
		}
		c, _, err := d.Latest()
		must(t, err)
		into := little(7)
		err = c.Restore(into)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "remove "+d.Folder(1)+" to go on from an earlier checkpoint") {
			t.Errorf("%v; want %q", err, want)
		}
		if name := differs(little(7), into, training); name != "" {
			t.Errorf("%s was loaded", name)
		}
		must(t, c.Close())
	}
}

// Whatever subset of the files of some checkpoints is on disk, the newest one of which all are there is restored, and each newer
// one is named.
func TestAnySubsetOfShards(t *testing.T) {
	t.Parallel()
	restored, none := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		folder, err := os.MkdirTemp("", "shards")
		ok(t, err)
		defer func() { _ = os.RemoveAll(folder) }()
		d := NewDir(folder, 9)
		want, passed := int64(-1), 0
		var newer []string
		for step := int64(1); step <= 4; step++ {
			of := rapid.IntRange(0, 4).Draw(t, fmt.Sprintf("shards of step %d", step))
			if of == 0 {
				ok(t, d.Save(little(uint64(step)), someMeta(step)))
			} else {
				ok(t, inTurn(d, step, of))
			}
			gone := 0
			for k := range max(of, 1) {
				path := shardPath(d.Folder(step), k)
				if of == 0 {
					path = d.Path(step)
				}
				if rapid.IntRange(0, 3).Draw(t, "fate") == 0 {
					ok(t, os.Remove(path))
					gone++
				}
			}
			switch {
			case gone == 0:
				want, passed, newer = step, 0, nil
			case of > 0:
				passed++
				newer = append(newer, d.Folder(step))
			}
		}
		c, bad, err := d.Latest()
		if want < 0 {
			if none++; !errors.Is(err, ErrNone) || len(bad) != passed {
				t.Fatalf("%v, %v", bad, err)
			}
			return
		}
		ok(t, err)
		into := little(99)
		ok(t, errors.Join(c.Restore(into), c.Close()))
		if name := differs(little(uint64(want)), into, training); c.Step != want || len(bad) != passed || name != "" {
			t.Fatalf("step %d (%s), want %d; bad are %v, want %v", c.Step, name, want, bad, newer)
		}
		for i, b := range bad {
			if !errors.Is(b, ErrIncomplete) || !strings.HasPrefix(b.Error(), newer[len(newer)-1-i]+": ") {
				t.Fatalf("%v, want %s", b, newer[len(newer)-1-i])
			}
		}
		restored++
	})
	if restored == 0 { // of 20 tries at least, one in ten of which has none
		t.Errorf("none was restored, %d had none", none)
	}
}

func ok(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inTurn saves shards one after the other.
func inTurn(d *Dir, step int64, of int) (err error) {
	s := d.Shards(someMeta(step), of)
	for k, p := range split(little(uint64(step)), of, uint64(step)) {
		_, err = s.Save(k, p)
	}
	return err
}

// dying is a file system on which an operation fails, and every one after it: nothing is cleaned up, as by a process that is
// killed. A write is cut in its middle.
type dying struct {
	atomicfile.FS
	left int
}

var errDead = errors.New("killed")

// dead counts an operation.
func (f *dying) dead() bool {
	f.left--
	return f.left < 0
}

func (f *dying) over(on atomicfile.FS) atomicfile.FS {
	f.FS = on
	return f
}

func (f *dying) OpenFile(name string, flag int, perm fs.FileMode) (atomicfile.File, error) {
	if flag != os.O_RDONLY && f.dead() {
		return nil, errDead
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	return &dyingFile{file, f}, err
}

func (f *dying) Rename(from, to string) error {
	if f.dead() {
		return errDead
	}
	return f.FS.Rename(from, to)
}

func (f *dying) Remove(name string) error {
	if f.dead() {
		return errDead
	}
	return f.FS.Remove(name)
}

type dyingFile struct {
	atomicfile.File
	on *dying
}

func (f *dyingFile) Write(b []byte) (int, error) {
	if f.on.dead() {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, errDead
	}
	return f.File.Write(b)
}

func (f *dyingFile) Sync() error {
	if f.on.dead() {
		return errDead
	}
	return f.File.Sync()
}

// A process that is killed at any operation on the disk leaves the newest checkpoint that was complete. The kill comes while the third
// checkpoint is written or an old one is removed. A process that resumes from that checkpoint ends with the files of an undisturbed one.
// Only this test finds a save of shards that removes the last whole checkpoint a single operation too early.
func TestKilledAtEveryOperation(t *testing.T) {
	t.Parallel()
	for _, keep := range []int{1, 2} {
		ops, second, third := 0, 0, 0
		for ; ; ops++ {
			d := NewDir(t.TempDir(), keep)
			must(t, inTurn(d, 1, 3))
			must(t, inTurn(d, 2, 2))
			on := &dying{left: ops}
			d.at = d.at.On(on.over)
			err := inTurn(d, 3, 3)
			d.at = folder.At(d.at.Path(""))
			c, bad, failure := d.Latest()
			must(t, failure)
			into := little(99)
			must(t, errors.Join(c.Restore(into), c.Close()))
			if name := differs(little(uint64(c.Step)), into, training); name != "" || c.Step < 2 || len(bad) > 1 || len(bad) == 1 && c.Step == 3 {
				t.Fatalf("killed at operation %d: step %d (%s), bad are %v", ops, c.Step, name, bad)
			}
			if e := (*SaveError)(nil); errors.As(err, &e) && e.Last != d.Folder(2) {
				t.Errorf("killed at operation %d: %v", ops, err)
			}
			if c.Step == 2 {
				second++
				must(t, inTurn(d, 3, 2)) // along another plan
			} else {
				third++
			}
			must(t, inTurn(d, 4, 2))
			want := shardNames(4, 2)
			if keep == 2 {
				want = append(want, shardNames(3, 2)...)
				if c.Step == 3 {
					want = append(want, shardNames(3, 3)[2])
				}
			}
			wantTree(t, d, want...)
			if on.left >= 0 {
				break
			}
		}
		if second < 15 || third < 5 {
			t.Errorf("killed at %d operations: %d times the second checkpoint was left, %d times the third", ops, second, third)
		}
	}
}

// Whatever fails for one shard, the checkpoints before stay, the error says which one to go on from, and a later one succeeds.
func TestAShardThatIsNotSaved(t *testing.T) {
	t.Parallel()
	cases := 0
	for _, f := range []faulty{{open: syscall.EROFS}, {write: syscall.ENOSPC, room: 100}, {sync: syscall.EIO}, {rename: syscall.EIO}, {syncDir: syscall.EIO}} {
		d := NewDir(t.TempDir(), 1)
		must(t, sharded(t, d, 1, 3))
		d.at = d.at.On(f.over)
		err := inTurn(d, 2, 3)
		if e := (*SaveError)(nil); !errors.As(err, &e) || e.Last != d.Folder(1) || e.Path != d.Folder(2) {
			t.Errorf("%v", err)
		}
		d.at = folder.At(d.at.Path(""))
		wantLatestOf(t, d, 1, 2)
		must(t, sharded(t, d, 3, 2))
		wantTree(t, d, shardNames(3, 2)...)
		cases++
	}
	if cases != 5 {
		t.Errorf("%d cases", cases)
	}
	d := NewDir(t.TempDir(), 1)
	must(t, sharded(t, d, 1, 2))
	d.at = d.at.On((&faulty{remove: syscall.EPERM}).over)
	if err := sharded(t, d, 2, 2); !errors.Is(err, ErrNotRemoved) || errors.As(err, new(*SaveError)) {
		t.Errorf("a removal that fails: %v", err)
	}
	wantLatest(t, d, 2, 0)
	m := someMeta(3)
	m.Extra = map[string]string{shardField: "7"}
	if _, err := d.Shards(m, 1).Save(0, little(3)); err == nil || !strings.Contains(err.Error(), `the extra field "shard"`) {
		t.Errorf("a field that is taken: %v", err)
	}
}

// wantLatestOf checks that the newest good checkpoint is of one of two steps: where a folder cannot be synced, what is there
// may be complete.
func wantLatestOf(t testing.TB, d *Dir, steps ...int64) {
	t.Helper()
	c, _, err := d.Latest()
	must(t, err)
	if !slices.Contains(steps, c.Step) {
		t.Errorf("step %d, want one of %v", c.Step, steps)
	}
	must(t, c.Close())
}

// A damaged file and good shards of one step, or the other way round: what is good is taken.
func TestBothForms(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 9)
	saved(t, d, 1, 2)
	must(t, sharded(t, d, 2, 2))
	must(t, os.Truncate(d.Path(2), 10))
	wantLatest(t, d, 2, 0)
	must(t, os.Remove(shardPath(d.Folder(2), 0)))
	wantLatest(t, d, 1, 1)
	saved(t, d, 2)
	wantLatest(t, d, 2, 0)
	if _, bad, _ := NewDir(filepath.Join(d.at.Path(""), "step-2"), 1).Latest(); len(bad) > 0 {
		t.Errorf("%v", bad)
	}
	var missing *safetensors.Error
	if _, err := Import(filepath.Join(d.at.Path(""), "none"), little(1)); errors.As(err, &missing) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func shardPath(folder string, k int) string { return filepath.Join(folder, shardFile(k)) }

// Shards of a checkpoint that is not saved give their room back at once.
func TestShardsThatFailLeaveNothing(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 3)
	saved(t, d, 1)
	one := len(encode(t, split(little(2), 3, 2)[0], someMeta(2)))
	d.at = d.at.On((&faulty{write: syscall.ENOSPC, room: one * 3 / 2}).over)
	if err := inTurn(d, 2, 3); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	wantTree(t, d, "step-1.safetensors")
	if d.at.Has("step-2") {
		t.Error("the folder of the shards stays")
	}
}
