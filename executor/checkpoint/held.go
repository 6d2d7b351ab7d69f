package checkpoint

import (
	"errors"
	"path/filepath"
	"slices"

	"plimsoll/internal/folder"
)

// Held lists the files of a checkpoint that a folder has.
type Held struct {
	Published          // with no shards, where nothing says what makes it up, and it is not whole
	Sums      []string // of the files that are there
}

// Held lists what is there of checkpoints, oldest first. A whole one needs nobody who has published it. Files that cannot be read are
// passed over.
func (d *Dir) Held() (all []Held, err error) {
	steps, err := d.Steps()
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if sum, err := sumOf(in(d.at, fileName(step))); err == nil {
			all = append(all, Held{Published{step, []Saved{{SHA256: sum}}}, []string{sum}})
		}
		if d.at.HasDir(folderName(step)) {
			all = append(all, heldIn(d.shards(step), step))
		}
	}
	return all, nil
}

func heldIn(at *folder.Dir, step int64) Held {
	h := Held{Published: Published{Step: step}, Sums: sumsIn(at)}
	if p, err := readPublished(at); err == nil && p.Step == step {
		h.Published = *p
	} else if haveShards(at) {
		for _, sum := range h.Sums {
			h.Shards = append(h.Shards, Saved{SHA256: sum})
		}
	}
	return h
}

// Part opens and verifies what this folder has of a checkpoint. bad says what is wrong with files that are not used.
func (d *Dir) Part(p *Published) (c *Checkpoint, bad []error) {
	c = &Checkpoint{name: d.Folder(p.Step)}
	for _, f := range append(shardFiles(d.shards(p.Step)), folder.File{Dir: d.at, Name: fileName(p.Step)}) {
		sum, err := sumOf(in(f.Dir, f.Name))
		if err != nil || !slices.ContainsFunc(p.Shards, func(s Saved) bool { return s.SHA256 == sum }) {
			continue
		}
		one, err := openFile(in(f.Dir, f.Name))
		if err != nil {
			bad = append(bad, err)
			continue
		}
		delete(one.Extra, shardField)
		delete(one.Extra, shardsField)
		c.Meta, c.files, c.sums = one.Meta, append(c.files, one.files...), append(c.sums, sum)
	}
	return c, bad
}

// Forget removes the checkpoints of later steps, which nothing goes on from.
func (d *Dir) Forget(after int64) (err error) {
	steps, err := d.Steps()
	for _, step := range steps {
		if step > after {
			err = errors.Join(err, d.remove(step))
		}
	}
	return err
}

// HeldBy says who has a part of which nothing is here.
func (c *Checkpoint) HeldBy(who string) { c.name = filepath.Base(c.name) + " of " + who }

// Sums are the checksums of the files, of a Part.
func (c *Checkpoint) Sums() []string { return c.sums }
