package measure

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

// profiled profiles a model within a limit on devices of their own.
func profiled(t testing.TB, r rig, limit int64, opt ProfileOptions) (*chain.Chain, error) {
	t.Helper()
	open := func() (executor.Target, error) {
		fresh := openRig(t, testModel(t), host.Config{Memory: limit, HostMemory: testMemory}, nil)
		return fresh.on, nil
	}
	return Profile(t.Context(), r.Workload, open, limit, fill, opt)
}

// smallest returns an arena in which every layer can be measured, and not one byte less.
func smallest(t testing.TB, w *executor.Workload, lib kernels.Library, halves bool) int64 {
	t.Helper()
	low, high := int64(0), int64(testMemory)
	for low+1 < high {
		middle := (low + high) / 2
		if _, err := Exercises(w, lib, middle, halves); err == nil {
			high = middle
		} else if small := (*WindowError)(nil); errors.As(err, &small) && small.Needed > middle && small.Limit == middle {
			low = middle
		} else {
			t.Fatal(err)
		}
	}
	return high
}

// Exercises contain every op of every layer, whatever the limit, which they keep; where all fits they are store-all and
// checkpoint-all.
func TestExercisesCoverTheChain(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	whole, err := Exercises(r.Workload, r.on.Library, testMemory, false)
	must(t, err)
	if len(whole) != 2 || whole[0].Workload != r.Workload || whole[0].Seq.String() != r.StoreAll().String() {
		t.Errorf("%d exercises where all fits", len(whole))
	}
	least, windows := smallest(t, r.Workload, r.on.Library, false), 0
	_, err = Exercises(r.Workload, r.on.Library, 1, false)
	if small := (*WindowError)(nil); !errors.As(err, &small) || small.Needed != least || small.Limit != 1 {
		t.Errorf("in 1 B: %v; the layer that needs most needs %d", err, least)
	}
	for limit := least; limit < whole[0].Extent; limit += whole[0].Extent / 16 {
		all, err := Exercises(r.Workload, r.on.Library, limit, false)
		must(t, err)
		ops, next := map[schedule.Op]int{}, 0
		for _, x := range all {
			if x.Extent > limit {
				t.Errorf("limit %d: an exercise of layer %d takes %d", limit, x.first, x.Extent)
			}
			for _, op := range x.Seq {
				if op.Layer <= x.count {
					ops[schedule.Op{Kind: op.Kind, Layer: op.Layer + x.first}]++
				}
			}
			if x.first == next {
				next, windows = x.first+x.count, windows+1
			}
		}
		for l := 1; l <= len(r.Layers); l++ {
			for _, kind := range []schedule.Kind{schedule.ForwardAll, schedule.ForwardCheckpoint, schedule.Backward} {
				if n := ops[schedule.Op{Kind: kind, Layer: l}]; n == 0 && (l < len(r.Layers) || kind != schedule.ForwardCheckpoint) {
					t.Errorf("limit %d: no %v of layer %d", limit, kind, l)
				}
			}
		}
	}
	if windows < 15 {
		t.Errorf("%d windows at all limits together", windows)
	}
}

// In the smallest arena, the model cannot be trained without recomputation. A profile there measures every field that a profile in a large
// arena measures, and no device gives it a byte more.
func TestAProfileKeepsItsLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, testModel(t), host.Config{}, nil)
	for _, halves := range []bool{false, true} {
		limit := smallest(t, r.Workload, r.on.Library, halves)
		all, err := r.Extent(r.StoreAll())
		must(t, err)
		if limit > all*3/4 {
			t.Fatalf("the smallest limit is %d, store-all's %d: a poor test", limit, all)
		}
		done, want := 0, 0
		c, err := profiled(t, r, limit, ProfileOptions{Warmup: 1, Repeats: 2, Halves: halves, Enough: 1, Progress: func(d, total int) {
			if done++; d != done {
				t.Errorf("step %d is called %d of %d", done, d, total)
			}
			want = total
		}})
		must(t, err)
		if done != want {
			t.Errorf("progress ends at %d of %d", done, want)
		}
		for i := range c.Layers {
			l := &c.Layers[i]
			if !(l.ForwardS > 0 && l.BackwardS > 0) || (l.DiscardForwardS == nil) != (i == len(c.Layers)-1) || (l.BackwardInputS != nil) != halves {
				t.Errorf("layer %d (%s) is not measured: %+v", i+1, l.Name, l)
			}
		}
		if !(executor.UpdateSeconds(c) > 0 && c.Bandwidth > 0) {
			t.Errorf("update %v s, link %v B/s", executor.UpdateSeconds(c), c.Bandwidth)
		}
		_, err = profiled(t, r, limit-1, ProfileOptions{Repeats: 1, Halves: halves})
		if small := (*WindowError)(nil); !errors.As(err, &small) || small.Needed != limit {
			t.Errorf("one byte less: %v", err)
		}
	}
}

// norm returns the norm of the gradients of the latest step.
func (t *OpTimer) norm(tb testing.TB) float64 {
	tb.Helper()
	b := make([]byte, t.Static.Norm.Bytes)
	must(tb, t.device.(runtime.Inspector).Peek(t.Static.Norm, b))
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// Windows of every kind of activation have heads: packed ones of models with skips, flat ones, one pixel, one channel.
func TestWindowsOfTheZoo(t *testing.T) {
	t.Parallel()
	steps := 0
	for _, name := range []string{"unet", "densenet121", "vgg16", "inception_v3", "resnet20", "mlp", "tiny", "amoebanet", "siamese"} {
		c := models.Config{Batch: 4, Image: 32, Classes: 7}
		switch name {
		case "inception_v3":
			c.Image = 75
		case "siamese":
			c.Classes = 2
		}
		m, err := models.New(name, c)
		must(t, err)
		r := newRig(t, m, host.Config{Memory: 1 << 30, HostMemory: 1 << 30}, nil)
		c2 := cutter{r.Workload, r.on.Library, 0, false}
		for first := 0; first < len(r.Layers); first += 1 + len(r.Layers)/8 { // 18 of siamese joins its branches
			all, err := c2.exercises(first, 1)
			must(t, err)
			dev := openRig(t, m, host.Config{Memory: 1 << 30, HostMemory: 1 << 30}, nil)
			timer, err := all[0].Start(dev.on, 7, fill)
			must(t, err)
			times, err := timer.Step()
			if must(t, err); !(times.Sequence > 0) || slices.ContainsFunc(times.Ops, func(s float64) bool { return !(s >= 0) }) {
				t.Errorf("%s, layer %d: %+v", name, first+1, times)
			}
			if norm := timer.norm(t); r.Layers[first].GradBytes > 0 && !(norm > 0 && norm < 1e9) {
				t.Errorf("%s, layer %d: the norm of the gradients is %v", name, first+1, norm)
			}
			must(t, dev.dev.Close())
			steps++
		}
	}
	if steps < 55 {
		t.Errorf("%d windows", steps)
	}
}
