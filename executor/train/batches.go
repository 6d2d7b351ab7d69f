package train

import (
	"context"
	"time"

	"plimsoll/executor"
	"plimsoll/models"
	"plimsoll/models/data"
)

// feeds are the batches of a job, of values or of bytes.
type feeds[T data.Element] struct {
	train, test *data.Batcher[T]
	pairs       []T // room for the images of a batch of pairs; nil for models of one branch
}

// openBatches cuts the data set into batches: of values, and of bytes where its images are such.
func (j *Job) openBatches() (err error) {
	if j.train, err = data.NewBatcher(j.Set, data.Train, j.Config.Batch, j.Seed); err != nil {
		return err
	}
	if j.test, err = data.NewBatcher(j.Set, data.Test, j.Config.Batch, j.Seed); err != nil || data.Palette(j.Set) == nil {
		return err
	}
	if j.raw.train, err = data.NewByteBatcher(j.Set.(data.Pictures), data.Train, j.Config.Batch, j.Seed); err != nil {
		return err
	}
	j.raw.test, err = data.NewByteBatcher(j.Set.(data.Pictures), data.Test, j.Config.Batch, j.Seed)
	return err
}

// makeRoom allocates what pairs are read into, for a batch that the model has accepted.
func (j *Job) makeRoom() error {
	if s := j.Set.Shape(); models.OfPairs(j.Model) {
		n := j.Config.Batch * s[0] * s[1] * s[2]
		j.pairs, j.raw.pairs = make([]float32, n), make([]uint8, n)
	}
	return nil
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

func loadInto[T data.Element](to room, from *feeds[T], imagesOf func(room) ([]T, error), step, batch int) error {
	images, err := imagesOf(to)
	if err != nil {
		return err
	}
	labels, err := to.Labels()
	if err != nil {
		return err
	}
	_, err = from.train.Fill(int64(step), images, labels)
	from.separate(images, batch)
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
func (j *Job) loader(ctx context.Context, w *executor.Workload, split data.Split, first int) (loader, error) {
	if w.StagedBytes() > 0 {
		return newLoading(ctx, j, &j.raw, room.Pixels, split, first)
	}
	return newLoading(ctx, j, &j.feeds, room.Images, split, first)
}

func newLoading[T data.Element](ctx context.Context, j *Job, from *feeds[T], imagesOf func(room) ([]T, error), split data.Split, first int) (loader, error) {
	batches := from.train
	if split == data.Test {
		batches = from.test
	}
	l, err := data.NewLoader(ctx, batches, int64(first), 0, 0)
	if err != nil {
		return nil, err
	}
	return &loading[T]{l, from, j.Config.Batch, imagesOf}, nil
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
