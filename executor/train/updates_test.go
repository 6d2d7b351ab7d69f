package train

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/kernels"
)

// stateOf reads the tensors of the checkpoint of a step, a file or a folder of shards.
func stateOf(t *testing.T, d *checkpoint.Dir, step int64) map[string][]float32 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.Folder(step), "*.safetensors"))
	must(t, err)
	if len(files) == 0 {
		files = []string{d.Path(step)}
	}
	all := map[string][]float32{}
	for _, path := range files {
		f, err := safetensors.Open(path)
		must(t, err)
		for _, x := range f.Tensors() {
			if x.DType != safetensors.F32 {
				continue
			}
			n := 1
			for _, size := range x.Shape {
				n *= size
			}
			all[x.Name] = make([]float32, n)
			must(t, f.Float32(x.Name, all[x.Name]))
		}
		must(t, f.Close())
	}
	return all
}

// wantAdam checks that one update changes the weights as Adam's update number k does, counted from 1. The moments after the update are
// given (Kingma and Ba 2015, algorithm 1).
func wantAdam(t *testing.T, what string, a kernels.Adam, lr float64, k int, before, after map[string][]float32) {
	t.Helper()
	weights := 0
	for name, m := range after {
		name, moment := strings.CutPrefix(name, "optimizer.state0.")
		if !moment {
			continue
		}
		v := after["optimizer.state1."+name]
		far, moved := 0.0, 0.0
		for i, was := range before[name] {
			first := float64(m[i]) / (1 - math.Pow(float64(a.Beta1), float64(k)))
			second := float64(v[i]) / (1 - math.Pow(float64(a.Beta2), float64(k)))
			by := lr * first / (math.Sqrt(second) + float64(a.Epsilon))
			far, moved = max(far, math.Abs(float64(was)-float64(after[name][i])-by)), max(moved, math.Abs(by))
		}
		if weights++; !(far <= 1e-4*moved) || moved == 0 {
			t.Errorf("%s: update %d of %s is off by %.2g of the largest, %g", what, k, name, far/moved, moved)
		}
	}
	if weights < 5 {
		t.Errorf("%s: %d weights", what, weights)
	}
}

// Adam's bias correction counts updates, whatever number of steps each of them took: a run goes on from one device to groups of
// minibatches, to other groups, and back.
// Only this test finds a bias correction that counts steps after a resume under another number of steps an update.
func TestAdamCountsUpdatesAcrossGroups(t *testing.T) {
	t.Parallel()
	adam := kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	saves := Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 99)}
	step, updates, groups := 0, 0, map[int]bool{}
	for _, devices := range []int{1, 4, 2, 1} {
		s := tiny(8)
		s.Update, s.Kernels.Threads = adam, 1
		if devices > 1 {
			s.Devices, s.Microbatches = fmt.Sprintf("cpu*%d", devices), 1
		}
		for _, more := range []int{5, 1} { // updates, of which the last one is looked at
			j, unit := opened(t, s), 1
			var r *Run
			if devices == 1 {
				r = planned(t, j, 1)
			} else {
				r = pipeRun(t, j, "madpipe", devices, 1)
				unit = r.Plan.unit()
			}
			groups[unit] = true
			r.Rate, r.Saves, r.Steps = Rate{Peak: 0.002}, saves, step+more*unit
			r.Saves.Every = more * unit
			if step > 0 {
				c, _, err := saves.Dir.Latest()
				must(t, err)
				_, err = r.Resume(c)
				must(t, err)
				t.Cleanup(func() { must(t, c.Close()) })
			}
			done(t, r)
			before := step
			step, updates = step+more*unit, updates+more
			if more == 1 {
				what := fmt.Sprintf("%d devices, %d steps an update", devices, unit)
				wantAdam(t, what, adam, r.Rate.Peak, updates, stateOf(t, saves.Dir, int64(before)), stateOf(t, saves.Dir, int64(step)))
			}
		}
	}
	if len(groups) < 3 {
		t.Errorf("updates took %v steps, want three kinds", groups)
	}
}

