package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/report"
	"plimsoll/executor/checkpoint"
	"plimsoll/executor/train"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
	"plimsoll/internal/folder"
)

// keepFlags say what a run keeps on disk.
type keepFlags struct {
	out    outFlags
	every  int
	keep   int
	resume bool
	force  bool

	brought []brought // by another process
}

// brought is a file of a run.
type brought struct {
	name string
	text []byte
}

func (f *keepFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	f.out.register(cmd, "", "folder for the run's files")
	s.IntVar(&f.every, "checkpoint-every", 0, "steps between checkpoints in --out (default: only when interrupted)")
	optionsOf(cmd).IntVar(&f.keep, "checkpoint.keep", 3, "")
	s.BoolVar(&f.resume, "resume", false, "continue the run in --out from its newest checkpoint, or begin one")
	s.BoolVar(&f.force, "force", false, "begin anew, whatever run is in --out: its files are removed")
}

// check refuses flags that do not go together.
func (f *keepFlags) check() error {
	switch {
	case f.every < 0:
		return usage(fmt.Errorf("--checkpoint-every is %d: give a number of steps, or 0 for none", f.every))
	case f.out.path == "" && (f.every > 0 || f.resume || f.force || f.out.wait):
		return usage(errors.New("--out is missing: --checkpoint-every, --resume, --force and --option out.wait need a folder, as in --out runs/a"))
	case f.resume && f.force:
		return usage(errors.New("--resume goes on with the run in --out, --force removes it: give one of them"))
	}
	return nil
}

// Names in a run's folder.
const (
	runFile     = "run.json"
	logFile     = "log.jsonl"
	checkpoints = train.Checkpoints
	finalFile   = train.FinalWeights
	finalFolder = train.FinalFolder
	reportFile  = "report.html"
)

// trained are the files that training leaves besides checkpoints; runFiles are all files.
var (
	trained  = []string{logFile, finalFile, reportFile, report.FileName, "trace.json", checkpoint.AdapterWeights, checkpoint.AdapterSettings}
	runFiles = append([]string{runFile, "chain.json", "plan.json", checkpoints, finalFolder}, trained...)
)

// runFolder is the folder of a run, which may have one in it already. Without --out it is nil, and does nothing.
type runFolder struct {
	*folder.Folder
	app   *app
	flags *keepFlags
	steps int // that are asked for
	saves train.Saves
	was   *train.RunFile // of the run that is in it; nil when there is none, or nothing says which
}

// openFolder opens the folder of a run, and refuses one with another run in it.
func openFolder(ctx context.Context, a *app, flags *keepFlags, steps int, run string) (f *runFolder, err error) {
	out, err := flags.out.open(ctx, a, run)
	if out == nil {
		return nil, err
	}
	f = &runFolder{Folder: out, app: a, flags: flags, steps: steps, saves: flags.saves(out)}
	if err := firstOf(usage(f.take()), f.look()); err != nil {
		return nil, firstOf(err, f.Close())
	}
	return f, nil
}

// saves returns the checkpoints and the trained weights that a run writes into its folder.
func (f *keepFlags) saves(out *folder.Folder) train.Saves {
	s := train.SavesIn(out.Dir, f.keep, f.every)
	s.Dir.While(out.Check)
	return s
}

// take writes the files of the run that another process has brought.
func (f *runFolder) take() error {
	for _, b := range f.flags.brought {
		if err := f.Write(b.name, func(w io.Writer) error { _, err := w.Write(b.text); return err }); err != nil {
			return f.unusable(err)
		}
	}
	return nil
}

// look finds out what is in the folder.
func (f *runFolder) look() (err error) {
	found := ""
	for _, name := range runFiles {
		info, err := f.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return f.unusable(err)
		case info.IsDir() && name != checkpoints && name != finalFolder:
			return usage(fmt.Errorf("--out %s: %s is a folder, where a run has a file: give another --out", f.flags.out.path, name))
		case (name == checkpoints || name == finalFolder) && !info.IsDir():
			return usage(fmt.Errorf("--out %s: %s is not what a run has there: give another --out", f.flags.out.path, name))
		}
		found = cmp.Or(found, name)
	}
	if _, err := f.saves.Dir.Steps(); err != nil {
		return f.unusable(err)
	}
	switch {
	case found == "" || f.flags.force:
		return nil
	case !f.flags.resume:
		return usage(fmt.Errorf("--out %s holds a run (%s): go on with it with --resume, begin anew with --force, or give another folder", f.flags.out.path, found))
	}
	if f.was, err = train.ReadRunFile(f.Dir, runFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return usage(err)
}

