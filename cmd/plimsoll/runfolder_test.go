package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// contents returns every file under a folder with what is in it.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range tree(t, folder) {
		all[name] = read(t, filepath.Join(folder, name))
	}
	return all
}

// sameContents reports a folder that is not as it was.
func sameContents(t *testing.T, folder string, was map[string]string) {
	t.Helper()
	now := contents(t, folder)
	for name, text := range was {
		if now[name] != text {
			t.Errorf("%s changed or is gone", name)
		}
	}
	if len(now) != len(was) {
		t.Errorf("the folder has %d files, and had %d", len(now), len(was))
	}
}

// A run that has ended stays as it is. When it is resumed, it gives the same results, on one device and on several, with checkpoints and
// without. Whatever else is asked for, none of its files changes. --force begins anew.
func TestAFinishedRunIsFinished(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"plain":       small(t, 4, "--memory", "90%"),
		"checkpoints": small(t, 4, "--checkpoint-every", "2"),
		"pipeline":    onDevices(2, "gpipe", 4, "--microbatches", "4"),
	} {
		out := filepath.Join(t.TempDir(), "run")
		args = append(args, "--out", out)
		first := works(t, args...).out
		was := contents(t, out)
		again := works(t, append(slices.Clone(args), "--resume")...)
		if again.out != first {
			t.Errorf("%s: resumed it gives\n%safter\n%s", name, again.out, first)
		}
		text := works(t, append(slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "--json" || s == "-q" }), "--resume")...)
		if !strings.Contains(text.err, "the run has ended, all 4 steps are done") || !strings.Contains(text.out, "sha256 "+weights(t, first)) {
			t.Errorf("%s: %s%s", name, text.err, text.out)
		}
		for want, more := range map[string][]string{
			`seed was \"1\" and is \"9\" here`:       {"--seed", "9"},
			`model was \"tiny\" and is \"mlp\" here`: {"-m", "mlp", "--option", "profile.no-cache"},
			"--steps is 3: give more":                {"--steps", "3", "--warmup", "0"},
			"--resume goes on with the run in":       {"--force"},
			`optimizer was \"sgd\" and is \"adam\"`:  {"--optimizer", "adam"},
		} {
			if r := plimsoll(t, append(append(slices.Clone(args), "--resume"), more...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
				t.Errorf("%s, %v: exit code %d: %s", name, more, r.code, r.err)
			}
		}
		sameContents(t, out, was)
		forced := works(t, append(slices.Clone(args), "--force", "--seed", "9", "--checkpoint-every", "4")...).out
		if weights(t, forced) == weights(t, first) {
			t.Errorf("%s: --force --seed 9 trains what --seed 1 does", name)
		}
		wantSteps := slices.DeleteFunc(tree(t, filepath.Join(out, checkpoints)), func(s string) bool { return strings.HasPrefix(s, "step-4") })
		if len(wantSteps) > 0 {
			t.Errorf("%s: checkpoints of the old run stay: %v", name, wantSteps)
		}
	}
}

// A run that has ended goes on for more steps from a checkpoint; without one, or without what says whose it is, nothing of it is
// removed.
func TestAFinishedRunGoesOnFromACheckpointAlone(t *testing.T) {
	t.Parallel()
	args := small(t, 4, "--lr-schedule", "constant", "--warmup", "0")
	more := slices.Clone(args)
	more[slices.Index(more, "--steps")+1] = "6"
	want := weights(t, works(t, more...).out)
	bare, kept := filepath.Join(t.TempDir(), "bare"), filepath.Join(t.TempDir(), "kept")
	works(t, append(slices.Clone(args), "--out", bare)...)
	works(t, append(slices.Clone(args), "--out", kept, "--checkpoint-every", "2")...)
	was := contents(t, bare)
	refused := func(why string) {
		t.Helper()
		if r := plimsoll(t, append(slices.Clone(more), "--out", bare, "--resume")...); r.code != exitUsage || !strings.Contains(r.err, why) || !strings.Contains(r.err, "--force") {
			t.Errorf("exit code %d: %s", r.code, r.err)
		}
		sameContents(t, bare, was)
	}
	refused("has ended after 4 steps and left no checkpoint")
	if err := os.Remove(filepath.Join(bare, runFile)); err != nil {
		t.Fatal(err)
	}
	delete(was, runFile)
	refused("nothing is known of")
	if got := works(t, append(slices.Clone(more), "--out", kept, "--resume")...).out; weights(t, got) != want {
		t.Errorf("gone on: %s", got)
	}
	wantLog(t, kept, 6, 4, 6)
}

