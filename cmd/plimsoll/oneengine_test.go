package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oneStep is a step with two plans: a sequence of one device, and a schedule of pipelines on one device.
type oneStep struct {
	name string
	args []string
	// parts are the equal parts of a step; 0: a step is whole, and --accumulate is not given.
	parts int
}

// oneSteps have BatchNorm, dropout, tokens, each optimizer, bfloat16, clipping and parts.
var oneSteps = []oneStep{
	{"BatchNorm", []string{"-m", "resnet20", "--image", "16", "--batch", "8", "--data", "glyphs"}, 0},
	{"BatchNorm and dropout", []string{"-m", "tiny", "--image", "16", "--batch", "8"}, 0},
	{"two parts", []string{"-m", "tiny", "--image", "16", "--batch", "8"}, 2},
	{"GPT-2", []string{"-m", "gpt2-2-16-untied", "--length", "24", "--batch", "4", "--optimizer", "adamw"}, 0},
	{"AdamW", []string{"-m", "tiny", "--image", "16", "--batch", "8", "--optimizer", "adamw"}, 0},
	{"clipped", []string{"-m", "tiny", "--image", "16", "--batch", "8", "--clip-norm", "0.5"}, 0},
	{"bf16", []string{"-m", "tiny", "--image", "16", "--batch", "8", "--dtype", "bf16"}, 0},
	{"one part", []string{"-m", "tiny", "--image", "16", "--batch", "8"}, 1},
	{"four parts, AdamW", []string{"-m", "tiny", "--image", "16", "--batch", "8", "--optimizer", "adamw"}, 4},
	{"dropout and Muon", []string{"-m", "mlp", "--image", "16", "--batch", "8", "--optimizer", "muon"}, 0},
	{"dropout in parts", []string{"-m", "mlp", "--image", "16", "--batch", "8"}, 4},
	{"GPT-2 in parts", []string{"-m", "gpt2-2-16-untied", "--length", "24", "--batch", "4", "--optimizer", "adamw"}, 2},
	{"tied weights in parts", []string{"-m", "gpt2-2-16-tied", "--length", "24", "--batch", "4", "--optimizer", "adamw"}, 2},
	{"tied weights", []string{"-m", "gpt2-2-16-tied", "--length", "24", "--batch", "4"}, 0},
	{"Llama", []string{"-m", "llama-2-16", "--length", "24", "--batch", "4"}, 0},
}

// lines returns the two command lines.
func (s oneStep) lines(more ...string) (alone, flush []string) {
	all := slices.Concat([]string{"train", "--steps", "3", "--option", "profile.steps=1", "--debug", "threads=1", "-q"}, s.args, more)
	alone, flush = append(slices.Clone(all), "--strategy", "store-all"), append(all, "--strategy", "1f1b-flush", "--microbatches", fmt.Sprint(max(s.parts, 1)))
	if s.parts > 0 {
		alone = append(alone, "--accumulate", fmt.Sprint(s.parts))
	}
	return alone, flush
}

// Fields of a summary, and lines of the text for people, that only one of the two plans has today.
var (
	aloneFields, flushFields = []string{}, []string{"pipeline"}
	aloneLines, flushLines   = []string{"limit", "peak", "strategy"}, []string{"cpu", "schedule"}
)

// A schedule with a flush on one device trains the bits of store-all, and of its accumulated gradients, at the same peak and under the
// same limits.
// Only this test finds that the peak or the smallest limit of one device depends on which of the two plans the step has.
func TestFlushOnOneDeviceIsStoreAll(t *testing.T) {
	t.Parallel()
	for _, s := range oneSteps[:atSize(len(oneSteps), 4)] {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			line, flushLine := s.lines()
			alone, flush := object(t, line...), object(t, flushLine...)
			for _, field := range []string{"weights_sha256", "loss", "test_loss", "test_correct", "accuracy", "steps", "skipped", "host_copies_bytes"} {
				if alone[field] != flush[field] || alone[field] == nil {
					t.Errorf("%s is %v of store-all, %v with a flush", field, alone[field], flush[field])
				}
			}
			for _, field := range []string{"predicted_peak_bytes", "measured_peak_bytes", "limit_bytes"} {
				a, b := alone[field].(float64), flush[field].(float64)
				if a != b || a != alone["limit_bytes"].(float64) {
					t.Errorf("%s is %.0f of store-all, %.0f with a flush: %+.0f", field, a, b, b-a)
				}
			}
			limit := int64(alone["limit_bytes"].(float64))
			aloneError, flushError := s.refused(t, line, limit), s.refused(t, flushLine, limit)
			// The texts differ in how sure they are, and in that one device names the op.
			text := regexp.MustCompile(`^(store-all|1f1b-flush): a limit of \S+ \S+ is too small: the smallest (that works|found) is \S+ \S+ \(--memory \d+\)(, needed by \S+, layer .*)?; \S+ \S+ of it are weights, gradients and optimizer: a smaller --batch, or (train's --accumulate|more parts \(--accumulate\)), lowers the rest$`)
			if !text.MatchString(aloneError) || !text.MatchString(flushError) {
				t.Errorf("%s\n%s", aloneError, flushError)
			}
		})
	}
}

// refused checks that a limit of a byte less than the smallest is refused, and returns the error.
func (s oneStep) refused(t *testing.T, line []string, smallest int64) string {
	t.Helper()
	r := plimsoll(t, append(slices.Clone(line), "--json", "--memory", fmt.Sprint(smallest-1))...)
	var failure struct {
		Error    string `json:"error"`
		Smallest int64  `json:"smallest_bytes"`
		Static   int64  `json:"static_bytes"`
	}
	if err := json.Unmarshal([]byte(r.err), &failure); err != nil || r.code != exitNoFit || failure.Smallest != smallest || failure.Static <= 0 {
		t.Errorf("a byte less than %d: exit code %d, %v: %s", smallest, r.code, err, r.err)
	}
	return failure.Error
}

// Runs along the two plans tell the same of a step, up to a known list.
func TestFlushOnOneDeviceTellsTheSame(t *testing.T) {
	t.Parallel()
	line, flushLine := oneSteps[1].lines()
	a, b := object(t, line...), object(t, flushLine...)
	sameBut(t, "fields of the summary", slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)), aloneFields, flushFields)
	sameBut(t, "lines for people", labels(works(t, append(line, "-v")...).out), labels(works(t, append(flushLine, "-v")...).out), aloneLines, flushLines)
}

// labels returns the first words of the lines of a summary, up to its tables, but for the line on a slow task, which measured times decide.
func labels(text string) (all []string) {
	text, _, _ = strings.Cut(text, "\n\n")
	for line := range strings.Lines(text) {
		if word, _, _ := strings.Cut(line, " "); word != "" && word != "slowest" {
			all = append(all, word)
		}
	}
	return all
}

// sameBut checks that of two lists each has exactly some entries that the other lacks.
func sameBut(t *testing.T, what string, a, b, onlyA, onlyB []string) {
	t.Helper()
	without := func(a, b []string) (all []string) {
		for _, x := range a {
			if !slices.Contains(b, x) {
				all = append(all, x)
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if x, y := without(a, b), without(b, a); !slices.Equal(x, onlyA) || !slices.Equal(y, onlyB) {
		t.Errorf("%s: only store-all has %q, want %q; only the flush has %q, want %q", what, x, onlyA, y, onlyB)
	}
}