// unusable says why nothing can be written into the folder.
func (f *runFolder) unusable(err error) error {
	return usage(fmt.Errorf("--out %s: %w", f.flags.out.path, err))
}

// Close gives the folder back.
func (f *runFolder) Close() error {
	if f == nil {
		return nil
	}
	return f.Folder.Close()
}

// keep says what the run itself writes.
func (f *runFolder) keep() train.Saves {
	if f == nil {
		return train.Saves{}
	}
	return f.saves
}

// choices returns the choices of algorithms of the run in the folder, for a run that goes on; nil: there are none.
func (f *runFolder) choices() json.RawMessage {
	if f == nil || f.was == nil {
		return nil
	}
	return f.was.Choices
}

// ended returns the file of a run that has ended, nil when that which is asked for is not in the folder or has not. Errors:
// train.ErrOtherRun.
func (f *runFolder) ended(r *train.Run) (*train.RunFile, error) {
	if f == nil || f.was == nil {
		return nil, nil
	}
	notes, err := f.was.Compare(f.Path(runFile), r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: give another folder, or begin anew with --force", err)
	case f.was.Summary == nil || f.was.Steps < f.steps || !r.Saves.Final.Dir.Has(r.Saves.Final.Name):
		return nil, nil
	case f.was.Steps > f.steps:
		return nil, fmt.Errorf("%w: %s is of %d steps, and --steps is %d: give more", train.ErrOtherRun, f.Path(runFile), f.was.Steps, f.steps)
	}
	for _, n := range notes {
		f.app.note("trained otherwise than asked for: %s", n)
	}
	f.app.note("%s: the run has ended, all %d steps are done; more --steps go on from a checkpoint, --force begins anew", f.flags.out.path, f.was.Steps)
	return f.was, nil
}

// resume makes the run go on from the newest good checkpoint in the folder, if there is any. Without one it begins anew, unless
// that would cost what it cannot make again.
func (f *runFolder) resume(r *train.Run) error {
	if f == nil || !f.flags.resume {
		return nil
	}
	latest := f.saves.Dir.Latest
	if r.World != nil {
		latest = func() (*checkpoint.Checkpoint, []error, error) { return r.World.Latest(f.saves.Dir) }
	}
	c, bad, err := latest()
	for _, b := range bad {
		f.app.warn("not used: %v", b)
	}
	if errors.Is(err, checkpoint.ErrNone) {
		return f.anew(err, bad)
	}
	if err != nil {
		return usage(err)
	}
	notes, err := r.Resume(c)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	for _, n := range notes {
		f.app.note("resumed otherwise than it was saved: %s", n)
	}
	f.app.note("resumed from %s: %d of %d steps are done", c.Name(), c.Step, r.Steps)
	return nil
}

// anew reports why a run without a good checkpoint cannot simply begin; nil when it can.
func (f *runFolder) anew(none error, bad []error) error {
	const how = "begin anew with --force, or give another folder"
	out := f.flags.out.path
	// A run that was killed while it saved its first checkpoint loses nothing by beginning anew.
	if slices.ContainsFunc(bad, func(b error) bool { return !errors.Is(b, checkpoint.ErrIncomplete) }) {
		return usage(fmt.Errorf("--resume: %w: %s", none, how))
	}
	if f.was != nil && f.was.Summary != nil {
		return usage(fmt.Errorf("--resume: the run in %s has ended after %d steps and left no checkpoint to go on from: %s", out, f.was.Steps, how))
	}
	if i := slices.IndexFunc(trained, f.Has); f.was == nil && i >= 0 {
		return usage(fmt.Errorf("--resume: %s in %s is of a run that nothing is known of, without %s and without a checkpoint: %s", trained[i], out, runFile, how))
	}
	f.app.note("no checkpoint in %s: the run begins", out)
	return nil
}

