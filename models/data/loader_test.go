package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// loader starts a loader that the test closes.
func loader(t testing.TB, b *Batcher[float32], first int64, workers, depth int) *Loader[float32] {
	t.Helper()
	l, err := NewLoader(t.Context(), b, first, workers, depth)
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

// same compares n batches of a loader with those of its batcher.
func same(t *testing.T, b *Batcher[float32], first, n int64, workers, depth int) {
	t.Helper()
	l := loader(t, b, first, workers, depth)
	images, want := make([]float32, b.batch*b.pixel), make([]float32, b.batch*b.pixel)
	labels, wantLabels := make([]int32, b.batch), make([]int32, b.batch)
	for step := first; step < first+n; step++ {
		fresh, err := l.Next(images, labels)
		must(t, err)
		wantFresh, err := b.Fill(step, want, wantLabels)
		must(t, err)
		if fresh != wantFresh || !slices.Equal(labels, wantLabels) || !slices.Equal(images, want) {
			t.Fatalf("%d workers, %d ahead: batch %d differs", workers, depth, step)
		}
	}
}

// A loader gives the batcher's batches, from any step, whatever its workers and its depth.
func TestLoaderIsTheBatcher(t *testing.T) {
	t.Parallel()
	runs := 0
	for _, workers := range []int{0, 1, 2, 5, 16} {
		for _, depth := range []int{0, 1, 2, 7} {
			for _, first := range []int64{0, 13} {
				same(t, newBatcher(t, ledger{train: 50, test: 1}, Train, 6, 3), first, 40, workers, depth)
				same(t, newBatcher(t, ledger{test: 1}, Train, 1, 3), first, 40, workers, depth)
				runs += 2
			}
		}
	}
	root, _ := spoilt(t)
	same(t, newBatcher(t, open(t, "folder:"+root, Options{Seed: 3, Image: 16, SkipBad: true}), Train, 8, 3), 2, 20, 4, 3)
	eachFiles(t, func(t *testing.T, name string) {
		same(t, newBatcher(t, open(t, name, Options{Seed: 3, Image: 16}), Train, 8, 3), 0, 12, 3, 2)
	})
	if runs != 80 {
		t.Errorf("%d runs", runs)
	}
}

// A test pass ends after its last batch, in which the samples that fill it up do not count.
func TestLoaderTestPass(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, ledger{test: 23}, Test, 5, 1)
	for _, first := range []int64{0, 3, 5, 9} {
		l := loader(t, b, first, 3, 2)
		images, labels := make([]float32, 10), make([]int32, 5)
		seen := 0
		for {
			fresh, err := l.Next(images, labels)
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			seen += fresh
		}
		if want := max(0, 23-5*int(first)); seen != want {
			t.Errorf("from batch %d on there are %d samples, want %d", first, seen, want)
		}
	}
}

// faulty is a data set with errors at some samples; it waits for the gate before each sample, if there is one.
type faulty struct {
	ledger
	bad  map[int64]error
	gate chan struct{}
}

func (f faulty) Fill(split Split, index int64, dst []float32) (int, error) {
	if f.gate != nil {
		<-f.gate
	}
	if err := f.bad[index]; err != nil {
		return 0, err
	}
	return f.ledger.Fill(split, index, dst)
}

// The error of a batch is that of its first bad sample, comes when the batch is asked for, and stays.
func TestLoaderErrors(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	set := faulty{ledger: ledger{test: 1}, bad: map[int64]error{22: first, 23: second, 31: second}}
	b := newBatcher(t, set, Train, 5, 1)
	images, labels := make([]float32, 10), make([]int32, 5)
	for range 30 {
		l := loader(t, b, 0, 8, 4)
		for step := range 4 {
			if _, err := l.Next(images, labels); err != nil {
				t.Fatalf("batch %d: %v", step, err)
			}
		}
		for range 2 {
			if _, err := l.Next(images, labels); !errors.Is(err, first) {
				t.Fatalf("batch 4: %v, want the first error", err)
			}
		}
		l.Close()
	}
	if _, err := b.Fill(4, images, labels); !errors.Is(err, first) {
		t.Errorf("the batcher: %v", err)
	}
}

