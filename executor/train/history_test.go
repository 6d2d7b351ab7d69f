package train

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A written history is read again, whole or up to any step, numbers that are not finite included.
func TestHistoryRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "steps")
		every := rapid.IntRange(1, 9).Draw(t, "every")
		cut := rapid.IntRange(0, n).Draw(t, "cut")
		bad := rapid.IntRange(0, 30).Draw(t, "bad")
		all, want := &History{}, &History{}
		for step := range n {
			r := Record{Step: step, Loss: Number(step) / 3, Norm: 1, Seconds: 0.1, PeakBytes: 1 << 40}
			if step == bad {
				r.Loss, r.Norm, r.Skipped = Number(math.NaN()), Number(math.Inf(1)), true
			}
			all.Steps = append(all.Steps, r)
			if step < cut {
				want.Steps = append(want.Steps, r)
			}
			if done := step + 1; done%every == 0 {
				e := Evaluation{Done: done, Loss: 2, Accuracy: 0.5, Correct: 5, Samples: 10}
				all.Evals = append(all.Evals, e)
				if done <= cut {
					want.Evals = append(want.Evals, e)
				}
			}
		}
		var log, again bytes.Buffer
		must2(t, all.Write(&log))
		text := log.String()
		got, err := ReadHistory(strings.NewReader(text+`{"step":`), n)
		must2(t, err)
		must2(t, got.Write(&again))
		if again.String() != text || strings.Count(text, "\n") != n+len(all.Evals) {
			t.Fatalf("written\n%s, read and written again\n%s", text, again.String())
		}
		got, err = ReadHistory(strings.NewReader(text), cut)
		must2(t, err)
		for _, h := range []*History{got, want} { // NaN is not itself
			for i := range h.Steps {
				if h.Steps[i].Skipped {
					h.Steps[i].Loss, h.Steps[i].Norm = 0, 0
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("up to %d: %+v, want %+v", cut, got, want)
		}
	})
}

func must2(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// A damaged line is named by its number.
func TestBadLogs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{\"step\":0}\nfoo\n":                      "line 2",
		"{\"step\":1}\n{\"step\":1}\n":             "step 1 comes after step 1",
		"{\"step\":\"x\"}\n":                       "line 1",
		"{\"loss\":1}\n":                           `neither "step" nor "eval"`,
		"{\"step\":0,\"loss\":\"big\"}\n":          "line 1",
		"{\"eval\":0,\"loss\":1,\"samples\":[]}\n": "samples",
	} {
		if _, err := ReadHistory(strings.NewReader(text), 9); !errors.Is(err, ErrLog) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzReadHistory(f *testing.F) {
	f.Add([]byte("{\"step\":0,\"loss\":null}\n{\"eval\":1,\"loss\":2}\n"), 1)
	f.Add([]byte("{\"step\":-3}\n{\"step\":5}\n\n"), 4)
	f.Fuzz(func(t *testing.T, log []byte, steps int) {
		h, err := ReadHistory(bytes.NewReader(log), steps)
		if err != nil {
			return
		}
		var text bytes.Buffer
		must(t, h.Write(&text))
		again, err := ReadHistory(&text, steps)
		must(t, err)
		if len(again.Steps) != len(h.Steps) || len(again.Evals) != len(h.Evals) {
			t.Errorf("%d and %d entries, then %d and %d", len(h.Steps), len(h.Evals), len(again.Steps), len(again.Evals))
		}
	})
}
