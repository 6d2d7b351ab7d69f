package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/folder"
)

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

// unlessGone returns an error, but for that of what another process has removed.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