// A loader makes as many batches ahead as it has room for, and no more.
func TestLoaderIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := faulty{ledger: ledger{test: 1}, gate: make(chan struct{})}
		l := loader(t, newBatcher(t, set, Train, 4, 1), 0, 3, 2)
		images, labels := make([]float32, 8), make([]int32, 4)
		sent := 0
		for taken := range 5 {
			for ; sent < 4*(2+taken); sent++ {
				set.gate <- struct{}{}
			}
			synctest.Wait()
			select {
			case set.gate <- struct{}{}:
				t.Fatalf("with %d batches taken, more than %d samples are made", taken, sent)
			default:
			}
			_, err := l.Next(images, labels)
			must(t, err)
		}
		close(set.gate)
	})
}

// The time that Next waits is counted, and only that. The clock is one that passes while everything waits.
func TestLoaderWaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pause, work = 20 * time.Millisecond, time.Second
		set := faulty{ledger: ledger{test: 1}, gate: make(chan struct{})}
		l := loader(t, newBatcher(t, set, Train, 4, 1), 0, 1, 1)
		images, labels := make([]float32, 8), make([]int32, 4)
		if l.Waited() != 0 {
			t.Errorf("%v before the first batch", l.Waited())
		}
		go func() {
			time.Sleep(pause)
			close(set.gate)
		}()
		for range 3 {
			_, err := l.Next(images, labels)
			must(t, err)
			time.Sleep(work) // meanwhile the next batch is made
		}
		if l.Waited() != pause {
			t.Errorf("%v, want %v", l.Waited(), pause)
		}
	})
}

// The end of the context and Close both end a Next that waits, with their reason, and every worker.
func TestLoaderEnds(t *testing.T) {
	t.Parallel()
	reason := errors.New("enough")
	for name, c := range map[string]struct {
		end  func(l *Loader[float32], cancel context.CancelCauseFunc)
		want error
	}{
		"cancel":       {func(_ *Loader[float32], cancel context.CancelCauseFunc) { cancel(reason) }, reason},
		"plain cancel": {func(_ *Loader[float32], cancel context.CancelCauseFunc) { cancel(nil) }, context.Canceled},
		"close":        {func(l *Loader[float32], _ context.CancelCauseFunc) { l.finish(ErrClosed) }, ErrClosed},
	} {
		for range 20 {
			ctx, cancel := context.WithCancelCause(t.Context())
			set := faulty{ledger: ledger{test: 1}, gate: make(chan struct{})}
			l, err := NewLoader(ctx, newBatcher(t, set, Train, 4, 1), 0, 3, 2)
			must(t, err)
			go c.end(l, cancel)
			if _, err := l.Next(make([]float32, 8), make([]int32, 4)); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			close(set.gate) // the samples that are being made are finished
			l.Close()
			l.Close()
			if _, err := l.Next(make([]float32, 8), make([]int32, 4)); !errors.Is(err, c.want) {
				t.Errorf("%s, after Close: %v", name, err)
			}
			cancel(nil)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := NewLoader(ctx, newBatcher(t, ledger{test: 1}, Train, 4, 1), 0, 2, 2)
	must(t, err)
	defer l.Close()
	for { // a context that has ended may be seen a little later
		if _, err := l.Next(make([]float32, 8), make([]int32, 4)); err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			return
		}
	}
}

func TestLoaderOptions(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, ledger{test: 1}, Train, 4, 1)
	for _, o := range [][3]int{{-1, 1, 1}, {0, -1, 1}, {0, 1, -1}, {0, maxScratches + 1, 1}} {
		if l, err := NewLoader(t.Context(), b, int64(o[0]), o[1], o[2]); l != nil || !errors.Is(err, ErrOption) {
			t.Errorf("%v: %v, %v", o, l, err)
		}
	}
	defer func() {
		if text := fmt.Sprint(recover()); len(text) < 5 || text[:5] != "BUG: " {
			t.Errorf("slices of a wrong size: %s", text)
		}
	}()
	_, _ = loader(t, b, 0, 1, 1).Next(make([]float32, 7), make([]int32, 4))
}

// In steady state a loader does not allocate, nor do its workers.
func TestLoaderNoAllocation(t *testing.T) {
	// Serial: it counts allocations.
	l := loader(t, newBatcher(t, small(t, "digits"), Train, 16, 1), 0, 2, 2)
	images, labels := make([]float32, 16*16*16), make([]int32, 16)
	if n := testing.AllocsPerRun(50, func() { _, _ = l.Next(images, labels) }); n != 0 {
		t.Errorf("a batch makes %v allocations", n)
	}
}
