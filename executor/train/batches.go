package train

import (
	"context"
	"time"

	"plimsoll/executor"
	"plimsoll/models/data"
)

// feeds are the batches of a data set, of values or of bytes.
type feeds[T data.Element] struct {
	train, test *data.Batcher[T]
	pairs       []T // room for the images of a batch of pairs; nil for models of one branch
}

// batches are the batches of a job: of the values of its data set and, where the images have a palette, of their bytes.
type batches struct {
	Set            data.Dataset
	size           int // samples
	feeds[float32]     // of values
	raw            feeds[uint8]
}

// newBatches cuts a data set into batches of a size.
func newBatches(set data.Dataset, size int, seed uint64) (b batches, err error) {
	b.Set, b.size = set, size
	b.feeds, err = newFeeds(set, size, seed, data.NewBatcher)
	if err == nil && data.Palette(set) != nil {
		b.raw, err = newFeeds(set.(data.Pictures), size, seed, data.NewByteBatcher)
	}
	return b, err
}

func newFeeds[T data.Element, S any](set S, size int, seed uint64, of func(S, data.Split, int, uint64) (*data.Batcher[T], error)) (f feeds[T], err error) {
	if f.train, err = of(set, data.Train, size, seed); err == nil {
		f.test, err = of(set, data.Test, size, seed)
	}
	return f, err
}

// labels returns how many labels a batch has.
func (b *batches) labels() int { return b.size * data.Labels(b.Set) }

// pixels returns the values of a batch's images.
func (b *batches) pixels() int {
	s := b.Set.Shape()
	return s[0] * s[1] * s[2] * b.size
}

// makeRoom allocates what pairs are read into, for batches that the model has accepted.
func (b *batches) makeRoom() {
	b.pairs, b.raw.pairs = make([]float32, b.pixels()), make([]uint8, b.pixels())
}

// separate turns a batch of pairs, each one image below the other, into the images of one branch and then those of the
// other.
func (f *feeds[T]) separate(images []T, batch int) {
	copy(f.pairs, images)
	size := len(f.pairs) / max(2*batch, 1)
	for i := range len(f.pairs) / max(size, 1) {
		copy(images[(i/2+i%2*batch)*size:], f.pairs[i*size:(i+1)*size])
	}
}

// room has room for a batch: for its images, as values or as bytes, and for its labels.
type room interface {
	Images() ([]float32, error)
	Pixels() ([]uint8, error)
	Labels() ([]int32, error)
}

// load puts the training batch of a step, as values, where there is room.
func (b *batches) load(to room, step int) error {
	images, err := to.Images()
	if err != nil {
		return err
	}
	labels, err := to.Labels()
	if err != nil {
		return err
	}
	_, err = b.train.Fill(int64(step), images, labels)
	b.separate(images, b.size)
	return err
}

// loader gives the batches of a split, made in the background.
type loader interface {
	// next puts the next batch, the images of one branch behind those of the other, where there is room. It returns how many of its samples
	// count, and all labels.
	next(to room) (fresh int, labels []int32, err error)
	Waited() time.Duration
	Close()
}

// loading is a loader of values or of bytes.
type loading[T data.Element] struct {
	*data.Loader[T]
	from     *feeds[T]
	batch    int
	imagesOf func(room) ([]T, error)
}

// loader starts making the batches of a split from batch number first on, as a workload takes them. The caller closes it.
func (b *batches) loader(ctx context.Context, w *executor.Workload, split data.Split, first int) (loader, error) {
	if w.StagedBytes() > 0 {
		return newLoading(ctx, b.size, &b.raw, room.Pixels, split, first)
	}
	return newLoading(ctx, b.size, &b.feeds, room.Images, split, first)
}

func newLoading[T data.Element](ctx context.Context, size int, from *feeds[T], imagesOf func(room) ([]T, error), split data.Split, first int) (loader, error) {
	batches := from.train
	if split == data.Test {
		batches = from.test
	}
	l, err := data.NewLoader(ctx, batches, int64(first), 0, 0)
	if err != nil {
		return nil, err
	}
	return &loading[T]{l, from, size, imagesOf}, nil
}

func (l *loading[T]) next(to room) (fresh int, labels []int32, err error) {
	images, err := l.imagesOf(to)
	if err != nil {
		return 0, nil, err
	}
	if labels, err = to.Labels(); err != nil {
		return 0, nil, err
	}
	fresh, err = l.Next(images, labels)
	l.from.separate(images, l.batch)
	return fresh, labels, err
}
