package train

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"plimsoll/executor/checkpoint"
	"plimsoll/internal/folder"
	"plimsoll/internal/folder/foldertest"
)

// sizes returns the bytes of files by path.
func sizes(t *testing.T, path string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	must(t, fs.WalkDir(os.DirFS(path), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		all[name] = info.Size()
		return err
	}))
	return all
}

// On a disk without room for two checkpoints, the first one stands, the shards of others leave nothing, and the trained weights are saved.
// On a disk without room for these weights, nothing is trained.
func TestRoomForTheTrainedWeights(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func() *Run{
		"one device":  func() *Run { return planned(t, opened(t, tiny(8)), 4) },
		"two devices": func() *Run { return pipeRun(t, piped(t, 2, 4, 8), "1f1b-flush", 2, 4) },
	} {
		r, path := run(), t.TempDir()
		r.Saves = SavesTo(path, 1, 4)
		want := done(t, r)
		taken, all := sizes(t, path), int64(0)
		for _, n := range taken {
			all += n
		}
		final := taken[FinalWeights]
		for keep, room := range map[int]int64{1: all + (all-final)/2, 9: 2*(all-final) + final/2} {
			r, path = run(), t.TempDir()
			r.Saves = SavesIn(folder.At(path).On((&foldertest.Small{Path: path, Bytes: room}).Over), keep, 1)
			var failed []error
			r.Saved = func(_ int, err error) { failed = append(failed, err) }
			out, err := r.Do(t.Context())
			must(t, err)
			if out.Checkpoints != 1 || len(failed) != 4 || !errors.Is(failed[3], syscall.ENOSPC) || !errors.As(out.Unsaved, new(*checkpoint.SaveError)) ||
				strings.Contains(out.Unsaved.Error(), "trained weights") || out.WeightsSHA256 != want.WeightsSHA256 {
				t.Errorf("%s, keep %d: %d saved: %v; %v", name, keep, out.Checkpoints, failed, out.Unsaved)
			}
			if left := sizes(t, path); left[FinalWeights] != final || len(left) != len(taken) {
				t.Errorf("%s, keep %d: the disk holds %v, want as much as %v", name, keep, left, taken)
			}
		}
		r, path = run(), t.TempDir()
		r.Saves = SavesIn(folder.At(path).On((&foldertest.Small{Path: path, Bytes: final - 1}).Over), 1, 1)
		r.Record = func(Record) error { t.Errorf("%s: a step is trained", name); return nil }
		if _, err := r.Do(t.Context()); !errors.Is(err, ErrNoRoom) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
		if left := sizes(t, path); len(left) > 0 {
			t.Errorf("%s: %v stay", name, left)
		}
	}
}
