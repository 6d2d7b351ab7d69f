package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"plimsoll/executor/checkpoint"
	"plimsoll/internal/fields"
	"plimsoll/internal/folder"
)

// RunFormat is the field "format" of run.json.
const RunFormat = "plimsoll.run/v1"

// ErrRunFile says that a run.json cannot be used.
var ErrRunFile = errors.New("bad run file")

// RunFile is run.json in a run's folder: whose files are in it, and what came out.
type RunFile struct {
	Settings checkpoint.Meta // of the run, as its checkpoints have them; nothing of a step or a plan
	Steps    int             // that were asked for
	Choices  json.RawMessage // of algorithms, as in Spec: a run that goes on repeats them; nil where there was nothing to choose
	Summary  json.RawMessage // what the program gave at the end; nil before
	Text     string          // the same for people
}

// File returns the run file of a run that has not begun.
func (r *Run) File() *RunFile {
	return &RunFile{Settings: r.settings(), Steps: r.Steps, Choices: r.Job.Kernels.Choices}
}

// ReadRunFile reads the run.json of a folder. Errors: ErrRunFile, folder.ErrForeign, those of the operating system.
func ReadRunFile(at *folder.Dir, name string) (*RunFile, error) {
	return fields.ReadIn[RunFile](at, name)
}

// Encode writes a run.json.
func (f *RunFile) Encode(w io.Writer) error {
	list := fields.List{{Name: "format", Value: RunFormat}, {Name: "settings", Value: f.Settings}, {Name: "steps", Value: f.Steps}}
	if f.Choices != nil {
		list = append(list, fields.Field{Name: "choices", Value: f.Choices})
	}
	if f.Summary != nil {
		list = append(list, fields.Field{Name: "summary", Value: f.Summary}, fields.Field{Name: "text", Value: f.Text})
	}
	return list.WriteLines(w)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *RunFile) UnmarshalJSON(text []byte) error {
	o, err := fields.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRunFile, err)
	}
	o.Format(RunFormat)
	o.Require("settings", "steps")
	read := RunFile{Steps: int(o.Size("steps", 0)), Choices: o.Raw("choices"), Summary: o.Raw("summary"), Text: o.Text("text", "")}
	settings := o.Raw("settings")
	if err := o.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrRunFile, err)
	}
	if err := json.Unmarshal(settings, &read.Settings); err != nil {
		return fmt.Errorf("%w: %w", ErrRunFile, err)
	}
	*f = read
	return nil
}

// Compare says in what a run that is asked for differs from that of the file at path, where it may. Errors: ErrOtherRun, with what
// else differs.
func (f *RunFile) Compare(path string, r *Run) (notes []string, err error) {
	want := r.settings()
	return differences(path, &f.Settings, &want)
}
