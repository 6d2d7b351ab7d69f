package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/folder"
	"plimsoll/internal/folder/foldertest"
)

// allFaults says that every operation on files fails in every way; see make test-faults.
var allFaults = os.Getenv("PLIMSOLL_FAULTS") != ""

// asFaults has the operations on files that fail in a process, and in which one: "rank after error".
const asFaults = "PLIMSOLL_TEST_FAULTS"

// faulty are the folders whose operations fail, by path.
var faulty sync.Map

// withFaults lets operations fail in folders that are in faulty.
func withFaults(path string, on atomicfile.FS) atomicfile.FS {
	if f, ok := faulty.Load(path); ok {
		return f.(*foldertest.Faults).Over(on)
	}
	return on
}

// failAs lets operations of this process fail as a text says.
func failAs(text string) {
	f, err := foldertest.Parse(text)
	if err != nil {
		panic(err)
	}
	folder.Wrap = func(_ string, on atomicfile.FS) atomicfile.FS { return f.Over(on) }
}

// failing runs a command line while operations in a folder fail.
func failing(t *testing.T, out string, f *foldertest.Faults, args ...string) result {
	t.Helper()
	faulty.Store(out, f)
	defer faulty.Delete(out)
	return plimsoll(t, args...)
}

// waysToFail are faults after some operations: those of a disk, once and from then on. Without make test-faults they are one of these.
func waysToFail(after int) (all []*foldertest.Faults) {
	for _, name := range slices.Sorted(maps.Keys(foldertest.Errors)) {
		for _, ever := range []bool{false, true} {
			all = append(all, &foldertest.Faults{After: after, Err: foldertest.Errors[name], Ever: ever})
		}
	}
	if allFaults {
		return all
	}
	return all[after%len(all):][:1]
}

// counters are the numbers in the names of temporary files and of checkpoints.
var counters = regexp.MustCompile(`[0-9]+`)

// instants are the numbers of operations before those that are to fail: all, or the first of each kind on each kind of file.
func instants(operations []string, kind string) (all []int) {
	seen := map[string]bool{}
	for i, op := range operations {
		kindOf := counters.ReplaceAllString(op, "")
		if allFaults || strings.Contains(op, kind) && !seen[kindOf] {
			all = append(all, i)
		}
		seen[kindOf] = true
	}
	return all
}

// Whichever operation on a file fails, and however, the run ends well or says why; gone on with, it ends with the bits of one that was
// left alone. It takes long because each operation is a run of its own.
func TestEveryOperationOnFilesFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		kind  string // of operations that one device has not
		least int
	}{
		"one device":  {small(t, 4), "", 40},
		"two devices": {onDevices(2, "1f1b-flush", 4, "--microbatches", "2", "--profile", chainOf(t)), "stage-", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(c.args, "--checkpoint-every", "2", "--option", "checkpoint.keep=1")
			out, none := filepath.Join(t.TempDir(), "run"), &foldertest.Faults{}
			want := weights(t, failing(t, out, none, append(slices.Clone(args), "--out", out)...).out)
			runs, failed := 0, map[string]bool{}
			for _, after := range instants(none.Operations(), c.kind) {
				for _, f := range waysToFail(after) {
					runs++
					failsAndGoesOn(t, f, want, args)
					for _, op := range f.Failed() {
						failed[op] = true
					}
				}
			}
			if len(failed) < c.least {
				t.Errorf("%d operations failed in %d runs", len(failed), runs)
			}
			t.Logf("%d runs in which one of %d operations fails", runs, len(none.Operations()))
		})
	}
}

// chainOf measures the chain of a run on several devices.
func chainOf(t *testing.T, more ...string) string {
	t.Helper()
	c := filepath.Join(t.TempDir(), "c.json")
	works(t, append([]string{"profile", "-m", "tiny", "--batch", "4", "--image", "16", "--option", "profile.steps=1", "--halves", "-o", c, "-q"}, more...)...)
	return c
}

// failsAndGoesOn runs a command line with faults, and goes on without.
func failsAndGoesOn(t *testing.T, f *foldertest.Faults, want string, args []string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	args = append(slices.Clone(args), "--out", out)
	r := failing(t, out, f, args...)
	what := fmt.Sprintf("after %d operations, %v, ever %v, failed %q", f.After, f.Err, f.Ever, f.Failed())
	switch {
	case r.code != exitOK && (r.code != exitFailed && r.code != exitUsage || r.err == "" || strings.Contains(r.err, "BUG")):
		t.Errorf("%s: exit code %d: %s", what, r.code, r.err)
	case r.code == exitOK && weights(t, r.out) != want:
		t.Errorf("%s: the run ends with other weights", what)
	case r.code != exitOK && len(f.Failed()) == 0:
		t.Errorf("%s: nothing failed, and the exit code is %d: %s", what, r.code, r.err)
	}
	again := plimsoll(t, append(args, "--resume")...)
	if again.code != exitOK || weights(t, again.out) != want {
		t.Errorf("%s: %s: resumed: exit code %d: %s", what, r.err, again.code, again.err)
	}
	if left := slices.DeleteFunc(tree(t, out), func(s string) bool { return !strings.Contains(s, ".tmp-") && !strings.HasSuffix(s, ".lock") }); len(left) > 0 {
		t.Errorf("%s: %q stay", what, left)
	}
}

