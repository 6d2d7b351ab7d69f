package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"plimsoll/executor"
	"plimsoll/executor/measure"
	"plimsoll/models/data"
)

// feed hands a loader's batches to the two ends of a pipeline. These ask for the images and the labels of a batch at
// different times, and in another order when several devices share a stage.
//
// Invariant: the batches from the loader that have been asked for once, for images or for labels, are held; those of which
// both were taken are not.
type feed struct {
	mu    sync.Mutex
	from  loader
	next  int // the batch that the loader gives next
	end   int // the batch from which on none waits on a device; 0: each may
	held  map[int]*held
	spare []*held
	fresh func() *held
	wrong error                                 // why the next batch cannot be made
	wants func(batch int) (images, labels bool) // what of a batch is asked for
	early func(batch int) bool                  // see pipeline.EarlyFeed; nil: none
}

// held is a batch that waits to be asked for. Its images are values, or bytes.
type held struct {
	values      []float32
	pixels      []uint8
	labels      []int32
	shown, told bool // its images, its labels were asked for
}

// Images implements room.
func (h *held) Images() ([]float32, error) { return h.values, nil }

// Pixels implements room.
func (h *held) Pixels() ([]uint8, error) { return h.pixels, nil }

// Labels implements room.
func (h *held) Labels() ([]int32, error) { return h.labels, nil }

// newHeld returns room for a batch as a workload takes it.
func (b *batches) newHeld(w *executor.Workload) *held {
	h := &held{labels: make([]int32, b.labels())}
	if w.StagedBytes() > 0 {
		h.pixels = make([]uint8, b.pixels())
	} else {
		h.values = make([]float32, b.pixels())
	}
	return h
}

// LoadFirst fills the first training batch.
func (b *batches) LoadFirst(to measure.Batch) error {
	return b.load(&held{values: to.Images, labels: to.Labels}, 0)
}

// newFeed serves the training batches from batch number first on, as a workload takes them.
func (b *batches) newFeed(ctx context.Context, w *executor.Workload, first int) (*feed, error) {
	l, err := b.loader(ctx, w, data.Train, first)
	if err != nil {
		return nil, err
	}
	wants := func(int) (bool, bool) { return true, true }
	return &feed{wants: wants, from: l, next: first, held: map[int]*held{}, fresh: func() *held { return b.newHeld(w) }}, nil
}

// Early implements pipeline.EarlyFeed.
func (f *feed) Early(batch int) bool { return f.early != nil && f.early(batch) }

// Images implements pipeline.Feed.
func (f *feed) Images(batch int, dst []float32) error {
	return f.take(batch, func(h *held) {
		copy(dst, h.values)
		h.shown = true
	})
}

// Pixels implements pipeline.PixelFeed. A run asks for the batch behind its last one: behind that of the last step no batch is made.
func (f *feed) Pixels(batch int, dst []uint8) error {
	if f.end > 0 && batch >= f.end {
		return io.EOF
	}
	return f.take(batch, func(h *held) {
		copy(dst, h.pixels)
		h.shown = true
	})
}

// Labels implements pipeline.Feed.
func (f *feed) Labels(batch int, dst []int32) error {
	return f.take(batch, func(h *held) {
		copy(dst, h.labels)
		h.told = true
	})
}

// take lets a function copy from a batch what it was asked for, and gives the batch back when both ends have had it.
func (f *feed) take(batch int, from func(*held)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, err := f.get(batch)
	if err != nil {
		return err
	}
	from(h)
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
		if _, _, err := f.from.next(h); err != nil {
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
	from   loader
	labels int // of a batch
	sheets []sheet
}

type sheet struct {
	fresh  int
	labels []int32
}

// Images implements pipeline.Feed.
func (x *examiner) Images(_ int, dst []float32) error { return x.add(&held{values: dst}) }

// Pixels implements pipeline.PixelFeed.
func (x *examiner) Pixels(_ int, dst []uint8) error { return x.add(&held{pixels: dst}) }

// add puts the images of the next batch where there is room, and keeps its labels.
func (x *examiner) add(h *held) error {
	h.labels = make([]int32, x.labels)
	fresh, labels, err := x.from.next(h)
	if errors.Is(err, io.EOF) {
		panic("BUG: an evaluation asks for more batches than there are")
	}
	x.sheets = append(x.sheets, sheet{fresh, labels})
	return err
}

// Labels implements pipeline.Feed; an evaluation asks for none.
func (x *examiner) Labels(int, []int32) error { return nil }
