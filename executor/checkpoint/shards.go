package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/folder"
)

// Metadata fields of a shard: its number from 0, and how many there are. The other fields are those of the checkpoint, the
// same in each of its shards.
const (
	shardField  = "shard"
	shardsField = "shards"
)

var shardName = regexp.MustCompile(`^stage-(0|[1-9][0-9]{0,8})\.safetensors$`)

func shardFile(k int) string { return fmt.Sprintf("stage-%d.safetensors", k) }

// Shards is a checkpoint that is saved in parts, each by whoever has it, at the same time and in any order. Nobody waits
// for another, and nothing says that the checkpoint is complete but its shards, which readers count; on disks of several processes
// also a Published.
type Shards struct {
	dir     *Dir
	meta    Meta
	of      int
	shared  bool // by several processes
	follows bool // this one is not the first of them
	begun   sync.Once
	before  []int64 // checkpoints that were there, unless
	hidden  error   // they could not be listed
	unready error

	mu      sync.Mutex
	wrote   []int // shards, by this process
	left    int
	saved   []Saved // by number
	failure error
}

// Shards begins a checkpoint of so many shards (at least 1). It touches no file.
func (d *Dir) Shards(m Meta, of int) *Shards {
	return &Shards{dir: d, meta: m, of: of, left: of, saved: make([]Saved, of)}
}

// SharedShards begins a checkpoint whose shards several processes write, each some of them, into one folder or on disks of their own,
// and each tells all of what became of them (Written). What an earlier attempt has left is replaced shard by shard (Forget). Where
// processes have one folder, the first of them publishes the checkpoint, and removes older ones.
func (d *Dir) SharedShards(m Meta, of int, first bool) *Shards {
	s := d.Shards(m, of)
	s.shared, s.follows = true, !first
	return s
}

// Save writes shard k, once for each from 0, and makes it durable. With the last one the result is known: then it removes
// checkpoints of earlier steps beyond the number that is kept. Errors, of the last one: *SaveError when not all shards are
// saved, which removes the others, and every earlier checkpoint is untouched; ErrNotRemoved.
func (s *Shards) Save(k int, from Source) (last bool, err error) {
	sum, err := s.Write(k, from)
	last, err = s.Written(k, Saved{SHA256: sum}, err)
	return last, s.Discard(err)
}

// Discard removes the shards that this process has written, when err says that not all shards are saved: the next checkpoint needs
// their room. It returns err, with the errors of removing.
func (s *Shards) Discard(err error) error {
	if e := (*SaveError)(nil); s == nil || !errors.As(err, &e) || e.whole {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.dir.shards(s.meta.Step)
	for _, k := range s.wrote {
		err = errors.Join(err, at.Remove(shardFile(k)))
	}
	s.wrote = nil
	_ = s.dir.at.Remove(folderName(s.meta.Step)) // which only an empty folder lets happen
	return err
}

// Write writes shard k and makes it durable. It returns its checksum.
func (s *Shards) Write(k int, from Source) (sum string, err error) {
	s.begun.Do(s.prepare)
	if s.unready != nil {
		return "", s.unready
	}
	s.mu.Lock()
	s.wrote = append(s.wrote, k)
	s.mu.Unlock()
	at := s.dir.shards(s.meta.Step)
	if err := at.Write(shardFile(k), func(w io.Writer) error { return encodeShard(w, from, s.meta, k, s.of) }); err != nil {
		return "", err
	}
	return sumOf(in(at, shardFile(k)))
}

// Written counts shard k, which was written, or not. Returns and errors are those of Save.
func (s *Shards) Written(k int, as Saved, err error) (last bool, _ error) {
	s.begun.Do(s.prepare)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved[k] = as
	if s.left--; err != nil && s.failure == nil {
		s.failure = err
	}
	switch {
	case s.left > 0:
		return false, nil
	case s.failure != nil:
		return true, s.unsaved(s.failure)
	case s.shared:
		return true, s.publish()
	}
	return true, s.dir.prune(s.meta.Step)
}

// unsaved says that the checkpoint is not saved.
func (s *Shards) unsaved(err error) *SaveError {
	return s.dir.unsaved(s.dir.Folder(s.meta.Step), s.before, s.hidden, err)
}

// encodeShard writes one of so many shards.
func encodeShard(w io.Writer, from Source, m Meta, k, of int) error {
	extra := maps.Clone(m.Extra)
	if extra == nil {
		extra = map[string]string{}
	}
	for field, n := range map[string]int{shardField: k, shardsField: of} {
		if _, taken := extra[field]; taken {
			return fmt.Errorf("checkpoint: the extra field %q has the name of one of a checkpoint's own", field)
		}
		extra[field] = strconv.Itoa(n)
	}
	m.Extra = extra
	return Encode(w, from, m)
}

// prepare lists the other checkpoints and makes the folder of this one.
func (s *Shards) prepare() {
	all, err := s.dir.Steps()
	s.before, s.hidden = slices.DeleteFunc(all, func(step int64) bool { return step == s.meta.Step }), err
	if s.unready = err; err == nil {
		s.unready = s.dir.prepareShards(s.meta.Step, s.shared)
	}
}

// prepareShards makes the folder of a checkpoint and empties it of what an earlier attempt has left, whose shards must not meet new
// ones, unless others write there already.
func (d *Dir) prepareShards(step int64, shared bool) error {
	if err := d.prepare(); err != nil {
		return err
	}
	at := d.shards(step)
	err := at.New()
	switch {
	case errors.Is(err, fs.ErrExist) && shared:
		return nil
	case errors.Is(err, fs.ErrExist):
		return errors.Join(empty(at), at.Sync())
	}
	return err
}

// empty removes the shards in a folder, whole or unfinished.
func empty(at *folder.Dir) error {
	err := unlessGone(at.Tidy())
	entries, failure := at.List()
	err = errors.Join(err, unlessGone(failure))
	for _, e := range entries {
		if shardName.MatchString(e.Name()) || e.Name() == publishedName {
			err = errors.Join(err, at.Remove(e.Name()))
		}
	}
	return err
}

// shardNumbers lists the shards in a folder, in order.
func shardNumbers(at *folder.Dir) (all []int, err error) {
	entries, err := at.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if m := shardName.FindStringSubmatch(e.Name()); m != nil {
			k, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			all = append(all, k)
		}
	}
	slices.Sort(all)
	return all, nil
}

