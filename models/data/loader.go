package data

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"plimsoll/internal/cores"
)

// Loader makes the batches of a Batcher in the background, ahead of the step that needs them. Its batches equal those of
// Batcher.Fill for the same steps, whatever the number and the speed of workers. A worker affects when a sample is made,
// never which.
//
// Invariants, under mu:
//  1. head*batch <= next <= (head+depth)*batch: the samples handed out belong to the batches in the ring.
//  2. slot step%depth belongs to batch step while head <= step < head+depth; its left counts the samples not yet made.
//  3. Only Next advances head, after it has copied the batch.
type Loader[T Element] struct {
	b     *Batcher[T]
	ring  []slot[T]
	limit int64 // first batch that is not made; the end of a test pass

	mu     sync.Mutex
	work   sync.Cond // there is room, or the end
	ready  sync.Cond // a batch is complete, or the end
	next   int64     // position of the sample that is handed out next, from the first of batch 0
	head   int64     // the batch that Next gives next
	end    error     // why nothing is made any more
	waited time.Duration

	group sync.WaitGroup
	stop  func() bool // ends the watch of the context
}

// slot holds one batch while it is made.
type slot[T Element] struct {
	images []T
	labels []int32
	left   int
	failed int // the first sample with an error, when err is not nil
	err    error
}

// NewLoader starts making the batches of b from batch number first on, with a number of workers and a ring of depth
// batches. If workers is 0, each processor has one; if depth is 0, the ring has 2 batches. It stops when ctx ends. The
// caller closes it. Errors: ErrOption.
//
// The ring takes depth times the memory of one batch; a worker takes a picture's.
func NewLoader[T Element](ctx context.Context, b *Batcher[T], first int64, workers, depth int) (*Loader[T], error) {
	if first < 0 || workers < 0 || depth < 0 || workers > maxScratches {
		return nil, fmt.Errorf("%w: a loader from batch %d with %d workers and %d batches ahead; none may be negative, nor workers over %d",
			ErrOption, first, workers, depth, maxScratches)
	}
	if workers == 0 {
		workers = cores.Count()
	}
	if depth == 0 {
		depth = 2
	}
	l := newLoader(b, first, depth)
	l.stop = context.AfterFunc(ctx, func() { l.finish(context.Cause(ctx)) })
	for range workers {
		l.group.Go(l.run)
	}
	return l, nil
}

func newLoader[T Element](b *Batcher[T], first int64, depth int) *Loader[T] {
	l := &Loader[T]{b: b, ring: make([]slot[T], depth), head: first, next: first * int64(b.batch), limit: 1 << 62 / int64(b.batch)}
	if b.split == Test {
		l.limit = b.Steps()
	}
	l.work.L, l.ready.L = &l.mu, &l.mu
	for i := range l.ring {
		l.ring[i] = slot[T]{images: make([]T, b.batch*b.pixel), labels: make([]int32, b.batch*b.labels), left: b.batch}
	}
	return l
}

// run is a worker.
func (l *Loader[T]) run() {
	for {
		position, ok := l.take()
		if !ok {
			return
		}
		step, i := position/int64(l.b.batch), int(position%int64(l.b.batch))
		s := l.slot(step)
		l.done(s, i, l.b.fill(step, i, s.images, s.labels))
	}
}

// take waits for room in the ring and hands out a sample; false at the end.
func (l *Loader[T]) take() (position int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.end == nil && l.next >= min(l.head+int64(len(l.ring)), l.limit)*int64(l.b.batch) {
		l.work.Wait()
	}
	if l.end != nil {
		return 0, false
	}
	l.next++
	return l.next - 1, true
}

func (l *Loader[T]) slot(step int64) *slot[T] { return &l.ring[step%int64(len(l.ring))] }

// done counts a sample that was made, or keeps its error. Of the errors of a batch the first sample's is kept, as if the
// batch had been made in order.
func (l *Loader[T]) done(s *slot[T], i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && (s.err == nil || i < s.failed) {
		s.err, s.failed = err, i
	}
	if s.left--; s.left == 0 {
		l.ready.Broadcast()
	}
}

// Next copies the next batch, waiting until it is complete: images has batch*height*width*channels elements, labels has
// as many as Batcher.Fill's. It returns how many samples count, as Batcher.Fill does. It does not allocate. One goroutine calls it.
//
// Errors: that of the batch's first bad sample, again at every further call; the cause of the context's end; ErrClosed;
// io.EOF after the last batch of a test split.
func (l *Loader[T]) Next(images []T, labels []int32) (fresh int, err error) {
	l.b.check(l.head, images, labels)
	s, err := l.wait()
	if err != nil {
		return 0, err
	}
	copy(images, s.images)
	copy(labels, s.labels)
	fresh = l.b.fresh(l.head)
	l.release(s)
	return fresh, nil
}

// wait returns the complete batch at the head.
func (l *Loader[T]) wait() (*slot[T], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end == nil && l.head >= l.limit {
		return nil, io.EOF
	}
	s := l.slot(l.head)
	if l.end == nil && s.left > 0 {
		start := time.Now()
		for l.end == nil && s.left > 0 {
			l.ready.Wait()
		}
		l.waited += time.Since(start)
	}
	if l.end != nil {
		return nil, l.end
	}
	return s, s.err
}

// release gives the slot of the head to the batch that follows the ring.
func (l *Loader[T]) release(s *slot[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.left, s.err = l.b.batch, nil
	l.head++
	l.work.Broadcast()
}

// Waited returns how long Next waited for batches so far, altogether: the time that making them cost the steps.
func (l *Loader[T]) Waited() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waited
}

// Close stops the workers and waits for them. It may be called twice, and while Next waits.
func (l *Loader[T]) Close() {
	l.stop()
	l.finish(ErrClosed)
	l.group.Wait()
}

// finish ends everything; the first reason stays.
func (l *Loader[T]) finish(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end == nil {
		l.end = reason
	}
	l.work.Broadcast()
	l.ready.Broadcast()
}
