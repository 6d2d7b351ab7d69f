package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"plimsoll/models/data"
)

// feed hands a loader's batches to the two ends of a pipeline, which ask for the images and the labels of a batch at
// different times, and in another order when several devices share a stage.
//
// Invariant: the batches from the loader that have been asked for once, for images or for labels, are held; those of which
// both were taken are not.
type feed struct {
	mu    sync.Mutex
	from  *data.Loader[float32]
	next  int // the batch that the loader gives next
	held  map[int]*held
	spare []*held
	fresh func() *held
	wrong error                                 // why the next batch cannot be made
	wants func(batch int) (images, labels bool) // what of a batch is asked for
}

// pixels returns the values of a batch's images.
func (j *Job) pixels() int {
	s := j.Set.Shape()
	return s[0] * s[1] * s[2] * j.Config.Batch
}

// held is a batch that waits to be asked for.
type held struct {
	images      []float32
	labels      []int32
	shown, told bool // its images, its labels were asked for
}

// newFeed serves the training batches of a job from batch number first on.
func (j *Job) newFeed(ctx context.Context, from *data.Batcher[float32], first int) (*feed, error) {
	l, err := data.NewLoader(ctx, from, int64(first), 0, 0)
	if err != nil {
		return nil, err
	}
	pixels := j.pixels()
	wants := func(int) (bool, bool) { return true, true }
	return &feed{wants: wants, from: l, next: first, held: map[int]*held{}, fresh: func() *held {
		return &held{images: make([]float32, pixels), labels: make([]int32, j.labels())}
	}}, nil
}

// Images implements pipeline.Feed.
func (f *feed) Images(batch int, dst []float32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, err := f.get(batch)
	if err != nil {
		return err
	}
	copy(dst, h.images)
	h.shown = true
	f.settle(batch, h)
	return nil
}

// Labels implements pipeline.Feed.
func (f *feed) Labels(batch int, dst []int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, err := f.get(batch)
	if err != nil {
		return err
	}
	copy(dst, h.labels)
	h.told = true
	f.settle(batch, h)
	return nil
}

// prepare reads on to a batch, unless it has been asked for.
func (f *feed) prepare(batch int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next > batch {
		return nil
	}
	_, err := f.get(batch)
	return err
}

// get returns a batch, reading on to it.
func (f *feed) get(batch int) (*held, error) {
	for f.next <= batch && f.wrong == nil {
		h := f.room()
		if _, err := f.from.Next(h.images, h.labels); err != nil {
			f.wrong = fmt.Errorf("data of batch %d: %w", f.next, err)
			break
		}
		images, labels := f.wants(f.next)
		h.shown, h.told = !images, !labels
		f.held[f.next] = h
		f.settle(f.next, h)
		f.next++
	}
	if f.next <= batch {
		return nil, f.wrong
	}
	h, ok := f.held[batch]
	if !ok {
		panic(fmt.Sprintf("BUG: batch %d is asked for again, or before the first", batch))
	}
	return h, nil
}

func (f *feed) room() *held {
	if n := len(f.spare); n > 0 {
		h := f.spare[n-1]
		f.spare = f.spare[:n-1]
		return h
	}
	return f.fresh()
}

// settle takes a batch back when both ends have had it.
func (f *feed) settle(batch int, h *held) {
	if h.shown && h.told {
		delete(f.held, batch)
		f.spare = append(f.spare, h)
	}
}

// examiner serves test batches, which come in order, and keeps their labels until the predictions are there.
type examiner struct {
	from   *data.Loader[float32]
	labels int // of a batch
	sheets []sheet
}

type sheet struct {
	fresh  int
	labels []int32
}

// Images implements pipeline.Feed.
func (x *examiner) Images(_ int, dst []float32) error {
	labels := make([]int32, x.labels)
	fresh, err := x.from.Next(dst, labels)
	if errors.Is(err, io.EOF) {
		panic("BUG: an evaluation asks for more batches than there are")
	}
	x.sheets = append(x.sheets, sheet{fresh, labels})
	return err
}

// Labels implements pipeline.Feed; an evaluation asks for none.
func (x *examiner) Labels(int, []int32) error { return nil }
