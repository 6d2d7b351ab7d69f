package train

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"plimsoll/internal/fields"
)

// Record holds the results and the costs of a step: a line of log.jsonl.
type Record struct {
	Step      int     `json:"step"` // from 0
	Loss      Number  `json:"loss"`
	Accuracy  Number  `json:"accuracy"` // of the batch, before the update; not a number of losses that predict nothing
	Rate      float64 `json:"lr"`
	Norm      Number  `json:"norm"`              // of all gradients together, before clipping
	Skipped   bool    `json:"skipped,omitempty"` // the norm is not finite; weights and optimizer state are as before
	Seconds   float64 `json:"seconds"`           // wall time, without the making of the batch
	DataWaitS float64 `json:"data_wait_s"`       // that the step waited for its batch
	SequenceS float64 `json:"sequence_s"`
	UpdateS   float64 `json:"update_s"`
	PeakBytes int64   `json:"peak_bytes"`
}

// Evaluation is how the model does on the held-out samples: a line of log.jsonl.
type Evaluation struct {
	Done     int    `json:"eval"`     // steps before it
	Loss     Number `json:"loss"`     // the mean
	Accuracy Number `json:"accuracy"` // as in Record
	// MeanIoU is as in Score, where images have masks.
	MeanIoU *float64 `json:"mean_iou,omitempty"`
	Correct int      `json:"correct"`
	Samples int      `json:"samples"`
	Seconds float64  `json:"seconds"`
}

// Number is a float64 whose JSON is null when it is not finite.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// History is the log of a run: its steps in order, each once, and its evaluations.
type History struct {
	Steps []Record
	Evals []Evaluation
}

// Line returns a Record or an Evaluation as a line of log.jsonl.
func Line(entry any) ([]byte, error) {
	b, err := fields.Marshal(entry)
	return append(b, '\n'), err
}

// ErrLog says that a line of a log cannot be read.
var ErrLog = errors.New("bad log")

// ReadHistory reads a log up to the given number of steps and leaves out what was logged later. A last line without an
// end is of a process that was killed while it wrote, and is left out. Errors: ErrLog, with the line's number.
func ReadHistory(from io.Reader, steps int) (*History, error) {
	h := &History{}
	lines := bufio.NewReader(from)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err == nil {
			err = h.add(line, steps)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrLog, n, err)
		}
	}
}

func (h *History) add(line []byte, steps int) error {
	var kind struct{ Step, Eval *int }
	if err := json.Unmarshal(line, &kind); err != nil {
		return err
	}
	switch {
	case kind.Step != nil && *kind.Step < steps:
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if n := len(h.Steps); n > 0 && r.Step <= h.Steps[n-1].Step {
			return fmt.Errorf("step %d comes after step %d", r.Step, h.Steps[n-1].Step)
		}
		h.Steps = append(h.Steps, r)
	case kind.Eval != nil && *kind.Eval <= steps:
		var e Evaluation
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		h.Evals = append(h.Evals, e)
	case kind.Step == nil && kind.Eval == nil:
		return errors.New(`it has neither "step" nor "eval"`)
	}
	return nil
}

// Write writes the history as log.jsonl: each evaluation after the steps before it.
func (h *History) Write(w io.Writer) error {
	evals := h.Evals
	put := func(entry any) error {
		line, err := Line(entry)
		if err == nil {
			_, err = w.Write(line)
		}
		return err
	}
	for _, r := range h.Steps {
		for ; len(evals) > 0 && evals[0].Done <= r.Step; evals = evals[1:] {
			if err := put(evals[0]); err != nil {
				return err
			}
		}
		if err := put(r); err != nil {
			return err
		}
	}
	for _, e := range evals {
		if err := put(e); err != nil {
			return err
		}
	}
	return nil
}

// Eval returns the evaluation after some steps, nil if there is none.
func (h *History) Eval(done int) *Evaluation {
	for i := range h.Evals {
		if h.Evals[i].Done == done {
			return &h.Evals[i]
		}
	}
	return nil
}

// loss returns the last loss that is finite, NaN if there is none.
func (h *History) loss() Number {
	for _, r := range slices.Backward(h.Steps) {
		if finite(float64(r.Loss)) {
			return r.Loss
		}
	}
	return Number(math.NaN())
}