// named are the names in the folder of a run, with its temporary files.
var named = []string{
	".plimsoll.lock", runFile, "chain.json", "plan.json", logFile, finalFile, reportFile, "report.json", "trace.json", checkpoints,
	"checkpoints/step-2.safetensors", "checkpoints/step-4.safetensors", "checkpoints/step-2", "checkpoints/step-4",
	"checkpoints/step-4/stage-0.safetensors", "checkpoints/step-4/stage-1.safetensors", "checkpoints/step-4/published.json",
	".log.jsonl.tmp-1-0", "checkpoints/.step-4.safetensors.tmp-1-0",
}

// planted put something of others in place of a name: it leads to a file or a folder of theirs, or it waits for somebody.
var planted = map[string]func(foreign, path string) error{
	"a link to a file":   func(foreign, path string) error { return os.Symlink(filepath.Join(foreign, "file"), path) },
	"a link to a folder": func(foreign, path string) error { return os.Symlink(foreign, path) },
	"a link to nothing":  func(foreign, path string) error { return os.Symlink(filepath.Join(foreign, "new"), path) },
	"another name":       func(foreign, path string) error { return os.Link(filepath.Join(foreign, "file"), path) },
	"a pipe":             func(_, path string) error { return syscall.Mkfifo(path, 0o600) },
}

// foreigner makes a folder with a file that no run may change.
func foreigner(t *testing.T) (path string) {
	t.Helper()
	path = t.TempDir()
	write(t, filepath.Join(path, "file"), "not of a run")
	return path
}

// plant copies the folder of a run and puts something in place of a name.
func plant(t *testing.T, run, name, foreign string, put func(foreign, path string) error) (out string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "run")
	path := filepath.Join(out, name)
	err := os.CopyFS(out, os.DirFS(run))
	if err == nil {
		err = errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o755), put(foreign, path))
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A run in a folder that somebody else made changes nothing outside the folder, and waits for no pipe in it. Whatever the folder has in
// place of any name of a run, the run is refused by name, or ends with its bits.
func TestFoldersOfOthers(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{"one device": small(t, 4), "two devices": onDevices(2, "1f1b-flush", 4, "--microbatches", "2", "--profile", chainOf(t))}
	for devices, args := range cases {
		run := filepath.Join(t.TempDir(), "run")
		args = append(args, "--checkpoint-every", "2", "--option", "checkpoint.keep=9")
		want := weights(t, works(t, append(slices.Clone(args), "--out", run)...).out)
		unfinish(t, run)
		for i, name := range named {
			t.Run(devices+" "+name, func(t *testing.T) {
				t.Parallel()
				for j, kind := range slices.Sorted(maps.Keys(planted)) {
					for k, how := range []string{"--resume", "--force"} {
						if !allFaults && (i+j+k)%2 > 0 {
							continue
						}
						foreign := foreigner(t)
						was, out := contents(t, foreign), plant(t, run, name, foreign, planted[kind])
						r := plimsoll(t, append(slices.Clone(args), "--out", out, how)...)
						switch {
						case r.code == exitOK && weights(t, r.out) != want:
							t.Errorf("%s, %s: other weights", kind, how)
						case r.code != exitOK && (r.code != exitUsage && r.code != exitFailed || !strings.Contains(r.err, filepath.Base(name))):
							t.Errorf("%s, %s: exit code %d: %s", kind, how, r.code, r.err)
						}
						sameContents(t, foreign, was)
					}
				}
			})
		}
	}
}

// The other commands that fill a folder change nothing outside it, either.
func TestResultsFoldersOfOthers(t *testing.T) {
	t.Parallel()
	chain := chainOf(t)
	for command, c := range map[string]struct {
		args  []string
		names []string
	}{
		"bench": {[]string{"bench", "-c", chain, "--points", "2", "--strategy", "store-all", "-q"},
			[]string{".plimsoll.lock", "points.jsonl", "points.csv", "index.html", "report.json", "figures"}},
		"bench pipelines": {[]string{"bench", "pipelines", "-c", chain, "--devices", "2", "--memory", "1GiB", "--bandwidths", "1GB/s", "--strategy", "contiguous", "-q"},
			[]string{".plimsoll.lock", "points.csv", "tables.md"}},
		"validate": {[]string{"validate", "-m", "tiny", "--batch", "4", "--image", "16", "--memory", "100%", "--strategy", "store-all", "--steps", "1", "-q"},
			[]string{".plimsoll.lock", "validate.json", "index.html", "report.json", "trace.json"}},
	} {
		for i, name := range c.names {
			for j, kind := range slices.Sorted(maps.Keys(planted)) {
				if !allFaults && (i+j)%len(c.names) > 0 {
					continue
				}
				foreign := foreigner(t)
				was, out := contents(t, foreign), plant(t, t.TempDir(), name, foreign, planted[kind])
				if r := plimsoll(t, append(slices.Clone(c.args), "--out", out)...); r.code != exitOK && !strings.Contains(r.err, name) {
					t.Errorf("%s, %s, %s: exit code %d: %s", command, name, kind, r.code, r.err)
				}
				sameContents(t, foreign, was)
			}
		}
	}
}

