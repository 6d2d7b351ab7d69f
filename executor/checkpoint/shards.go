package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"sync"
)

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

// SharedShards begins a checkpoint whose shards several processes write into one folder or onto disks of their own. Each process
// writes some shards and reports them to all others (Written). Shards of an earlier attempt are replaced one by one (Forget). If the
// processes share a folder, the first of them publishes the checkpoint and removes older ones.
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

// unsaved says that the checkpoint is not saved.
func (s *Shards) unsaved(err error) *SaveError {
	return s.dir.unsaved(s.dir.Folder(s.meta.Step), s.before, s.hidden, err)
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
