package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"plimsoll/executor"
	"plimsoll/internal/atomicfile"
)

// dispersed saves little(step), a shard by each process, which are on disks by number, and tells all what became of them.
func dispersed(t testing.TB, disks []*Dir, step int64) error {
	t.Helper()
	parts := split(little(uint64(step)), len(disks), uint64(step))
	all, sums := make([]*Shards, len(disks)), make([]string, len(disks))
	for k, d := range disks {
		var err error
		all[k] = d.SharedShards(someMeta(step), len(disks), k == 0)
		sums[k], err = all[k].Write(k, parts[k])
		must(t, err)
	}
	errs := make([]error, len(disks))
	var told sync.WaitGroup
	for p, s := range all {
		told.Go(func() {
			for k, sum := range sums {
				if _, err := s.Written(k, Saved{sum, fmt.Sprintf("rank %d on %c", k, 'a'+k)}, nil); err != nil {
					errs[p] = s.Discard(err)
				}
			}
		})
	}
	told.Wait()
	return errors.Join(errs...)
}

func folders(t testing.TB, n int) (all []*Dir) {
	for range n {
		all = append(all, NewDir(t.TempDir(), 2))
	}
	return all
}

// Each disk has its shards and the word that they are part of a whole; the newest few stay on each.
func TestShardsOnDisksOfTheirOwn(t *testing.T) {
	t.Parallel()
	disks := folders(t, 3)
	for step := range int64(4) {
		must(t, dispersed(t, disks, step))
	}
	var sums []string
	for k, d := range disks {
		wantTree(t, d, "step-2/published.json", fmt.Sprintf("step-2/stage-%d.safetensors", k), "step-3/published.json", fmt.Sprintf("step-3/stage-%d.safetensors", k))
		held, err := d.Held()
		must(t, err)
		if len(held) != 2 || held[1].Step != 3 || len(held[1].Shards) != 3 || len(held[1].Sums) != 1 || held[1].Sums[0] != held[1].Shards[k].SHA256 {
			t.Fatalf("%+v", held)
		}
		sums = append(sums, held[1].Sums...)
		if _, bad, err := d.Latest(); !errors.Is(err, ErrNone) || len(bad) != 2 || !errors.Is(bad[0], ErrElsewhere) || errors.Is(bad[0], ErrIncomplete) {
			t.Errorf("%v, %v", bad, err)
		}
	}
	held, err := disks[0].Held()
	must(t, err)
	p := held[1].Published
	if err := p.Lacks(sums); err != nil {
		t.Error(err)
	}
	if err := p.Lacks(append(sums[:1:1], sums[2:]...)); err == nil || !strings.Contains(err.Error(), "of that of step 3 there is no stage-1.safetensors, which rank 1 on b has saved") {
		t.Error(err)
	}
	must(t, disks[1].Forget(2))
	wantTree(t, disks[1], "step-2/published.json", "step-2/stage-1.safetensors")
}

// unpublished is a disk that does not take the word that a checkpoint is complete.
type unpublished struct{ atomicfile.FS }

func (u unpublished) Rename(from, to string) error {
	if filepath.Base(to) == publishedName {
		return syscall.EIO
	}
	return u.FS.Rename(from, to)
}

// A process that cannot publish keeps its shard: others have said that the checkpoint is complete, and have removed older ones.
func TestShardsThatOthersPublishStay(t *testing.T) {
	t.Parallel()
	disks := []*Dir{NewDir(t.TempDir(), 1), NewDir(t.TempDir(), 1)}
	must(t, dispersed(t, disks, 1))
	disks[0].at = disks[0].at.On(func(on atomicfile.FS) atomicfile.FS { return unpublished{on} })
	if err := dispersed(t, disks, 2); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	wantTree(t, disks[0], "step-1/published.json", "step-1/stage-0.safetensors", "step-2/stage-0.safetensors")
	wantTree(t, disks[1], "step-2/published.json", "step-2/stage-1.safetensors")
}

// In one folder the first process alone publishes; several processes that have one of their own do that at the same time, and do not
// mind.
func TestWhoPublishes(t *testing.T) {
	t.Parallel()
	one := NewDir(t.TempDir(), 1)
	must(t, dispersed(t, []*Dir{one, one, one}, 5))
	wantTree(t, one, append(shardNames(5, 3), "step-5/published.json")...)
	wantLatest(t, one, 5, 0)
	disks := folders(t, 2)
	for step := range int64(30) {
		must(t, dispersed(t, []*Dir{disks[0], disks[1], disks[1], disks[1]}, step))
	}
	wantTree(t, disks[1], "step-28/published.json", "step-28/stage-1.safetensors", "step-28/stage-2.safetensors", "step-28/stage-3.safetensors",
		"step-29/published.json", "step-29/stage-1.safetensors", "step-29/stage-2.safetensors", "step-29/stage-3.safetensors")
}

