package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/folder"
)

// publishedName is the file, beside shards, with a Published.
const publishedName = "published.json"

// Published is what makes up a checkpoint whose shards several processes have saved, perhaps each on a disk of its own. It is written
// on each of these disks when all shards are durable.
type Published struct {
	Step   int64   `json:"step"`
	Shards []Saved `json:"shards"` // by number
}

// Saved is a file of a checkpoint.
type Saved struct {
	SHA256 string `json:"sha256"`       // that it ends with
	By     string `json:"by,omitempty"` // who has written it
}

// Lacks returns an error that names the shards that are not among files with these checksums; nil when there are none. Errors:
// ErrElsewhere.
func (p *Published) Lacks(sums []string) error {
	var all []string
	for k, s := range p.Shards {
		if !slices.Contains(sums, s.SHA256) {
			all = append(all, fmt.Sprintf("%s, which %s has saved", shardFile(k), s.By))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: of that of step %d there is no %s", ErrElsewhere, p.Step, brief(all))
}

// Held is what a folder has of a checkpoint.
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

// sumsIn returns the checksums of the shards in a folder that can be read.
func sumsIn(at *folder.Dir) (all []string) {
	for _, f := range shardFiles(at) {
		if sum, err := sumOf(in(f.Dir, f.Name)); err == nil {
			all = append(all, sum)
		}
	}
	return all
}

// shardFiles lists the shards in a folder, in order.
func shardFiles(at *folder.Dir) (all []folder.File) {
	numbers, _ := shardNumbers(at) // of a folder that cannot be read: none
	for _, k := range numbers {
		all = append(all, folder.File{Dir: at, Name: shardFile(k)})
	}
	return all
}

// sumOf returns the checksum that a file ends with, in hexadecimal digits.
func sumOf(f *safetensors.File, err error) (string, error) {
	if err != nil {
		return "", err
	}
	_, sum, err := f.Last(sha256.Size)
	return hex.EncodeToString(sum), errors.Join(err, f.Close())
}

func readPublished(at *folder.Dir) (*Published, error) {
	text, err := at.ReadFile(publishedName)
	if err != nil {
		return nil, err
	}
	p := &Published{}
	if err := json.Unmarshal(text, p); err != nil || len(p.Shards) == 0 {
		return nil, errors.Join(fmt.Errorf("%w: %s in %s", ErrFormat, publishedName, at.Path("")), err)
	}
	return p, nil
}

// publish says on this process's disk that a checkpoint is complete, and removes older ones there. Of processes with one folder the
// first one does that.
func (s *Shards) publish() error {
	at := s.dir.shards(s.meta.Step)
	if s.follows && haveShards(at) {
		return nil
	}
	if err := at.WriteJSON(publishedName, Published{s.meta.Step, s.saved}); err != nil {
		e := s.unsaved(err)
		e.whole = true
		return e
	}
	return s.dir.prune(s.meta.Step)
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

// HeldBy says who has a part of which nothing is here.
func (c *Checkpoint) HeldBy(who string) { c.name = filepath.Base(c.name) + " of " + who }

// Sums are the checksums of the files, of a Part.
func (c *Checkpoint) Sums() []string { return c.sums }

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

// unlessGone returns an error, but for that of what another process has removed.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