// ofTwo is a command line of two processes, and the weights of one process with both devices.
func ofTwo(t *testing.T) (args []string, want string) {
	t.Helper()
	args = []string{
		"-m", "tiny", "--batch", "8", "--image", "16", "--debug", "threads=1", "--strategy", "1f1b-flush", "--microbatches", "2",
		"--profile", chainOf(t, "--debug", "threads=1"), "--steps", "4", "--checkpoint-every", "2", "--option", "checkpoint.keep=1",
	}
	return args, weights(t, works(t, append([]string{"train", "--devices", "cpu*2", "--json", "-q", "--out", t.TempDir()}, args...)...).out)
}

// processFaults are the faults of processes: which rank has them, and which. Without make test-faults they are a few.
func processFaults() (all []string) {
	if !allFaults {
		return []string{"0 20 ENOSPC", "1 4 EIO", "1 12 ENOSPC ever"}
	}
	for rank, operations := range []int{200, 60} {
		for after := 0; after < operations; after += 7 {
			all = append(all, fmt.Sprintf("%d %d ENOSPC", rank, after), fmt.Sprintf("%d %d EROFS ever", rank, after+2), fmt.Sprintf("%d %d EIO", rank, after+4))
		}
	}
	return all
}

// When an operation on the files of one process fails, all processes end by themselves, with one folder and with folders on disks of their
// own. When resumed, they end with the bits of one process. Only processes lock folders of their own, and tell each other of shards.
func TestProcessesOnFailingDisks(t *testing.T) {
	t.Parallel()
	args, want := ofTwo(t)
	for name, run := range map[string]func(t *testing.T, disk, faults string, more ...string) (code int, out, said string){
		"one folder": func(t *testing.T, disk, faults string, more ...string) (int, string, string) {
			p := inProcesses(t, 2, slices.Concat(args, []string{"--devices", "cpu", "--out", filepath.Join(disk, "run")}, more)...)
			p.Env = append(p.Env, asFaults+"="+faults)
			p.start()
			return p.end(), p.out.String(), p.err.String()
		},
		"disks of their own": func(t *testing.T, disk, faults string, more ...string) (int, string, string) {
			disks := []string{filepath.Join(disk, "0"), filepath.Join(disk, "1")}
			for _, d := range disks {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			all := onDisksWith(t, disks, faults, nil, slices.Concat(args, more)...)
			return max(all[0].end(), all[1].end()), all[0].out.String(), all[0].err.String() + all[1].err.String()
		},
	} {
		for _, faults := range processFaults() {
			t.Run(name+" "+faults, func(t *testing.T) {
				t.Parallel()
				disk := t.TempDir()
				code, out, said := run(t, disk, faults)
				switch {
				case code == exitOK && weights(t, out) != want:
					t.Error("other weights")
				case code != exitOK && (code != exitFailed && code != exitUsage || said == "" || strings.Contains(said, "BUG")):
					t.Errorf("exit code %d: %s", code, said)
				}
				if code, out, again := run(t, disk, "", "--resume"); code != exitOK || weights(t, out) != want {
					t.Errorf("exit code %d: %s: resumed: %d: %s", code, said, code, again)
				}
			})
		}
	}
}

// A folder of a rank other than 0 on a disk of its own is locked: a second run is refused, also by that rank alone. The folder that is
// put in its place while it runs is left alone.
func TestRanksLockTheirFolders(t *testing.T) {
	t.Parallel()
	args, _ := ofTwo(t)
	disks := []string{t.TempDir(), t.TempDir()}
	held, err := folder.Open(filepath.Join(disks[1], "run"), "")
	if err != nil {
		t.Fatal(err)
	}
	all := onDisks(t, disks, nil, args...)
	if all[1].ends(exitUsage); !strings.Contains(all[1].err.String(), "--out run is used by process") {
		t.Error(all[1].err.String())
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	mine, kept := filepath.Join(disks[1], "run"), filepath.Join(disks[1], "kept")
	all = onDisks(t, disks, func(p []*process) {
		p[0].until(filepath.Join(disks[0], "run"), 20)
		if err := errors.Join(os.Rename(mine, kept), os.Mkdir(mine, 0o755)); err != nil {
			t.Error(err)
		}
	}, append(slices.Clone(args), "--steps", "300", "--checkpoint-every", "50")...)
	if text := all[1].err.String(); all[1].end() != exitFailed || !strings.Contains(text, "was removed or replaced meanwhile") {
		t.Errorf("exit code %d: %s", all[1].end(), text)
	}
	if left := tree(t, mine); len(left) > 0 {
		t.Errorf("the folder in its place holds %q", left)
	}
}
