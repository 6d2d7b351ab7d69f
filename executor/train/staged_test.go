package train

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint"
	"plimsoll/models/data"
	"plimsoll/planner"
	"plimsoll/planner/strategy"
)

// pictures writes a data set of bytes, 40 training and 17 test images, and returns its name.
func pictures(t testing.TB) string {
	t.Helper()
	folder, r := t.TempDir(), rand.New(rand.NewPCG(5, 6))
	for name, n := range map[string]int{"data_batch_1.bin": 40, "test_batch.bin": 17} {
		var all []byte
		for i := range n {
			all = append(all, byte(i%10))
			for range 3 * 32 * 32 {
				all = append(all, byte(r.Uint32()))
			}
		}
		must(t, os.WriteFile(filepath.Join(folder, name), all, 0o600))
	}
	return "cifar10:" + folder
}

// stagedRuns returns two runs along one sequence: with images that are normalized before they travel, and with batches that are
// staged as bytes.
func stagedRuns(t testing.TB, s Spec, steps int) (plain, staged *Run) {
	t.Helper()
	s.Data = pictures(t)
	j := opened(t, s)
	c, err := j.Profile(t.Context(), Measure{Repeats: 1})
	must(t, err)
	name := "revolve"
	if j.Work.Model.Wiring().Joins() {
		name = "multi-empty"
	}
	by, err := planner.Lookup(name)
	must(t, err)
	all, err := j.StoreAllExtent()
	must(t, err)
	limit := all + all/4
	p, err := executor.Plan(t.Context(), j.Work, c, by, limit, strategy.Options{})
	must(t, err)
	plain = &Run{Job: j, Chain: c, Plan: j.SequenceOf(c, p, limit), Steps: steps, Rate: Rate{Peak: 0.05}, EvalEvery: 3}
	with := *plain
	if with.Plan, err = j.Plan(t.Context(), c, by, limit, strategy.Options{}); err != nil || with.Plan.Extra[executor.StagedField] == nil {
		t.Fatalf("the plan leaves no room for the next batch: %v, %v", with.Plan.Extra, err)
	}
	return plain, &with
}

// Batches that travel as bytes and wait on the device train the same weights, bit for bit. Runs have evaluations between steps, a last test
// batch in part, one branch or two, and steps of several parts. The peak has the staged bytes on top, and is the predicted one.
func TestStagedBatchesTrainTheSameWeights(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		model string
		parts int
	}{{"tiny", 0}, {"siamese", 0}, {"tiny", 3}} {
		model, s := of.model, tiny(6)
		s.Model, s.Parts = model, of.parts
		a, b := stagedRuns(t, s, 8)
		want, err := a.Do(t.Context())
		must(t, err)
		got, err := b.Do(t.Context())
		must(t, err)
		if got.WeightsSHA256 != want.WeightsSHA256 || got.TestLoss != want.TestLoss || got.TestSamples != 17 || len(got.History.Evals) != len(want.History.Evals) {
			t.Errorf("%s: weights %s, test loss %v of %d; unstaged %s, %v", model, got.WeightsSHA256, got.TestLoss, got.TestSamples, want.WeightsSHA256, want.TestLoss)
		}
		for i, rec := range got.History.Steps {
			if rec.Loss != want.History.Steps[i].Loss || rec.Accuracy != want.History.Steps[i].Accuracy {
				t.Errorf("%s, step %d: loss %v, unstaged %v", model, i, rec.Loss, want.History.Steps[i].Loss)
			}
		}
		if extra := got.MeasuredPeakBytes - want.MeasuredPeakBytes; got.MeasuredPeakBytes != got.PredictedPeakBytes || extra != got.StagedBytes || extra != b.Job.StagedBytes() || extra <= 0 {
			t.Errorf("%s: peak %d, predicted %d, unstaged %d, %d of it staged", model, got.MeasuredPeakBytes, got.PredictedPeakBytes, want.MeasuredPeakBytes, got.StagedBytes)
		}
		if want.StagedBytes != 0 || got.HostBytes >= want.HostBytes || got.ExtentBytes > b.Plan.Limit {
			t.Errorf("%s: %d bytes staged without room, host memory %d, staged %d", model, want.StagedBytes, want.HostBytes, got.HostBytes)
		}
	}
}

// A feed of bytes gives those of each batch, the images of the first branch before those of the second, whatever is asked for first. Behind the
// last step's batch it makes none.
func TestAFeedOfBytes(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"tiny", "siamese"} {
		s := tiny(3)
		s.Model, s.Data = model, pictures(t)
		j := opened(t, s)
		f, err := j.newFeed(t.Context(), j.staged().Work, 2)
		must(t, err)
		defer f.from.Close()
		f.end = 4
		want, got := j.newHeld(j.staged().Work), j.newHeld(j.staged().Work)
		for _, batch := range []int{3, 2} {
			_, err := j.raw.train.Fill(int64(batch), want.pixels, want.labels)
			must(t, err)
			if model == "siamese" {
				half := len(want.pixels) / 6
				want.pixels = slices.Concat(want.pixels[:half], want.pixels[2*half:3*half], want.pixels[4*half:5*half], want.pixels[half:2*half], want.pixels[3*half:4*half], want.pixels[5*half:])
			}
			must(t, f.Labels(batch, got.labels))
			must(t, f.Pixels(batch, got.pixels))
			if !slices.Equal(got.pixels, want.pixels) || !slices.Equal(got.labels, want.labels) {
				t.Errorf("%s: batch %d is another one", model, batch)
			}
		}
		if err := f.Pixels(4, got.pixels); !errors.Is(err, io.EOF) || f.next != 4 || len(f.held) != 0 {
			t.Errorf("%s: %v, batch %d is next, %d are held", model, err, f.next, len(f.held))
		}
	}
}

