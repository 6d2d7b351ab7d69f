package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"plimsoll/internal/cores"
)

// textLines are command lines of a language model whose output names samples.
func textLines(out string) [][]string {
	text := func(command string, more ...string) []string {
		return slices.Concat([]string{command, "-m", "gpt2-1-16-untied", "--length", "8", "--batch", "8"}, more)
	}
	run := []string{"--steps", "1", "--option", "profile.steps=1"}
	return [][]string{
		text("fit", "--memory", "1MiB"),
		text("fit", "--devices", "cpu*2"),
		text("train", slices.Concat(run, []string{"-v", "--strategy", "rotor", "--out", out})...),
		text("train", slices.Concat(run, []string{"-v", "--devices", "cpu*2", "--strategy", "gpipe"})...),
		text("validate", slices.Concat(run, []string{"-v", "--memory", "100%", "--strategy", "rotor"})...),
		text("validate", slices.Concat(run, []string{"-v", "--devices", "cpu*2", "--strategy", "gpipe"})...),
	}
}

// Language models are told in samples and tokens: neither texts nor JSON nor pages speak of images.
// Only this test finds a text, a JSON field or a page of a language model that counts images.
func TestLanguageModelsHaveNoImages(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	for _, line := range textLines(out) {
		for _, form := range []string{"--quiet=false", "--json"} {
			if slices.Contains(line, "--out") && form == "--json" {
				line = append(line, "--force")
			}
			r := works(t, append(slices.Clone(line), form)...)
			if strings.Contains(strings.ToLower(r.out+r.err), "image") {
				t.Errorf("%v speaks of images:\n%s%s", line, r.err, r.out)
			}
		}
	}
	if page := read(t, filepath.Join(out, "report.json")); strings.Contains(page, "image") || !strings.Contains(page, "tokens per second") {
		t.Errorf("the report speaks of images, or not of tokens:\n%s", page)
	}
	trained := object(t, textLines(filepath.Join(t.TempDir(), "again"))[2]...)
	samples, tokens := trained["samples_per_s"].(float64), trained["tokens_per_s"].(float64)
	if trained["images_per_s"] != nil || !(samples > 0) || tokens != 8*samples {
		t.Errorf("%v samples/s, %v tokens/s, %v images/s", samples, tokens, trained["images_per_s"])
	}
	images := object(t, "train", "-m", "tiny", "--batch", "8", "--steps", "1", "--option", "profile.steps=1")
	if images["images_per_s"] != images["samples_per_s"] || images["tokens_per_s"] != nil {
		t.Errorf("of images: %v", images)
	}
}

// Lines that train, validate and fit print for people are at most 100 columns wide; statistics come with -v alone.
// Only this test finds a line for people of over 100 columns, or a statistic that is printed without -v.
func TestLinesForPeopleAreNarrow(t *testing.T) {
	t.Parallel()
	statistics := []string{"drift", "idle", "launch gaps", "as steps vary", "bubble", "laid out"}
	seen := map[string]bool{}
	for _, line := range textLines(filepath.Join(t.TempDir(), "run")) {
		verbose := works(t, line...)
		for text := range strings.SplitSeq(verbose.out+verbose.err, "\n") {
			if n := utf8.RuneCountInString(text); n > 100 {
				t.Errorf("%v: %d columns: %s", line, n, text)
			}
		}
		brief := slices.DeleteFunc(slices.Clone(line), func(s string) bool { return s == "-v" })
		if i := slices.Index(brief, "--out"); i >= 0 {
			brief = brief[:i]
		}
		short := works(t, brief...).out
		for _, s := range statistics {
			if seen[s] = seen[s] || strings.Contains(verbose.out, s); strings.Contains(short, s) {
				t.Errorf("%v prints %q without -v:\n%s", brief, s, short)
			}
		}
	}
	for _, s := range statistics {
		if !seen[s] {
			t.Errorf("nothing prints %q with -v", s)
		}
	}
}

