package train

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/folder"
)

// A run file reads back as it was written, and matches its own run alone.
func TestRunFile(t *testing.T) {
	t.Parallel()
	r := planned(t, opened(t, tiny(8)), 5)
	path := filepath.Join(t.TempDir(), "run.json")
	f := r.File()
	if err := atomicfile.WriteFile(path, f.Encode); err != nil {
		t.Fatal(err)
	}
	read, err := ReadRunFile(folder.At(filepath.Dir(path)), filepath.Base(path))
	if err != nil || read.Steps != 5 || read.Summary != nil {
		t.Fatalf("%+v, %v", read, err)
	}
	if notes, err := read.Compare(path, r); err != nil || len(notes) > 0 {
		t.Errorf("the same run: %v, %v", notes, err)
	}
	f.Summary, f.Text, f.Choices = json.RawMessage(`{"loss":0.5}`), "loss 0.5\n", json.RawMessage(`[{"algorithm":"ours"}]`)
	if err := atomicfile.WriteFile(path, f.Encode); err != nil {
		t.Fatal(err)
	}
	if read, err = ReadRunFile(folder.At(filepath.Dir(path)), filepath.Base(path)); err != nil || string(read.Summary) != string(f.Summary) || string(read.Choices) != string(f.Choices) || read.Text != f.Text {
		t.Errorf("%+v, %v", read, err)
	}
	r.MaxNorm = 2
	if notes, err := read.Compare(path, r); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "clip_norm") {
		t.Errorf("another norm: %v, %v", notes, err)
	}
	other := tiny(8)
	other.Seed = 77
	if _, err := read.Compare(path, planned(t, opened(t, other), 5)); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), `is "77" here`) {
		t.Errorf("another seed: %v", err)
	}
}

// FuzzReadRunFile: what is read is written and read again as it was; everything else is refused by name.
func FuzzReadRunFile(f *testing.F) {
	f.Add([]byte(`{"format":"plimsoll.run/v1","settings":{},"steps":1}`))
	f.Add([]byte(`{"format":"plimsoll.run/v1","settings":{"format":"plimsoll.checkpoint/v1","step":"0","seed":"1","position":"0","model":"tiny","plan":"",` +
		`"optimizer":"sgd","optimizer_settings":"{}","schedule":"constant","library":"cpu","threads":"2","data":"digits"},"steps":5,"summary":{"a":[1]},"text":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "run.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		was, err := ReadRunFile(folder.At(filepath.Dir(path)), filepath.Base(path))
		if err != nil {
			if !errors.Is(err, ErrRunFile) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v", err)
			}
			return
		}
		if err := atomicfile.WriteFile(path, was.Encode); err != nil {
			t.Fatal(err)
		}
		now, err := ReadRunFile(folder.At(filepath.Dir(path)), filepath.Base(path))
		if err != nil || now.Steps != was.Steps || (now.Summary == nil) != (was.Summary == nil) {
			t.Fatalf("%+v became %+v, %v", was, now, err)
		}
		if list, err := was.Settings.Differences(&now.Settings); err != nil || len(list) > 0 {
			t.Errorf("%v, %v", list, err)
		}
	})
}