// A run on staged batches that is interrupted at any step goes on to the same weights.
func TestStagedBatchesResume(t *testing.T) {
	t.Parallel()
	_, r := stagedRuns(t, tiny(6), 7)
	want, err := r.Do(t.Context())
	must(t, err)
	for at := range 6 {
		again := *r
		again.Saves.Dir = checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
		ctx, cancel := context.WithCancel(t.Context())
		again.Record = func(rec Record) error {
			if rec.Step == at {
				cancel()
			}
			return nil
		}
		if _, err := again.Do(ctx); !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		again.Record = nil
		resumeLatest(t, &again, int64(at)+1)
		got, err := again.Do(t.Context())
		must(t, err)
		if got.WeightsSHA256 != want.WeightsSHA256 {
			t.Errorf("interrupted at step %d: weights %s, want %s", at, got.WeightsSHA256, want.WeightsSHA256)
		}
	}
}

// Steps that are not finite are passed over on staged batches as on others, and a run that stops at one names the layer.
func TestStagedBatchesThatAreNotFinite(t *testing.T) {
	t.Parallel()
	s := tiny(6)
	s.Model = "mlp"
	plain, staged := stagedRuns(t, s, 12)
	for _, r := range []*Run{plain, staged} {
		r.Rate, r.SkipNotFinite = Rate{Peak: 1e19}, true
	}
	want, err := plain.Do(t.Context())
	must(t, err)
	got, err := staged.Do(t.Context())
	must(t, err)
	if got.WeightsSHA256 != want.WeightsSHA256 || got.Skipped != want.Skipped || got.Skipped == 0 {
		t.Errorf("weights %s after %d skipped steps, unstaged %s after %d", got.WeightsSHA256, got.Skipped, want.WeightsSHA256, want.Skipped)
	}
	var text [2]string
	for i, r := range []*Run{plain, staged} {
		r.SkipNotFinite = false
		if _, err := r.Do(t.Context()); !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "is the first whose output is not finite") {
			t.Errorf("%v", err)
		} else {
			text[i] = err.Error()
		}
	}
	if text[0] != text[1] {
		t.Errorf("%q, unstaged %q", text[1], text[0])
	}
}

// A sample that cannot be read fails the step that needs it, and saves those before it.
func TestABadByteSampleSavesWhatWasTrained(t *testing.T) {
	t.Parallel()
	_, r := stagedRuns(t, tiny(4), 9)
	broken := errors.New("broken.jpg")
	var err error
	r.Job.raw.train, err = data.NewByteBatcher(torn{r.Job.Set.(data.Pictures), 4 * 5, broken}, data.Train, 4, 1)
	must(t, err)
	r.Saves.Dir = checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 3)
	if _, err := r.Do(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "batch of step 5") {
		t.Errorf("%v", err)
	}
	if c, _, err := r.Saves.Dir.Latest(); err != nil || c.Step != 5 {
		t.Errorf("%+v, %v", c, err)
	} else {
		must(t, c.Close())
	}
}

// torn serves training samples in their stored order, up to one that is bad.
type torn struct {
	data.Pictures
	from int64
	err  error
}

func (torn) TrainLen() int64 { return 0 }

func (d torn) FillBytes(split data.Split, index int64, dst []uint8) (int, error) {
	if split == data.Train && index >= d.from {
		return 0, d.err
	}
	return d.Pictures.FillBytes(split, index, dst)
}

// Where a plan leaves no room the batch is copied when its step begins: no limit is refused, and no plan changed, for a batch that
// waits. With just enough room it waits.
func TestAPlanWithoutRoomStagesNothing(t *testing.T) {
	t.Parallel()
	plain, r := stagedRuns(t, tiny(6), 3)
	want, err := plain.Do(t.Context())
	must(t, err)
	extent := plain.extent(t)
	for _, spare := range []int64{0, r.Job.StagedBytes() - 1, r.Job.StagedBytes()} {
		limit := extent + spare
		run := *plain
		run.Plan = r.Job.SequenceOf(r.Chain, executor.Staged(r.Job.staged().Work, r.Chain, plain.Plan.Plan, limit), limit)
		_, staged := run.Plan.Extra[executor.StagedField]
		if staged != (spare == r.Job.StagedBytes()) || run.Plan.Sequence().String() != plain.Plan.Sequence().String() {
			t.Errorf("%d bytes to spare: staged %v, along %v", spare, staged, run.Plan.Sequence())
		}
		out, err := run.Do(t.Context())
		must(t, err)
		if out.WeightsSHA256 != want.WeightsSHA256 || out.MeasuredPeakBytes != out.PredictedPeakBytes || out.ExtentBytes > limit || (out.StagedBytes > 0) != staged {
			t.Errorf("%d bytes to spare: peak %d, predicted %d, extent %d of %d, %d staged", spare, out.MeasuredPeakBytes, out.PredictedPeakBytes, out.ExtentBytes, limit, out.StagedBytes)
		}
	}
	if j := opened(t, tiny(4)); j.StagedBytes() != 0 || j.staged() != j {
		t.Error("a data set of no bytes is staged")
	}
}

// extent returns where the layout of a run's plan ends, that of its evaluation included.
func (r *Run) extent(t testing.TB) int64 {
	t.Helper()
	at, err := r.Job.Work.Layout(r.Plan.Sequence(), r.Plan.Limit, executor.Following(r.Chain, r.Plan.Plan))
	must(t, err)
	return at.Extent
}
