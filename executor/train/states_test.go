package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint"
	pipe "plimsoll/executor/pipeline"
)

// shard returns the path of a stage's shard.
func shard(d *checkpoint.Dir, step int64, stage int) string {
	return filepath.Join(d.Folder(step), fmt.Sprintf("stage-%d.safetensors", stage))
}

// A pipeline saves one shard for each stage. A run goes on from the newest checkpoint with all shards whole, on any number of devices,
// along any plan or none. It ends at the weights of a run from one file with the same state. The errors name newer checkpoints that are not
// whole.
func TestShardsGoOnAnywhere(t *testing.T) {
	t.Parallel()
	const steps = 12
	first := pipeRun(t, piped(t, 4, 4, 8), "1f1b-flush", 4, 9)
	first.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 9), Every: 3}
	reported := []int{}
	first.Saved = func(step int, err error) {
		must(t, err)
		reported = append(reported, step)
	}
	if out := done(t, first); out.Checkpoints != 3 || !slices.Equal(reported, []int{3, 6, 9}) || out.Pipe.Devices[0].SnapshotBytes < 4 {
		t.Errorf("%d checkpoints, of steps %v; %+v", out.Checkpoints, reported, out.Pipe.Devices[0])
	}
	dir := first.Saves.Dir
	must(t, os.Remove(shard(dir, 9, 1)))
	c, bad, err := dir.Latest()
	must(t, err)
	if c.Step != 6 || len(bad) != 1 || !errors.Is(bad[0], checkpoint.ErrIncomplete) || !strings.Contains(bad[0].Error(), "step-9: the checkpoint is incomplete: of 4 shards it has not stage-1.safetensors") {
		t.Errorf("step %d, %v", c.Step, bad)
	}
	// The same state in one file, as a run on one device saves it.
	one := checkpoint.NewDir(filepath.Join(t.TempDir(), "one"), 9)
	alone := pipeRun(t, piped(t, 1, 4, 8), "1f1b-flush", 1, steps)
	must(t, one.Save(restored(t, alone, c), c.Meta))
	must(t, c.Close())
	ended := map[string]string{}
	for name, run := range map[string]func() *Run{
		"flush on 4": func() *Run { return pipeRun(t, piped(t, 4, 4, 8), "1f1b-flush", 4, steps) },
		"flush on 2": func() *Run { return pipeRun(t, piped(t, 2, 4, 8), "1f1b-flush", 2, steps) },
		"flush on 1": func() *Run { return pipeRun(t, piped(t, 1, 4, 8), "1f1b-flush", 1, steps) },
		"1f1b*":      func() *Run { return pipeRun(t, piped(t, 2, 1, 8), "1f1b*", 2, steps) },
		"one device": func() *Run {
			r := planned(t, opened(t, tiny(8)), steps)
			r.Rate = first.Rate
			return r
		},
	} {
		for _, d := range []*checkpoint.Dir{dir, one} {
			c, _, err := d.Latest()
			must(t, err)
			r := run()
			_, err = r.Resume(c)
			must(t, err)
			out := done(t, r)
			must(t, c.Close())
			if want, have := ended[name]; have && want != out.WeightsSHA256 || out.ResumedFrom != 6 {
				t.Errorf("%s: weights %s from step %d, from shards %s", name, out.WeightsSHA256, out.ResumedFrom, want)
			}
			ended[name] = out.WeightsSHA256
		}
	}
	if ended["flush on 4"] != ended["flush on 1"] || ended["flush on 4"] != ended["flush on 2"] || len(ended) != 5 {
		t.Errorf("%v", ended)
	}
	if ended["flush on 4"] != done(t, pipeRun(t, piped(t, 2, 4, 8), "1f1b-flush", 2, steps)).WeightsSHA256 {
		t.Error("a run that was left alone ends elsewhere")
	}
}

// restored returns the executor of a run that begins with a checkpoint.
func restored(t *testing.T, r *Run, from *checkpoint.Checkpoint) *pipe.Executor {
	t.Helper()
	on, err := r.Job.Targets()
	must(t, err)
	t.Cleanup(func() { must(t, closeTargets(on)) })
	o := r.Plan.options()
	o.Rate = r.Rate.At
	x, err := pipe.New(r.Job.Work, on, r.Plan.Costs, r.Plan.Plan, o)
	must(t, err)
	must(t, from.Restore(x))
	return x
}

// A folder that takes no shard for a while costs those checkpoints, each of which is said once; one that takes none at the end is
// said there. Training goes on to the weights of a run that saves nothing.
func TestShardsThatAreNotSaved(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"gpipe", "1f1b*"} {
		r := pipeRun(t, piped(t, 2, 1, 8), strategy, 2, 12)
		folder := filepath.Join(t.TempDir(), "run")
		r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(folder, "checkpoints"), 3), Every: 3}
		want := done(t, r).WeightsSHA256
		must(t, os.RemoveAll(folder))
		must(t, os.WriteFile(folder, nil, 0o666)) // a file is in the way
		said := map[int]bool{}
		r.Saved = func(step int, err error) {
			if _, twice := said[step]; twice {
				t.Errorf("step %d is said twice", step)
			}
			said[step] = err == nil
			if save := (*checkpoint.SaveError)(nil); err != nil && (!errors.As(err, &save) || save.Path != r.Saves.Dir.Folder(int64(step))) {
				t.Errorf("step %d: %v", step, err)
			}
			if len(said) == 2 {
				must(t, os.Remove(folder))
			}
		}
		out := done(t, r)
		if out.WeightsSHA256 != want || len(said) != 4 || said[3] || said[6] || out.CheckpointsFailed+out.Checkpoints != 4 || out.CheckpointsFailed < 2 {
			t.Errorf("%s: %d saved, %d failed: %v; weights %s, want %s", strategy, out.Checkpoints, out.CheckpointsFailed, said, out.WeightsSHA256, want)
		}
		if said[12] != (out.Unsaved == nil) {
			t.Errorf("%s: %v; %v", strategy, said, out.Unsaved)
		}
	}
}

// The log has a step before the disk has a shard of the state after that step. A run that goes on therefore has a log with all of its
// steps.
func TestTheLogIsAheadOfShards(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"1f1b-flush", "1f1b*", "madpipe"} {
		parts := map[bool]int{true: 4, false: 1}[strategy == "1f1b-flush"]
		r := pipeRun(t, piped(t, 3, parts, 8), strategy, 3, 24)
		r.Saves = Saves{Dir: checkpoint.NewDir(filepath.Join(t.TempDir(), "checkpoints"), 99), Every: r.Plan.unit()}
		looked := 0
		r.Record = func(rec Record) error {
			steps, err := r.Saves.Dir.Steps()
			if n := len(steps); n > 0 && steps[n-1] > int64(rec.Step) {
				t.Errorf("%s: step %d is logged behind the checkpoint of %d steps", strategy, rec.Step, steps[n-1])
			}
			looked++
			return err
		}
		if out := done(t, r); looked != r.Steps || out.Checkpoints != r.Steps/r.Plan.unit() {
			t.Errorf("%s: %d steps, %d checkpoints of %d", strategy, looked, out.Checkpoints, r.Steps/r.Plan.unit())
		}
	}
}