// haveShards reports whether a folder has as many shards as its first one says.
func haveShards(at *folder.Dir) bool {
	numbers, err := shardNumbers(at)
	if err != nil || len(numbers) == 0 {
		return false
	}
	f, err := in(at, shardFile(numbers[0]))
	if err != nil {
		return false
	}
	of := f.Metadata()[shardsField]
	return f.Close() == nil && of == strconv.Itoa(len(numbers)) && numbers[len(numbers)-1] == len(numbers)-1
}

// openShards opens and verifies all shards in a folder.
func openShards(at *folder.Dir) (c *Checkpoint, err error) {
	numbers, err := shardNumbers(at)
	if err != nil {
		return nil, err
	}
	c = &Checkpoint{name: at.Path("")}
	defer func() {
		if err != nil {
			c, err = nil, errors.Join(err, c.Close())
		}
	}()
	of := 0
	for _, k := range numbers {
		if of, err = c.addShard(at, k); err != nil {
			return c, err
		}
	}
	return c, complete(at, numbers, of)
}

// addShard opens and verifies a shard, and compares it with the first one. It returns how many shards there are.
func (c *Checkpoint) addShard(at *folder.Dir, k int) (of int, err error) {
	one, err := openFile(in(at, shardFile(k)))
	if err != nil {
		return 0, err
	}
	c.files = append(c.files, one.files...)
	if got := one.Extra[shardField]; got != strconv.Itoa(k) {
		return 0, fmt.Errorf("%s: %w: metadata field %q is %q, want %q", one.name, ErrFormat, shardField, got, strconv.Itoa(k))
	}
	text := one.Extra[shardsField]
	if of, err = strconv.Atoi(text); err != nil || of < 1 {
		return 0, fmt.Errorf("%s: %w: metadata field %q is %q, want a number of shards", one.name, ErrFormat, shardsField, text)
	}
	if err := together(c.files[0], one.files[0]); err != nil {
		return 0, err
	}
	delete(one.Extra, shardField)
	delete(one.Extra, shardsField)
	if len(one.Extra) == 0 {
		one.Extra = nil
	}
	c.Meta = one.Meta
	return of, nil
}

// together compares the metadata of two shards of a checkpoint. Errors: ErrFormat, with the first field that differs.
func together(first, other *safetensors.File) error {
	a, b := first.Metadata(), other.Metadata()
	fields := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(fields)
	for _, field := range fields {
		if field != shardField && a[field] != b[field] {
			return fmt.Errorf("%s: %w: metadata field %q is %q, and %q in %s: they are shards of two checkpoints",
				other.Name(), ErrFormat, field, b[field], a[field], first.Name())
		}
	}
	return nil
}

// complete reports, with ErrIncomplete, or ErrElsewhere of a checkpoint that was complete, which of so many shards are missing.
func complete(at *folder.Dir, numbers []int, of int) error {
	folder := at.Path("")
	var missing []string
	for k := range of {
		if _, found := slices.BinarySearch(numbers, k); !found {
			missing = append(missing, shardFile(k))
		}
	}
	if p, err := readPublished(at); err == nil && len(missing) > 0 {
		if lacks := p.Lacks(sumsIn(at)); lacks != nil {
			return fmt.Errorf("%s: %w", folder, lacks)
		}
	}
	switch {
	case len(numbers) == 0:
		return fmt.Errorf("%s: %w: it has no shard", folder, ErrIncomplete)
	case len(missing) > 0:
		return fmt.Errorf("%s: %w: of %d shards it has not %s", folder, ErrIncomplete, of, brief(missing))
	case len(numbers) > of:
		return fmt.Errorf("%s: %w: it has shard %d, of %d from 0", folder, ErrFormat, numbers[len(numbers)-1], of)
	}
	return nil
}