// A checkpoint without update counts is read as if every step had updated the weights. If the resumed run makes one update from a group of
// steps, each such group counts as one update. A checkpoint that counts other layers is refused.
func TestCheckpointsWithoutCounts(t *testing.T) {
	t.Parallel()
	s := tiny(8)
	s.Update, s.Kernels.Threads = kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, 1
	open := func(devices int) *Run {
		if devices == 1 {
			return planned(t, opened(t, s), 4)
		}
		s := s
		s.Devices, s.Microbatches = fmt.Sprintf("cpu*%d", devices), 1
		r := pipeRun(t, opened(t, s), "madpipe", devices, 1)
		r.Steps = 4 * r.Plan.unit()
		return r
	}
	for _, devices := range []int{1, 3} {
		first := open(devices)
		unit := first.Plan.unit()
		first.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 2 * unit}
		want := done(t, first).WeightsSHA256
		c, err := checkpoint.Open(first.Saves.Dir.Path(int64(2 * unit)))
		if devices > 1 {
			c, err = checkpoint.Open(first.Saves.Dir.Folder(int64(2 * unit)))
		}
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		for what, counts := range map[string][]int64{"as saved": c.Updates, "none": nil} {
			r := open(devices)
			r.Rate, c.Updates = first.Rate, counts
			_, err := r.Resume(c)
			must(t, err)
			if got := done(t, r).WeightsSHA256; got != want {
				t.Errorf("%d devices, counts %s: weights %s, want %s", devices, what, got, want)
			}
		}
		c.Updates = []int64{1, 2, 3}
		if _, err := open(devices).Resume(c); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "updates of 3 layers") {
			t.Errorf("%d devices: %v", devices, err)
		}
	}
}

// Exported weights count the batches that BatchNorms have seen, as PyTorch does. The count begins with the count of the initial file. It
// then grows by one for each microbatch, also across a checkpoint. With deferred statistics it grows by one for each step.
func TestBatchesAreCounted(t *testing.T) {
	t.Parallel()
	first := planned(t, opened(t, tiny(8)), 3)
	first.Saves = SavesTo(t.TempDir(), 9, 0)
	done(t, first)
	wantBatches(t, first.Saves.Final.Path(), 3)
	saves := SavesTo(t.TempDir(), 9, 1)
	piped := func(deferred bool) *Run {
		r := pipeRun(t, piped(t, 2, 4, 8), "gpipe", 2, 2)
		r.Init, r.Saves, r.Plan.DeferredBatchNorm = first.Saves.Final.Path(), saves, deferred
		r.Plan.Limit *= 2 // deferred statistics take more
		return r
	}
	done(t, piped(false))
	wantBatches(t, saves.Final.Path(), 3+2*4)
	wantBatches(t, filepath.Join(saves.Dir.Folder(1), "stage-0.safetensors"), 3+4)
	c, err := checkpoint.Open(saves.Dir.Folder(1))
	must(t, err)
	again := piped(false)
	_, err = again.Resume(c)
	must(t, err)
	done(t, again)
	must(t, c.Close())
	wantBatches(t, saves.Final.Path(), 3+2*4)
	done(t, piped(true))
	wantBatches(t, saves.Final.Path(), 3+2)
}

// wantBatches checks the counts in a file.
func wantBatches(t *testing.T, path string, want int64) {
	t.Helper()
	f, err := safetensors.Open(path)
	must(t, err)
	norms := 0
	for _, x := range f.Tensors() {
		if x.DType != safetensors.I64 {
			continue
		}
		if n, err := f.Int64(x.Name); n != want || err != nil {
			t.Errorf("%s of %s is %d, %v, want %d", x.Name, path, n, err, want)
		}
		norms++
	}
	if norms == 0 {
		t.Errorf("%s counts nothing", path)
	}
	must(t, f.Close())
}
