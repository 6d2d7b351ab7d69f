package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/executor/checkpoint"
	"plimsoll/executor/train"
	"plimsoll/internal/atomicfile"
)

// keepFlags say what a run keeps on disk.
type keepFlags struct {
	out    string
	every  int
	keep   int
	resume bool
}

func (f *keepFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.out, "out", "", "folder for the run's files")
	s.IntVar(&f.every, "checkpoint-every", 0, "steps between checkpoints in --out (default: only when interrupted)")
	s.IntVar(&f.keep, "keep", 3, "checkpoints that are kept, the newest")
	s.BoolVar(&f.resume, "resume", false, "go on from the newest checkpoint in --out, or begin when there is none")
}

// Names in a run's folder.
const (
	logFile     = "log.jsonl"
	checkpoints = "checkpoints"
	finalFile   = "final.safetensors"
)

// runFiles are all of them.
var runFiles = []string{"chain.json", "plan.json", logFile, checkpoints, finalFile, "report.html", "trace.json"}

// check refuses flags that do not go together, and a folder with another run in it.
func (f *keepFlags) check() error {
	switch {
	case f.every < 0:
		return usage(fmt.Errorf("--checkpoint-every is %d: give a number of steps, or 0 for none", f.every))
	case f.keep < 1:
		return usage(fmt.Errorf("--keep is %d: at least 1 checkpoint is kept", f.keep))
	case f.out == "" && (f.every > 0 || f.resume):
		return usage(errors.New("--out is missing: --checkpoint-every and --resume need a folder, as in --out runs/a"))
	case f.out == "":
		return nil
	}
	if err := makeable(f.out); err != nil || f.resume {
		return err
	}
	for _, name := range runFiles {
		if _, err := os.Lstat(filepath.Join(f.out, name)); err == nil {
			return usage(fmt.Errorf("--out %s holds a run (%s): go on with it with --resume, or give another folder", f.out, name))
		}
	}
	return nil
}

func (f *keepFlags) path(name string) string { return filepath.Join(f.out, name) }

// saves returns what the run itself writes.
func (f *keepFlags) saves() train.Saves {
	if f.out == "" {
		return train.Saves{}
	}
	return train.Saves{Dir: checkpoint.NewDir(f.path(checkpoints), f.keep), Every: f.every, Final: f.path(finalFile)}
}

// resume makes the run go on from the newest good checkpoint in its folder, if there is any.
func (a *app) resume(f keepFlags, r *train.Run) error {
	if !f.resume {
		return nil
	}
	c, bad, err := r.Saves.Dir.Latest()
	for _, b := range bad {
		a.warn("not used: %v", b)
	}
	// What was killed while it saved its first checkpoint has lost nothing by beginning anew.
	damaged := slices.ContainsFunc(bad, func(b error) bool { return !errors.Is(b, checkpoint.ErrIncomplete) })
	switch {
	case errors.Is(err, checkpoint.ErrNone) && !damaged:
		a.note("no checkpoint in %s: the run begins", f.out)
		return nil
	case errors.Is(err, checkpoint.ErrNone):
		return usage(fmt.Errorf("--resume: %w: remove the folder to begin anew", err))
	case err != nil:
		return input(err)
	}
	notes, err := r.Resume(c)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	for _, n := range notes {
		a.note("resumed otherwise than it was saved: %s", n)
	}
	a.note("resumed from %s: %d of %d steps are done", c.Name(), c.Step, r.Steps)
	return nil
}

// runLog is log.jsonl of a run.
//
// Invariant: the file holds whole lines and a beginning of pending, which is empty unless writing fails.
type runLog struct {
	app     *app
	file    *os.File // nil without --out
	pending []byte
	failed  bool // and said so
}

// openRun makes the folder of a run, with its chain and its plan, and begins or goes on with the log, which then has each
// step that is done once. The results of an earlier end are removed: they would not belong to the rest.
func (a *app) openRun(f keepFlags, r *train.Run) (*runLog, error) {
	if f.out == "" {
		return &runLog{}, nil
	}
	if err := folder("--out", f.out); err != nil {
		return nil, err
	}
	if err := a.cutLog(f.path(logFile), r); err != nil {
		return nil, err
	}
	for _, name := range []string{finalFile, "report.html", "trace.json"} {
		if err := os.RemoveAll(f.path(name)); err != nil {
			return nil, err
		}
	}
	if err := r.Chain.Write(f.path("chain.json")); err != nil {
		return nil, err
	}
	if err := writePlan(r, f.path("plan.json")); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(f.path(logFile), os.O_WRONLY|os.O_APPEND, 0)
	return &runLog{app: a, file: file}, err
}

// cutLog reads the log of the steps that are done and leaves nothing else in it.
func (a *app) cutLog(path string, r *train.Run) error {
	done := 0
	if r.From != nil {
		done = int(r.From.Step)
	}
	file, err := os.Open(path)
	if err == nil {
		past, err := train.ReadHistory(file, done)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.Past = *past
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if n := len(r.Past.Steps); n != done {
		a.warn("%s has %d of the %d steps that are done", path, n, done)
	}
	return atomicfile.WriteFile(path, r.Past.Write)
}

// add appends an entry; sync makes the log durable, for a checkpoint that follows. A log that cannot be written is said
// once and tried again with the next entry: what is trained counts more.
func (l *runLog) add(entry any, sync bool) error {
	if l.file == nil {
		return nil
	}
	line, err := train.Line(entry)
	if err != nil {
		return err
	}
	l.pending = append(l.pending, line...)
	if err := l.flush(sync); err != nil && !l.failed {
		l.failed = true
		l.app.warn("the log cannot be written, the run goes on: %v", err)
	}
	return nil
}

func (l *runLog) flush(sync bool) error {
	n, err := l.file.Write(l.pending)
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	if err == nil && sync {
		err = l.file.Sync()
	}
	return err
}

func (l *runLog) close() error {
	if l.file == nil {
		return nil
	}
	return errors.Join(l.flush(true), l.file.Close())
}

// writeRun writes the report and the trace of a finished run.
func writeRun(out string, r *train.Run, o *train.Outcome) error {
	if out == "" {
		return nil
	}
	page, err := bench.RunPage(r, o)
	if err != nil {
		return err
	}
	if err := page.WriteFile(filepath.Join(out, "report.html")); err != nil {
		return err
	}
	t, err := bench.RunTimeline(r, o).Trace(r.Job.Device.Name)
	if err != nil {
		return err
	}
	return t.WriteFile(filepath.Join(out, "trace.json"))
}