// toFile makes a program that is not started write its notes to a file.
func (p *process) toFile() (path string) {
	p.t.Helper()
	f, err := os.Create(filepath.Join(p.t.TempDir(), "stderr"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = f.Close() }) // which the program has written
	p.Stderr = f
	return f.Name()
}

// says waits until a text is in a file that the program writes.
func (p *process) says(path, text string) {
	p.t.Helper()
	for !strings.Contains(read(p.t, path), text) {
		select {
		case <-p.over:
			if said := read(p.t, path); !strings.Contains(said, text) {
				p.t.Fatalf("it ended and never said %q: %s", text, said)
			}
		case <-time.After(time.Millisecond):
		}
	}
}

// One process at a time writes into --out: a second one is refused, and told by whom, or waits; what a killed one has left is taken
// over.
func TestOneProcessHasTheFolder(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	args := small(t, 1_000_000, "--lr-schedule", "constant", "--warmup", "0", "--out", out)
	p := start(t, args...)
	p.until(out, 3)
	name := []string{"--out", out}
	for _, line := range [][]string{
		append(slices.Clone(args), "--resume"), append(slices.Clone(args), "--force"), args,
		append([]string{"validate", "-m", "tiny", "--batch", "2", "--image", "16"}, name...),
		append([]string{"bench", "-c", five}, name...),
		append([]string{"bench", "pipelines", "-c", five, "--memory", "1MB", "--bandwidths", "1kB/s"}, name...),
		append([]string{"demo"}, name...),
	} {
		r := plimsoll(t, line...)
		if r.code != exitUsage || !strings.Contains(r.err, fmt.Sprintf("is used by process %d of ", p.Process.Pid)) {
			t.Errorf("%v: exit code %d: %s", line, r.code, r.err)
		}
	}
	later := program(t, nil, append(slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "-q" }), "--resume", "--option", "out.wait")...)
	says := later.toFile()
	later.start()
	later.says(says, "waiting")
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
	later.says(says, fmt.Sprintf("was left by process %d", p.Process.Pid))
	later.says(says, "the run begins")
	later.until(out, 1)
	if err := later.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := later.end(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if slices.Contains(tree(t, out), ".plimsoll.lock") {
		t.Error("the lock stays")
	}
}

// Half-written files of processes that were killed are gone after the next start, wherever a run writes.
func TestTemporaryFilesAreCleaned(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	args := small(t, 4, "--out", out, "--checkpoint-every", "2", "--resume")
	works(t, args...)
	unfinish(t, out)
	for _, name := range []string{".log.jsonl.tmp-7-0", ".final.safetensors.tmp-7-0", checkpoints + "/.step-3.safetensors.tmp-7-0"} {
		write(t, filepath.Join(out, name), "half")
	}
	args[slices.Index(args, "--steps")+1] = "6"
	works(t, append(args, "--lr-schedule", "constant", "--warmup", "0")...)
	for _, name := range tree(t, out) {
		if strings.Contains(name, "tmp") {
			t.Errorf("%s stays", name)
		}
	}
}

