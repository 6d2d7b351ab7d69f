package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"

	"plimsoll/internal/folder"
)

// Dir is a folder of checkpoints of one run, which one process writes at a time: files step-N.safetensors, and folders step-N
// of shards. Who starts a run anew makes sure that Steps is empty: later steps of an old run would be the latest.
//
// Invariants: a file of that name, and a shard, was complete when it got its name; nothing is removed before a newer
// checkpoint is durable.
type Dir struct {
	at    *folder.Dir
	keep  int
	still func() error // nil, or why nothing may be saved any more
}

// NewDir returns the folder at path, which need not exist; Save keeps the newest keep checkpoints (at least 1).
func NewDir(path string, keep int) *Dir { return DirIn(folder.At(path), keep) }

// DirIn is NewDir in a folder that is open.
func DirIn(at *folder.Dir, keep int) *Dir { return &Dir{at: at, keep: max(keep, 1)} }

// While makes everything that is saved fail from when still returns an error: the folder may be another run's by then.
func (d *Dir) While(still func() error) *Dir {
	d.still = still
	return d
}

// Check returns why nothing may be saved any more; nil of no folder.
func (d *Dir) Check() error {
	if d == nil || d.still == nil {
		return nil
	}
	return d.still()
}

var checkpointName = regexp.MustCompile(`^step-(0|[1-9][0-9]{0,17})(\.safetensors)?$`)

// Path returns the path of the checkpoint after step steps.
func (d *Dir) Path(step int64) string { return d.at.Path(fileName(step)) }

// Folder returns the path of the checkpoint in shards after step steps.
func (d *Dir) Folder(step int64) string { return d.at.Path(folderName(step)) }

func fileName(step int64) string   { return fmt.Sprintf("step-%d.safetensors", step) }
func folderName(step int64) string { return fmt.Sprintf("step-%d", step) }

// shards returns the folder of the shards after step steps.
func (d *Dir) shards(step int64) *folder.Dir { return d.at.Sub(folderName(step)) }

// Steps lists the checkpoints that are there, good or not, oldest first. Errors: folder.ErrForeign, those of the operating system.
func (d *Dir) Steps() ([]int64, error) {
	entries, err := d.at.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var steps []int64
	for _, e := range entries {
		if m := checkpointName.FindStringSubmatch(e.Name()); m != nil && (m[2] != "" || !e.Type().IsRegular()) {
			if _, err := d.at.Stat(e.Name()); errors.Is(err, folder.ErrForeign) {
				return nil, err
			}
			step, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return slices.Compact(steps), nil
}

// Save writes a checkpoint, makes it durable, and then removes those of earlier steps beyond the number that is kept.
// Errors: *SaveError when it is not (or, where the folder cannot be synced, perhaps not) saved, and every earlier one is
// untouched; ErrNotRemoved.
func (d *Dir) Save(from Source, m Meta) error {
	path := d.Path(m.Step)
	before, unlisted := d.Steps()
	err := unlisted
	if err == nil {
		err = d.prepare()
	}
	if err == nil {
		err = d.at.Write(fileName(m.Step), func(w io.Writer) error { return Encode(w, from, m) })
	}
	if err != nil {
		return d.unsaved(path, before, unlisted, err)
	}
	return d.prune(m.Step)
}

// prepare makes the folder and removes what a killed process left unfinished.
func (d *Dir) prepare() error {
	if err := d.Check(); err != nil {
		return err
	}
	if err := d.at.Make(); err != nil {
		return err
	}
	return d.at.Tidy()
}

// Clear removes all checkpoints, good or not.
func (d *Dir) Clear() error {
	steps, err := d.Steps()
	for _, step := range steps {
		err = errors.Join(err, d.remove(step))
	}
	return err
}

// prune removes the oldest checkpoints before step, which is durable, and shards without the rest that are older than all
// that is kept.
func (d *Dir) prune(step int64) error {
	steps, err := d.Steps()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotRemoved, err)
	}
	kept := 0
	for _, old := range slices.Backward(steps) {
		switch {
		case old > step:
		case kept == d.keep:
			err = errors.Join(err, d.remove(old))
		case d.stands(old):
			kept++
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotRemoved, err)
	}
	return nil
}

// stands reports whether all files of a checkpoint are there, whatever is in them, or where other processes have them.
func (d *Dir) stands(step int64) bool {
	return d.at.Has(fileName(step)) || haveShards(d.shards(step)) || d.published(step)
}

func (d *Dir) published(step int64) bool { return d.shards(step).Has(publishedName) }

// remove removes a checkpoint in either form.
func (d *Dir) remove(step int64) (err error) {
	if d.at.Has(fileName(step)) {
		err = d.at.Remove(fileName(step))
	}
	if d.at.HasDir(folderName(step)) {
		err = errors.Join(err, empty(d.shards(step)), d.at.Remove(folderName(step)))
	}
	return err
}

// unsaved says why a checkpoint is not saved and which of those that were there before, unless they could not be listed, is the
// newest good one.
func (d *Dir) unsaved(path string, before []int64, unlisted, err error) *SaveError {
	e := &SaveError{Path: path, Err: err, Unknown: unlisted}
	for _, step := range slices.Backward(before) {
		if d.published(step) {
			e.Last = d.Folder(step)
			return e
		}
		c, err := d.Open(step)
		if err == nil {
			e.Last = c.Name()
			_ = c.Close() // of a file that was read
			return e
		}
		if e.Unknown == nil && !isBad(err) && !errors.Is(err, ErrNone) {
			e.Unknown = err
		}
	}
	return e
}

// Latest opens the newest good checkpoint. bad says what is wrong with each newer file. The caller closes the
// checkpoint. Errors: ErrNone, those of the operating system.
func (d *Dir) Latest() (c *Checkpoint, bad []error, err error) {
	steps, err := d.Steps()
	if err != nil {
		return nil, nil, err
	}
	for _, step := range slices.Backward(steps) {
		if c, err = d.Open(step); err == nil {
			return c, bad, nil
		}
		bad = append(bad, err)
	}
	return nil, bad, fmt.Errorf("%w in %s", ErrNone, d.at.Path(""))
}

// Open opens the checkpoint after step steps, the file or, where that is not good, the folder of shards. Errors: ErrNone, those of
// the function Open; ErrFormat when its name is another's.
func (d *Dir) Open(step int64) (*Checkpoint, error) {
	c, bad := d.openAs(step, fileName(step), func() (*Checkpoint, error) { return openWhole(in(d.at, fileName(step))) })
	if c != nil {
		return c, nil
	}
	c, err := d.openAs(step, folderName(step), func() (*Checkpoint, error) { return openShards(d.shards(step)) })
	switch {
	case c != nil:
		return c, nil
	case bad == nil && err == nil:
		return nil, fmt.Errorf("%w of step %d in %s", ErrNone, step, d.at.Path(""))
	}
	return nil, errors.Join(bad, err)
}

// openAs opens one form of a checkpoint, which must be of the step of its name; nil where there is none.
func (d *Dir) openAs(step int64, name string, open func() (*Checkpoint, error)) (*Checkpoint, error) {
	if _, err := d.at.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c, err := open()
	if err == nil && c.Step != step {
		err = errors.Join(fmt.Errorf("%s: %w: metadata field \"step\" is %d", c.Name(), ErrFormat, c.Step), c.Close())
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
