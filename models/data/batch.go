package data

import "fmt"

// Batcher cuts a split into batches of a fixed size, of values or of bytes. Batch number step is a pure function of the data set, the
// seed and step, so that a run resumes at any step. It is immutable and safe for concurrent use.
//
// Training batches follow a shuffled order, another one each epoch; one that reaches the end of an epoch goes on
// with the next. Test batches follow the stored order.
type Batcher[T Element] struct {
	make   func(split Split, index int64, dst []T, labels []int32) error
	split  Split
	batch  int
	seed   uint64
	epoch  int64 // distinct samples of the split; 0 when there is no end of them
	pixel  int   // elements of one image
	labels int   // of one sample
}

// NewBatcher returns the batches of a split; the seed orders the training samples. Errors: ErrOption.
func NewBatcher(set Dataset, split Split, batch int, seed uint64) (*Batcher[float32], error) {
	if text, ok := set.(Sequences); ok {
		return batcherOf(set, text.FillTokens, split, batch, seed)
	}
	if masks, ok := set.(Masks); ok {
		return batcherOf(set, masks.FillMask, split, batch, seed)
	}
	if targets, ok := set.(Targets); ok {
		return batcherOf(set, targets.FillTargets, split, batch, seed)
	}
	return batcherOf(set, labeled(set.Fill), split, batch, seed)
}

// NewByteBatcher is NewBatcher of what NewBatcher's batches are before they are normalized.
func NewByteBatcher(set Pictures, split Split, batch int, seed uint64) (*Batcher[uint8], error) {
	return batcherOf(set, labeled(set.FillBytes), split, batch, seed)
}

// labeled returns a filler of images and their labels.
func labeled[T Element](fill func(Split, int64, []T) (int, error)) func(Split, int64, []T, []int32) error {
	return func(split Split, index int64, dst []T, labels []int32) error {
		label, err := fill(split, index, dst)
		labels[0] = int32(label)
		return err
	}
}

func batcherOf[T Element](set Dataset, fill func(Split, int64, []T, []int32) error, split Split, batch int, seed uint64) (*Batcher[T], error) {
	if batch < 1 {
		return nil, fmt.Errorf("%w: batch %d of data set %s; a batch has at least 1 sample", ErrOption, batch, set.Name())
	}
	b := &Batcher[T]{make: fill, split: split, batch: batch, seed: seed, epoch: set.TestLen(), labels: Labels(set)}
	if split == Train {
		b.epoch = set.TrainLen()
	}
	s := set.Shape()
	b.pixel = s[0] * s[1] * s[2]
	return b, nil
}

// Steps returns the number of batches that cover the split once, the last one perhaps in part; 0 when there is
// no end of samples.
func (b *Batcher[T]) Steps() int64 {
	return (b.epoch + int64(b.batch) - 1) / int64(b.batch)
}

// Fill writes batch number step, counted from 0: images has batch*height*width*channels elements, labels has
// batch, or of text batch*tokens, of masks batch*height*width. It allocates no more than the data set does. Errors: that of the first sample that has one.
//
// It returns how many samples, from the front, count in a pass over the split. All do, except in the last test
// batch, which is filled up with samples from the start of the split.
func (b *Batcher[T]) Fill(step int64, images []T, labels []int32) (fresh int, err error) {
	b.check(step, images, labels)
	for i := range b.batch {
		if err := b.fill(step, i, images, labels); err != nil {
			return 0, err
		}
	}
	return b.fresh(step), nil
}

func (b *Batcher[T]) check(step int64, images []T, labels []int32) {
	if len(images) != b.batch*b.pixel || len(labels) != b.batch*b.labels || step < 0 {
		panic(fmt.Sprintf("BUG: data: batch %d of %d samples into %d elements and %d labels", step, b.batch, len(images), len(labels)))
	}
}

// fill writes one sample of a batch to its place.
func (b *Batcher[T]) fill(step int64, i int, images []T, labels []int32) error {
	return b.make(b.split, b.index(step*int64(b.batch)+int64(i)), images[i*b.pixel:(i+1)*b.pixel], labels[i*b.labels:(i+1)*b.labels])
}

// fresh returns how many samples of a batch count.
func (b *Batcher[T]) fresh(step int64) int {
	if b.split == Train {
		return b.batch
	}
	return int(max(0, min(int64(b.batch), b.epoch-step*int64(b.batch))))
}

// index returns the sample at a position of the order.
func (b *Batcher[T]) index(position int64) int64 {
	if b.split == Test || b.epoch == 0 {
		return position
	}
	epoch, place := position/b.epoch, position%b.epoch
	order := newPermutation(uint64(b.epoch), hash(b.seed, orderKey, uint64(epoch)))
	return epoch*b.epoch + int64(order.at(uint64(place)))
}