// A folder that holds something else under the name of a file of a run is refused before anything is done, and left alone.
func TestFoldersInTheWay(t *testing.T) {
	t.Parallel()
	args := small(t, 3)
	for _, name := range runFiles {
		for _, how := range []string{"", "--resume", "--force"} {
			out := t.TempDir()
			bad := filepath.Join(out, name)
			if name == checkpoints || name == finalFolder {
				write(t, bad, "a file")
			} else if err := os.MkdirAll(filepath.Join(bad, "inner"), 0o700); err != nil {
				t.Fatal(err)
			}
			line := append(slices.Clone(args), "--out", out)
			if how != "" {
				line = append(line, how)
			}
			r := plimsoll(t, line...)
			if r.code != exitUsage || !strings.Contains(r.err, name) {
				t.Errorf("%s %s: exit code %d: %s", name, how, r.code, r.err)
			}
			if entries, err := os.ReadDir(out); err != nil || len(entries) != 1 {
				t.Errorf("%s %s: %v, %v", name, how, entries, err)
			}
		}
	}
	bad := t.TempDir()
	write(t, filepath.Join(bad, runFile), `{"format":"plimsoll.run/v1","steps":2,"settings":{}}`)
	if r := plimsoll(t, append(slices.Clone(args), "--out", bad, "--resume")...); r.code != exitUsage || !strings.Contains(r.err, runFile) {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// A run whose folder is removed, or replaced, while it trains says so and fails.
// If --out is removed meanwhile, only this test finds a run of one process that ends as if it had saved.
func TestRunsWhoseFolderGoes(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		out := filepath.Join(t.TempDir(), "run")
		p := start(t, small(t, 3000, "--out", out, "--checkpoint-every", "1000")...)
		p.until(out, 5)
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		if again {
			if err := os.Mkdir(out, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if code := p.end(); code != exitFailed || !strings.Contains(p.err.String(), "removed") {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
		weights(t, p.out.String()) // what was trained is told
		if entries, _ := os.ReadDir(out); len(entries) > 0 {
			t.Errorf("it wrote into what is another's: %v", entries)
		}
	}
}

// A log that is removed while it is written is missed.
func TestALogThatGoes(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	p := start(t, small(t, 2000, "--out", out)...)
	p.until(out, 5)
	if err := os.Remove(filepath.Join(out, logFile)); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != exitFailed || !strings.Contains(p.err.String(), logFile) {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// A terminal that is closed, and whoever reads the notes going away, end a run as Ctrl-C does: what was trained is saved. Under nohup
// a run goes on.
func TestHangUpsSave(t *testing.T) {
	t.Parallel()
	args := small(t, 1_000_000, "--lr-schedule", "constant", "--warmup", "0")
	t.Run("SIGHUP", func(t *testing.T) {
		if signal.Ignored(syscall.SIGHUP) {
			t.Skip("these tests run under nohup, and so does what they start")
		}
		out := filepath.Join(t.TempDir(), "run")
		p := start(t, append(slices.Clone(args), "--out", out)...)
		p.until(out, 20)
		for range 3 { // shells pass it on, and the terminal sends its own
			if err := p.Process.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		}
		wantSaved(t, p, out)
	})
	t.Run("stderr", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "run")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		loud := slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "-q" })
		p := program(t, nil, append(loud, "--out", out, "--eval-every", "10")...)
		p.Stderr = w
		p.start()
		p.until(out, 20)
		if err := errors.Join(r.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		wantSaved(t, p, out)
	})
	t.Run("nohup", func(t *testing.T) {
		nohup, err := exec.LookPath("nohup")
		if err != nil {
			t.Skip(err)
		}
		out := filepath.Join(t.TempDir(), "run")
		p := program(t, []string{nohup}, append(slices.Clone(args), "--out", out)...)
		p.start()
		p.until(out, 20)
		if err := p.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		p.until(out, logged(out)+100)
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		wantSaved(t, p, out)
	})
}

// wantSaved waits for a run that was interrupted and looks for its checkpoint.
func wantSaved(t *testing.T, p *process, out string) {
	t.Helper()
	if code := p.end(); code != exitFailed {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	if want := fmt.Sprintf("checkpoints/step-%d.safetensors", steps(t, out)); !slices.Contains(tree(t, out), want) {
		t.Errorf("no %s among %v", want, tree(t, out))
	}
}

// steps counts the steps in a log.
func steps(t *testing.T, out string) int {
	t.Helper()
	return strings.Count(read(t, filepath.Join(out, logFile)), `{"step":`)
}

// If results cannot be written to standard output, any command fails. If nobody reads them (plimsoll | head), the command ends without a
// message. In both cases the folder holds the trained weights.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = full.Close() }) // that nothing was written to
	out := filepath.Join(t.TempDir(), "run")
	args := small(t, 3, "--out", out)
	for _, line := range [][]string{
		{"version"}, {"launch", "-n", "1", "--", "version"}, {"--help"}, {"plan", "--list"}, {"plan", "-c", five, "--memory", "80%"}, {"frontier", "-c", five, "--json"}, {"devices"},
		args, append(slices.Clone(args), "--resume"),
	} {
		for _, to := range []io.Writer{full, closedPipe(t)} {
			if slices.Contains(line, out) && !slices.Contains(line, "--resume") && to != full { // it has ended
				continue
			}
			p := program(t, nil, line...)
			p.Stdout = to
			p.start()
			code, text := p.end(), p.err.String()
			if to == full && (code != exitFailed || !strings.Contains(text, "standard output is lost")) || to != full && (code != exitUnread || text != "") {
				t.Errorf("%v: exit code %d: %s", line, code, text)
			}
		}
	}
	weights(t, works(t, append(args, "--resume")...).out)
}

// closedPipe returns the end of a pipe that nobody reads.
func closedPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // that nothing was written to
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

// If a measurement cannot be kept, it is used all the same, and a note says that it is not kept.
func TestACacheThatCannotBeWritten(t *testing.T) {
	// Serial: it sets environment variables.
	args := []string{"train", "-m", "tiny", "--batch", "8", "--image", "16", "--steps", "2", "--option", "profile.steps=1"}
	for name, home := range map[string]string{"a file": write(t, filepath.Join(t.TempDir(), "cache"), ""), "read-only": "/proc"} {
		t.Setenv("XDG_CACHE_HOME", home)
		r := plimsoll(t, args...)
		if r.code != exitOK || !strings.Contains(r.err, "the measurement is not kept") || !strings.Contains(r.err, home) {
			t.Errorf("%s: exit code %d: %s", name, r.code, r.err)
		}
	}
}

// A trace of what is no plan, or not this chain's, is refused as bad input and leaves no file.
func TestTraceOfBadPlans(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	out := filepath.Join(folder, "t.json")
	plan := func(ops string, memory int) string {
		return `{"format":"plimsoll.plan/v1","chain":"five","strategy":"x","memory_bytes":` + strconv.Itoa(memory) + `,"predicted":{"makespan_s":1,"peak_bytes":1,"idle_s":0},"ops":[` + ops + `]}`
	}
	for name, text := range map[string]string{
		"not JSON":      "x",
		"illegal":       plan(`{"op":"backward","layer":5}`, 9999),
		"no ops":        plan("", 9999),
		"other chain":   strings.Replace(plan(`{"op":"backward","layer":5}`, 9999), "five", "six", 1),
		"too little":    plan(`{"op":"forward_all","layer":1}`, 1),
		"no such layer": plan(`{"op":"forward_all","layer":99}`, 9999),
		"a pipeline":    `{"format":"plimsoll.plan/v1","chain":"five","strategy":"x","stages":[{"first_layer":1,"last_layer":5,"devices":[0]}],"period_s":1,"tasks":[]}`,
	} {
		path := write(t, filepath.Join(folder, "p.json"), text)
		if r := plimsoll(t, "trace", "-c", five, "-p", path, "-o", out); r.code != exitUsage || !strings.Contains(r.err, path) {
			t.Errorf("%s: exit code %d: %s", name, r.code, r.err)
		}
	}
	if r := plimsoll(t, "trace", "-c", five, "-p", folder, "-o", out); r.code != exitUsage {
		t.Errorf("a folder: exit code %d: %s", r.code, r.err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("there is a trace")
	}
	// That the disk is full is not the plan's fault.
	args := []string{"trace", "-c", five, "--text", "Fall1 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 B1", "-o", "/dev/full"}
	if r := plimsoll(t, args...); r.code != exitFailed || strings.Contains(r.err, "--text") {
		t.Errorf("a full disk: exit code %d: %s", r.code, r.err)
	}
}