// begin writes which run the folder is of, with its chain and its plan. It begins or goes on with the log, which then has each step
// that is done once. A run that begins anew removes what another has left.
func (f *runFolder) begin(r *train.Run) (*runLog, error) {
	if f == nil {
		return &runLog{}, nil
	}
	if err := f.write(r, nil, ""); err != nil {
		return nil, err
	}
	if r.From == nil {
		if err := f.clear(); err != nil {
			return nil, err
		}
	}
	if err := f.cutLog(r); err != nil {
		return nil, err
	}
	if err := firstOf(r.Chain.Validate(), f.Write("chain.json", r.Chain.Encode)); err != nil {
		return nil, err
	}
	if err := f.Write("plan.json", r.Plan.Encode); err != nil {
		return nil, err
	}
	file, err := f.Append(logFile)
	return &runLog{app: f.app, at: f.Dir, file: file}, err
}

// clear removes what another run has left.
func (f *runFolder) clear() error {
	for _, name := range trained {
		if err := f.Remove(name); err != nil {
			return err
		}
	}
	if err := f.clearFinal(); err != nil {
		return err
	}
	return f.saves.Dir.Clear()
}

// clearFinal removes the files of a model of a folder that another run has left.
func (f *runFolder) clearFinal() error {
	final := f.Sub(finalFolder)
	files, err := final.List()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range files {
		if !file.IsDir() {
			err = errors.Join(err, final.Remove(file.Name()))
		}
	}
	return err
}

// write writes which run the folder is of and, at its end, what it gave.
func (f *runFolder) write(r *train.Run, summary json.RawMessage, text string) error {
	now := r.File()
	now.Steps, now.Summary, now.Text = f.steps, summary, text
	return f.Write(runFile, now.Encode)
}

// end writes what a run gave: its report, its trace and, last, its summary.
func (f *runFolder) end(r *train.Run, o *train.Outcome, figures *trainFigures) error {
	if f == nil {
		return nil
	}
	if err := f.Check(); err != nil {
		return err
	}
	if err := firstOf(f.writeRun(r, o), o.Unsaved); err != nil {
		return err
	}
	summary, err := fields.Marshal(figures)
	if err != nil {
		return err
	}
	var text strings.Builder
	figures.write(&text, r, f.app.verbose)
	return f.write(r, summary, text.String())
}

// runLog is log.jsonl of a run.
//
// Invariant: the file holds whole lines and a beginning of pending, which is empty unless writing fails.
type runLog struct {
	app     *app
	at      *folder.Dir
	file    atomicfile.File // nil without --out
	pending []byte
	failed  bool // and said so
}

// cutLog reads the log of the steps that are done and leaves nothing else in it.
func (f *runFolder) cutLog(r *train.Run) error {
	done, path := 0, f.Path(logFile)
	if r.From != nil {
		done = int(r.From.Step)
	}
	file, err := f.Open(logFile)
	if err == nil {
		past, err := train.ReadHistory(io.NewSectionReader(file, 0, math.MaxInt64), done)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.Past = *past
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if n := len(r.Past.Steps); n != done {
		f.app.warn("%s has %d of the %d steps that are done", path, n, done)
	}
	return f.Write(logFile, r.Past.Write)
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
	err := l.flush(true)
	if err == nil && !l.at.Names(logFile, l.file) {
		err = fmt.Errorf("%s was removed or replaced meanwhile: what was logged is lost", l.at.Path(logFile))
	}
	return errors.Join(err, l.file.Close())
}

// writeRun writes the report and the trace of a finished run.
func (f *runFolder) writeRun(r *train.Run, o *train.Outcome) error {
	page, err := bench.RunPage(r, o, f.app.facts()...)
	if err != nil {
		return err
	}
	if err := page.WriteIn(f.Dir, reportFile); err != nil {
		return err
	}
	t, err := bench.RunTrace(r, o)
	if err != nil {
		return err
	}
	return f.Write("trace.json", t.Write)
}
