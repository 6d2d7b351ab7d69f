package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"plimsoll/executor/checkpoint"
)

// Latest returns the newest checkpoint of which every file is intact on the disk of some process. The processes may share a folder or
// have disks of their own. The result is this process's part of the checkpoint, with the fields of the whole. Errors:
// checkpoint.ErrNone; checkpoint.ErrElsewhere, where there were some; the same in all processes.
func (w *World) Latest(dir *checkpoint.Dir) (c *checkpoint.Checkpoint, bad []error, err error) {
	own, err := dir.Held()
	if err != nil {
		return nil, nil, err
	}
	all, err := gather(w.Context(), w, own)
	if err != nil {
		return nil, nil, err
	}
	found := whole(all)
	for _, p := range found.complete {
		c, broken, err := w.part(dir, &p)
		if bad = append(bad, broken...); c != nil || err != nil {
			return c, append(found.lost, bad...), err
		}
	}
	if len(found.lost) > 0 {
		return nil, bad, fmt.Errorf("%w: start a process on that disk, or copy the file to one of these, or begin anew with --force", found.lost[0])
	}
	return nil, append(found.incomplete, bad...), fmt.Errorf("%w in the folders of %d processes", checkpoint.ErrNone, w.Size())
}

// holdings are the checkpoints that processes have together, newest first.
type holdings struct {
	complete   []checkpoint.Published
	lost       []error // of which shards are missing, newer than all that are complete, or all
	incomplete []error // that were never complete
}

// whole finds out what processes have, of what each has. It is the same in all of them.
func whole(all [][]checkpoint.Held) (h holdings) {
	var sums []string
	by := map[string]checkpoint.Published{}
	unpublished := map[int64]bool{}
	for _, process := range all {
		for _, held := range process {
			sums = append(sums, held.Sums...)
			if len(held.Shards) == 0 {
				unpublished[held.Step] = true
				continue
			}
			by[fmt.Sprint(held.Published)] = held.Published
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b].Step, by[a].Step), cmp.Compare(a, b)) }) {
		p := by[key]
		delete(unpublished, p.Step)
		if err := p.Lacks(sums); err == nil {
			h.complete = append(h.complete, p)
		} else if len(h.complete) == 0 {
			h.lost = append(h.lost, err)
		}
	}
	for step := range unpublished {
		h.incomplete = append(h.incomplete, fmt.Errorf("%w: step %d", checkpoint.ErrIncomplete, step))
	}
	return h
}

// part opens what this process has of a checkpoint; nil, with what is wrong, where not all of it is good somewhere.
func (w *World) part(dir *checkpoint.Dir, p *checkpoint.Published) (c *checkpoint.Checkpoint, bad []error, err error) {
	type opened struct {
		Sums []string
		Meta []byte
		Bad  []string
	}
	c, broken := dir.Part(p)
	defer func() {
		if err != nil || len(bad) > 0 {
			c, err = nil, errors.Join(err, c.Close())
		}
	}()
	own := opened{Sums: c.Sums()}
	for _, b := range broken {
		own.Bad = append(own.Bad, b.Error())
	}
	if len(own.Sums) > 0 {
		if own.Meta, err = json.Marshal(c.Meta); err != nil {
			return c, nil, err
		}
	}
	all, err := gather(w.Context(), w, own)
	if err != nil {
		return c, nil, err
	}
	var good []string
	var said []error
	for rank, x := range all {
		good = append(good, x.Sums...)
		for _, text := range x.Bad {
			said = append(said, fmt.Errorf("%s: %s", w.name(rank), text))
		}
	}
	if p.Lacks(good) != nil {
		return c, said, nil
	}
	i := slices.IndexFunc(all, func(x opened) bool { return len(x.Sums) > 0 })
	if len(own.Sums) == 0 {
		c.HeldBy(w.name(i))
	}
	return c, nil, json.Unmarshal(all[i].Meta, &c.Meta)
}

// pieceBytes is how much goes to all processes at once.
const pieceBytes = 1 << 20

// Bring returns the data that a process gives, of any length. All processes call it together.
func (w *World) Bring(ctx context.Context, from int, data []byte) ([]byte, error) {
	text, err := w.Broadcast(ctx, from, []byte(strconv.Itoa(len(data))))
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return nil, err
	}
	all := make([]byte, n)
	copy(all, data)
	return all, w.spread(ctx, from, all)
}

// spread replaces bytes by those of a process, which are as many.
func (w *World) spread(ctx context.Context, from int, all []byte) error {
	for piece := range slices.Chunk(all, pieceBytes) {
		b, err := w.Broadcast(ctx, from, piece)
		if err != nil {
			return err
		}
		copy(piece, b)
	}
	return nil
}
