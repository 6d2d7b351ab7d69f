package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The shell completes the names of models, strategies, data sets, devices and optimizers, and the values of every other flag that takes few
// names. In a list it completes each item. If a flag reads files, it completes files with the endings that the flag reads.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string // in the answer
		not  string
	}{
		{[]string{"train", "-m", "resnet5"}, []string{"resnet50\tResNet-50", "resnet56\t"}, "vgg16"},
		{[]string{"plan", "--strategy", ""}, []string{"rotor-exact\t", "madpipe\t", "auto\t"}, ""},
		{[]string{"plan", "--devices", "4", "--strategy", ""}, []string{"madpipe\t", "gpipe\t"}, "rotor"},
		{[]string{"frontier", "--strategy", "ro"}, []string{"rotor\t"}, "madpipe"},
		{[]string{"validate", "--strategy", "rotor,pof"}, []string{"rotor,pofo\t"}, "rotor,rotor"},
		{[]string{"train", "--data", ""}, []string{"digits\t", "folder:\t"}, ""},
		{[]string{"train", "--devices", ""}, []string{"cpu\t", "cpu*4\t"}, ""},
		{[]string{"train", "--optimizer", ""}, []string{"sgd\n", "adamw\n"}, ""},
		{[]string{"train", "--lr-schedule", "c"}, []string{"constant\n", "cosine\n"}, "step"},
		{[]string{"train", "--versions", ""}, []string{"stash\n", "double_buffered\n"}, ""},
		{[]string{"plan", "-c", ""}, []string{"json\n", ":8\n"}, ""},
		{[]string{"plan", "--option", ""}, []string{"rotor.slots=\tmemory slots", "milp.gap=\t", ":6\n"}, "threads"},
		{[]string{"plan", "--strategy", "pofo", "--option", ""}, []string{"pofo.slots=\t"}, "rotor.slots"},
		{[]string{"train", "--debug", "vendor="}, []string{"vendor=refuse\t", "vendor=require\t"}, "chaos"},
		{[]string{"generate", "--debug", ""}, []string{"threads=\t"}, "chaos"},
		{[]string{"train", "--sl"}, []string{":4\n"}, "--slots"},
		{[]string{"train", "--out", ""}, []string{":16\n"}, ""},
	} {
		got := works(t, append([]string{cobra.ShellCompRequestCmd}, c.args...)...).out
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: no %q in %q", c.args, want, got)
			}
		}
		if c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%v: %q in %q", c.args, c.not, got)
		}
	}
}

// Every flag of a command with many stands under a heading, once.
func TestEveryFlagHasAHeading(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, g := range groups {
		for _, name := range g.flags {
			if seen[name] {
				t.Errorf("--%s stands under two headings", name)
			}
			seen[name] = true
		}
	}
	known, long := map[string]bool{"help": true}, 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		many := len(flagNames(cmd)) >= longList
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if known[f.Name] = true; f.Hidden && !seen[f.Name] {
				return
			}
			if many && !seen[f.Name] && cmd.HasParent() {
				t.Errorf("--%s of %s stands under no heading: add it to groups in help.go", f.Name, cmd.CommandPath())
			}
		})
		if many {
			long++
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit((&app{}).root())
	for name := range seen {
		if !known[name] {
			t.Errorf("--%s has a heading and no command", name)
		}
	}
	if long < 5 {
		t.Errorf("only %d commands with headings", long)
	}
}

// size returns how large a sample of a listed model is: an image's side, or the length of a text.
func size(model map[string]any) float64 {
	image, _ := model["image"].(float64)
	length, _ := model["length"].(float64)
	return max(image, length)
}

// The models are those that can be built, with the parameters of their papers.
func TestModels(t *testing.T) {
	t.Parallel()
	parameters := map[string]float64{}
	for _, m := range object(t, "models")["models"].([]any) {
		m := m.(map[string]any)
		parameters[m["name"].(string)] = m["parameters"].(float64)
		if m["layers"].(float64) < 2 || size(m) < 8 || m["classes"].(float64) < 2 || m["summary"] == "" {
			t.Errorf("%v", m)
		}
	}
	if parameters["resnet50"] != 25_557_032 || parameters["densenet121"] != 7_978_856 || len(parameters) < 20 {
		t.Errorf("%d models: %v", len(parameters), parameters)
	}
	text := works(t, "models").out
	if !strings.Contains(text, "25,557,032") || !slices.Contains(strings.Fields(text), "siamese") {
		t.Errorf("%s", text)
	}
}
