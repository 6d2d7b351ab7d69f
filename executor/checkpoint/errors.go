package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/folder"
)

var (
	// ErrFormat: a file is not a checkpoint, or a field of its metadata cannot be used.
	ErrFormat = errors.New("not a checkpoint")
	// ErrDamaged: a checkpoint's bytes are not those that were saved.
	ErrDamaged = errors.New("the checkpoint is damaged")
	// ErrIncomplete: not all shards of a checkpoint are there.
	ErrIncomplete = errors.New("the checkpoint is incomplete")
	// ErrElsewhere: a checkpoint is complete, and some of its shards are on other disks.
	ErrElsewhere = errors.New("not all of the checkpoint is here")
	// ErrNone: a folder holds no checkpoint that can be used.
	ErrNone = errors.New("no good checkpoint")
	// ErrNotRemoved: a checkpoint was saved, but an older one could not be removed.
	ErrNotRemoved = errors.New("the checkpoint is saved, but an older one cannot be removed")
)

// isBad reports whether an error tells of a checkpoint's bytes, not of a system that cannot read them now.
func isBad(err error) bool {
	return errors.Is(err, ErrFormat) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrIncomplete) || errors.Is(err, ErrElsewhere) || errors.Is(err, safetensors.ErrFormat) ||
		errors.Is(err, folder.ErrForeign)
}

// ShapeError is a tensor that has another shape in a file than in the model, both as in files.
type ShapeError struct {
	Tensor      string
	File, Model []int
}

func (e ShapeError) String() string {
	return fmt.Sprintf("%s is %v, the model's is %v", e.Tensor, e.File, e.Model)
}

// TensorsError says that the tensors of a file are not the model's. Nothing was loaded.
type TensorsError struct {
	File       string
	Missing    []string // of the model, not in the file
	Unexpected []string // in the file, not of the model
	Shapes     []ShapeError
}

func (e *TensorsError) Error() string {
	var parts []string
	for _, list := range []struct {
		what  string
		names []string
	}{{"missing", e.Missing}, {"unexpected", e.Unexpected}} {
		if len(list.names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s: %s", len(list.names), list.what, brief(list.names)))
		}
	}
	if len(e.Shapes) > 0 {
		shapes := make([]string, len(e.Shapes))
		for i, s := range e.Shapes {
			shapes[i] = s.String()
		}
		parts = append(parts, fmt.Sprintf("%d of another shape: %s", len(shapes), brief(shapes)))
	}
	return fmt.Sprintf("%s: its tensors are not the model's: %s", e.File, strings.Join(parts, "; "))
}

// brief joins the first of some words.
func brief(words []string) string {
	const most = 8
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}

// SaveError says that a checkpoint was not saved and which one to go on from.
type SaveError struct {
	Path    string
	Last    string // path of the newest good checkpoint; empty when none is known
	Unknown error  // why a newer one, or any, may be there that cannot be read now; nil: there is none
	Err     error
	whole   bool // all shards are durable, and other processes may say so
}

func (e *SaveError) Error() string {
	last := "there is no earlier good one"
	switch {
	case e.Last != "":
		last = "the last good one is " + e.Last
	case e.Unknown != nil:
		last = fmt.Sprintf("whether there is an earlier good one cannot be told now: %v", e.Unknown)
	}
	return fmt.Sprintf("checkpoint %s is not saved: %v; %s", e.Path, e.Err, last)
}

func (e *SaveError) Unwrap() error { return e.Err }