// Beside predicted and measured times of devices that share processors stands that they do, in texts, JSON and the report.
func TestSharedProcessorsAreSaid(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	args := []string{"-m", "tiny", "--image", "16", "--batch", "8", "--steps", "1", "--option", "profile.steps=1", "--devices", "cpu*2", "--strategy", "gpipe"}
	of := func(command string, more ...string) []string { return slices.Concat([]string{command}, args, more) }
	said := " 2 devices share "
	if text := works(t, of("train", "--out", out)...).out; !strings.Contains(text, said) {
		t.Errorf("train does not say it:\n%s", text)
	} else if !strings.Contains(text, " at once\n") || !strings.Contains(text, " on devices of their own\n") {
		t.Errorf("train does not say how many ops run at once:\n%s", text)
	}
	if text := works(t, "report", out).out; !strings.Contains(text, said) {
		t.Errorf("report does not say it:\n%s", text)
	}
	for _, file := range []string{"report.html", "trace.json"} {
		if text := read(t, filepath.Join(out, file)); !strings.Contains(text, said[1:]) {
			t.Errorf("%s does not say it", file)
		}
	}
	if text := works(t, of("validate")...).out; !strings.Contains(text, "cpu*2 on ") {
		t.Errorf("validate does not say it:\n%s", text)
	}
	devices := func(o any) any {
		shared, _ := o.(map[string]any)["shared_processors"].(map[string]any)
		return shared["devices"]
	}
	o := object(t, of("train")...)
	if devices(o["pipeline"]) != 2.0 {
		t.Errorf("train: %v", o["pipeline"])
	}
	shared := o["pipeline"].(map[string]any)["shared_processors"].(map[string]any)
	own, most := shared["own_predicted_s_per_step"].(float64), shared["ops_at_once"].(float64)
	if predicted := o["predicted_s_per_step"].(float64); most < 1 || most > float64(cores.Count()) || predicted < own*(1-1e-6) || predicted > 2*own/most*(1+1e-6) {
		t.Errorf("train: %v s of their own, %v s with %v ops at once", own, predicted, most)
	}
	o = object(t, of("train", "--option", "platform.ops-at-once=1")...)
	if shared := o["pipeline"].(map[string]any)["shared_processors"].(map[string]any); shared["ops_at_once"] != 1.0 {
		t.Errorf("train with 1 op at once: %v", shared)
	}
	if o := object(t, of("validate")...); devices(o["rows"].([]any)[0]) != 2.0 {
		t.Errorf("validate: %v", o["rows"])
	}
	if o := object(t, of("validate", "--simulated")...); devices(o["rows"].([]any)[0]) != nil {
		t.Errorf("in simulated time: %v", o["rows"])
	}
}

// Help texts are at most 100 columns wide, and train's everyday flags stand within its first 30 lines.
func TestHelpIsNarrow(t *testing.T) {
	t.Parallel()
	checked := 0
	var visit func(path []string, cmd *cobra.Command)
	visit = func(path []string, cmd *cobra.Command) {
		for i, line := range strings.Split(works(t, append(path, "--help")...).out, "\n") {
			if n := utf8.RuneCountInString(line); n > helpColumns {
				t.Errorf("%v --help, line %d has %d columns: %s", path, i+1, n, line)
			}
		}
		checked++
		for _, c := range cmd.Commands() {
			if c.Name() != "help" && c.Name() != "completion" {
				visit(append(slices.Clone(path), c.Name()), c)
			}
		}
	}
	visit(nil, (&app{}).root())
	if checked < 20 {
		t.Errorf("only %d commands", checked)
	}
	first := strings.Join(strings.Split(works(t, "train", "--help").out, "\n")[:30], "\n")
	for _, want := range []string{"Everyday:", "--model", "--data", "--batch", "--memory", "--steps", "--lr ", "--out"} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in the first lines:\n%s", want, first)
		}
	}
}
