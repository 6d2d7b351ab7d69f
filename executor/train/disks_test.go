package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint"
)

// resumes is a process with a disk of its own, which goes on from what all have, if they have anything.
func resumes(t *testing.T, one *Run, disk string, steps int) func(w *World) error {
	return func(w *World) error {
		q := member(t, one, w)
		q.Steps, q.Saves = steps, Saves{Dir: checkpoint.NewDir(disk, 2), Every: 2}
		c, _, err := w.Latest(q.Saves.Dir)
		switch {
		case errors.Is(err, checkpoint.ErrNone):
		case err != nil:
			return err
		default:
			defer func() { _ = c.Close() }()
			if _, err := q.Resume(c); err != nil {
				return err
			}
		}
		out, err := q.Do(t.Context())
		if err != nil {
			return err
		}
		want := *one
		want.Steps = steps
		if sum := done(t, &want).WeightsSHA256; out.WeightsSHA256 != sum {
			return fmt.Errorf("weights after %d steps %s, want %s", steps, out.WeightsSHA256, sum)
		}
		return nil
	}
}

// Processes with disks of their own resume from the checkpoint that they have together, wherever each of them is then, and as fewer of
// them. Checkpoints of a disk that no run resumes from do not come back.
func TestDisksOfTheirOwn(t *testing.T) {
	t.Parallel()
	const devices = 3
	one := pipeRun(t, piped(t, devices, 2, 8), "1f1b-flush", devices, 4)
	disks := make([]string, devices)
	for i := range disks {
		disks[i] = filepath.Join(t.TempDir(), "checkpoints")
	}
	for _, run := range []struct {
		steps int
		order []int // disks of the processes
	}{{4, []int{0, 1, 2}}, {6, []int{1, 2, 0}}, {8, []int{0, 1, 2}}} {
		var processes []func(w *World) error
		for _, disk := range run.order {
			processes = append(processes, resumes(t, one, disks[disk], run.steps))
		}
		for rank, err := range inWorld(t, processes...) {
			if err != nil {
				t.Errorf("%d steps, rank %d: %v", run.steps, rank, err)
			}
		}
		stale := filepath.Join(disks[1], fmt.Sprintf("step-%d", run.steps+2))
		must(t, os.MkdirAll(stale, 0o777))
		must(t, os.WriteFile(filepath.Join(stale, "stage-7.safetensors"), []byte("of another plan"), 0o600))
	}
	for i, disk := range disks {
		names, err := filepath.Glob(filepath.Join(disk, "step-8", "*"))
		must(t, err)
		for k := range names {
			names[k] = filepath.Base(names[k])
		}
		if got := strings.Join(names, " "); got != fmt.Sprintf("published.json stage-%d.safetensors", i) {
			t.Errorf("disk %d: %s", i, got)
		}
	}
	elsewhere := t.TempDir()
	for rank, err := range inWorld(t, resumes(t, one, disks[0], 10), resumes(t, one, elsewhere, 10), resumes(t, one, disks[2], 10)) {
		if !errors.Is(err, checkpoint.ErrElsewhere) || !strings.Contains(err.Error(), "of step 8 there is no stage-1.safetensors, which rank 1 on ") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for _, disk := range []string{disks[0], disks[2]} {
		if _, err := os.Stat(filepath.Join(disk, "step-8")); err != nil {
			t.Error(err)
		}
	}
}

// If one process has a checkpoint of another run, the run is refused with the name of that checkpoint, which stays.
func TestAnotherRunOnOneDisk(t *testing.T) {
	t.Parallel()
	one := pipeRun(t, piped(t, 2, 2, 8), "gpipe", 2, 4)
	disk := t.TempDir()
	other := *one
	other.Saves = Saves{Dir: checkpoint.NewDir(disk, 9), Every: 4}
	done(t, &other)
	for rank, err := range inWorld(t, resumes(t, one, t.TempDir(), 2), resumes(t, one, disk, 2)) {
		where := []string{"step-4 of rank 1 on ", filepath.Join(disk, "step-4")}[rank]
		if !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), where) {
			t.Errorf("rank %d: %v, want it to name %s", rank, err, where)
		}
	}
	if _, err := checkpoint.Open(filepath.Join(disk, "step-4")); err != nil {
		t.Error(err)
	}
}

// A disk on which nothing can be written is named by all, with whose it is, and the run goes on.
func TestADiskThatTakesNothing(t *testing.T) {
	t.Parallel()
	one := pipeRun(t, piped(t, 2, 2, 8), "gpipe", 2, 2)
	disk := t.TempDir()
	must(t, os.WriteFile(filepath.Join(disk, "step-2"), nil, 0o600)) // where a folder should be
	at := func(disk string) func(w *World) error {
		return func(w *World) error {
			q := member(t, one, w)
			q.Saves = Saves{Dir: checkpoint.NewDir(disk, 2), Every: 2}
			said := ""
			q.Saved = func(_ int, err error) { said += fmt.Sprint(err) }
			out, err := q.Do(t.Context())
			if err == nil && (out.CheckpointsFailed != 1 || !strings.Contains(said, "is not saved: rank 1 on ")) {
				err = fmt.Errorf("%d failed: %s", out.CheckpointsFailed, said)
			}
			return err
		}
	}
	for _, err := range inWorld(t, at(t.TempDir()), at(disk)) {
		must(t, err)
	}
}

// A damaged shard is passed over by all, with the checkpoint that it is part of; from the one before they go on.
func TestADamagedShardElsewhere(t *testing.T) {
	t.Parallel()
	one := pipeRun(t, piped(t, 2, 2, 8), "gpipe", 2, 4)
	disks := []string{t.TempDir(), t.TempDir()}
	for _, err := range inWorld(t, resumes(t, one, disks[0], 4), resumes(t, one, disks[1], 4)) {
		must(t, err)
	}
	path := filepath.Join(disks[1], "step-4", "stage-1.safetensors")
	b, err := os.ReadFile(path)
	must(t, err)
	b[len(b)-40] ^= 1
	must(t, os.WriteFile(path, b, 0o600))
	latest := func(disk string) func(w *World) error {
		return func(w *World) error {
			c, bad, err := w.Latest(checkpoint.NewDir(disk, 2))
			if err != nil {
				return err
			}
			if c.Step != 2 || len(bad) != 1 || !strings.Contains(bad[0].Error(), "rank 1 on ") || !strings.Contains(bad[0].Error(), "the checkpoint is damaged") {
				err = fmt.Errorf("step %d, %v", c.Step, bad)
			}
			return errors.Join(err, c.Close())
		}
	}
	for _, err := range inWorld(t, latest(disks[0]), latest(disks[1])) {
		must(t, err)
	}
	for _, err := range inWorld(t, resumes(t, one, disks[0], 6), resumes(t, one, disks[1], 6)) {
		must(t, err)
	}
}