// A whole checkpoint of one process is held by whoever has it, in either form; what nobody has published and is not whole makes up
// nothing.
func TestHeldWithoutAWord(t *testing.T) {
	t.Parallel()
	d := NewDir(t.TempDir(), 9)
	saved(t, d, 1)
	must(t, sharded(t, d, 2, 3))
	must(t, sharded(t, d, 3, 3))
	must(t, os.Remove(shardPath(d.Folder(3), 1)))
	must(t, os.WriteFile(filepath.Join(d.Folder(3), publishedName), []byte("{}"), 0o600))
	held, err := d.Held()
	must(t, err)
	var got []string
	for _, h := range held {
		got = append(got, fmt.Sprint(h.Step, len(h.Shards), len(h.Sums)))
	}
	if want := []string{"1 1 1", "2 3 3", "3 0 2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Processes that have parts load the whole: what one has it reads, and all agree on who has what; a part that is damaged is none.
func TestPartsAreLoadedTogether(t *testing.T) {
	t.Parallel()
	disks := folders(t, 3)
	must(t, dispersed(t, disks, 7))
	held, err := disks[2].Held()
	must(t, err)
	with := &Together{}
	var parts []*Checkpoint
	for _, k := range []int{2, 0, 1} { // they have changed places
		c, bad := disks[k].Part(&held[0].Published)
		if len(bad) > 0 || len(c.Sums()) != 1 || c.Step != 7 || c.Extra[shardsField] != "" {
			t.Fatalf("%+v, %v", c, bad)
		}
		defer func() { must(t, c.Close()) }()
		contents, err := c.Contents()
		must(t, err)
		parts, with.Parts = append(parts, c), append(with.Parts, contents)
	}
	from := little(7)
	for self, c := range parts {
		into := little(1)
		with.Share = func(x executor.Tensor, have []int, values []float32) error {
			want := make([]float32, len(values))
			must(t, from.Read(x, want))
			if len(have) != 1 {
				t.Errorf("processes %v have %s", have, x.Name)
			}
			if have[0] == self && !slices.Equal(values, want) {
				t.Errorf("process %d: %s is %v, want %v", self, x.Name, values, want)
			}
			copy(values, want)
			return nil
		}
		must(t, c.RestoreTogether(into, with))
		if name := differs(from, into, training); name != "" {
			t.Errorf("%s differs", name)
		}
	}
	without := &Together{Parts: with.Parts[:2], Share: with.Share}
	if err := parts[0].RestoreTogether(little(1), without); !errors.As(err, new(*TensorsError)) {
		t.Error(err)
	}
	path := shardPath(disks[1].Folder(7), 1)
	b, err := os.ReadFile(path)
	must(t, err)
	b[len(b)-40] ^= 1
	must(t, os.WriteFile(path, b, 0o600))
	c, bad := disks[1].Part(&held[0].Published)
	if len(c.Sums()) != 0 || len(bad) != 1 || !errors.Is(bad[0], ErrDamaged) {
		t.Errorf("%v, %v", c.Sums(), bad)
	}
	if none, err := c.Contents(); len(none) != 0 || err != nil {
		t.Error(none, err)
	}
}

// Whatever is in the file beside shards, it makes nothing up, and what is whole without it stays good.
func FuzzPublished(f *testing.F) {
	f.Add([]byte(`{"step":3,"shards":[{"sha256":"00","by":"rank 0 on a"},{"sha256":"01"},{"sha256":"02"}]}`))
	d := NewDir(f.TempDir(), 9)
	must(f, sharded(f, d, 3, 2))
	must(f, sharded(f, d, 4, 2))
	must(f, os.Remove(shardPath(d.Folder(4), 1)))
	f.Add(fmt.Appendf(nil, `{"step":4,"shards":[{"sha256":"%s"}]}`, sumsIn(d.shards(4))[0])) // it lacks nothing, and is not whole
	f.Add([]byte(`{"step":-1,"shards":[{}]}`))
	f.Add([]byte(`{"step":3,"shards":null} {`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, step := range []int64{3, 4} {
			must(t, os.WriteFile(filepath.Join(d.Folder(step), publishedName), text, 0o600))
		}
		held, err := d.Held()
		must(t, err)
		if len(held) != 2 || len(held[0].Sums) != 2 || len(held[1].Sums) != 1 {
			t.Fatalf("%+v", held)
		}
		if _, err := Open(d.Folder(4)); strings.Contains(err.Error(), "%!") {
			t.Error(err)
		}
		wantLatest(t, d, 3, 1)
		for _, h := range held {
			c, bad := d.Part(&h.Published)
			if must(t, c.Close()); len(bad) > 0 {
				t.Error(bad)
			}
		}
	})
}
