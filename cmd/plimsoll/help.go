package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groups are the headings of a long list of flags, and what stands under each.
var groups = []struct {
	title string
	flags []string
}{
	{"Model and data", []string{"model", "image", "length", "language", "tokenizer", "batch", "classes", "loss", "dtype", "data", "seed", "init", "weights", "freeze", "lora"}},
	{"Text", []string{"prompt", "tokens", "temperature", "top-k"}},
	{"Training", []string{"steps", "optimizer", "lr", "lr-schedule", "warmup", "weight-decay", "clip-norm", "accumulate", "on-nan", "eval-every"}},
	{"Plan", []string{"chain", "plan", "memory", "strategy", "option", "list", "duplex", "host-memory", "offload-state", "bandwidths", "points"}},
	{"Several devices", []string{
		"platform", "peer-bandwidth", "microbatches", "minibatches", "versions", "zero", "accounting", "simulated", "draws", "node", "node-bandwidth",
		"host-bandwidth",
	}},
	{"Several processes", []string{"world", "transport", "pairs"}},
	{"Device", []string{"devices", "device", "bandwidth", "debug"}},
	{"Measuring the model", []string{"profile", "halves", "layers", "audit"}},
	{"Output", []string{"out", "output", "text", "svg", "trace", "checkpoint-every", "resume", "force", "metrics", "verbose", "help"}},
}

// everyday are the flags that most command lines have; they stand first.
var everyday = []string{"model", "chain", "plan", "data", "batch", "memory", "devices", "strategy", "steps", "optimizer", "lr", "out", "output", "resume"}

// helpColumns is the width of help texts.
const helpColumns = 100

// longList is the number of flags from which a list has headings.
const longList = 15

// sections prints the flags of a command, under headings where they are many.
func sections(cmd *cobra.Command) string {
	left := cmd.LocalFlags()
	if len(flagNames(cmd)) < longList {
		return "\n\nFlags:\n" + flagLines(left) + settingLines(cmd)
	}
	var b strings.Builder
	section := func(title string, names []string) {
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range names {
			if f := left.Lookup(name); f != nil {
				set.AddFlag(f)
			}
		}
		if set.HasAvailableFlags() {
			b.WriteString("\n\n" + title + ":\n" + flagLines(set))
		}
	}
	section("Everyday", everyday)
	for _, g := range groups {
		section(g.title, slices.DeleteFunc(slices.Clone(g.flags), func(name string) bool { return slices.Contains(everyday, name) }))
	}
	return b.String() + settingLines(cmd)
}

// settingLines lists what --option and --debug take: one a line, or the names alone where they are many.
func settingLines(cmd *cobra.Command) string {
	var b strings.Builder
	for _, s := range allSettings(cmd.Flags()) {
		rows := s.shown()
		if len(rows) == 0 {
			continue
		}
		if len(rows) < longList {
			fmt.Fprintf(&b, "\n\nSettings of --%s:\n%s", s.flag, settingUsages(rows))
			continue
		}
		all := s.known()
		for i := range all[1:] {
			all[i] += ","
		}
		fmt.Fprintf(&b, "\n\nSettings of --%s (plimsoll options says what they are):\n  %s", s.flag, wrapped(all, " ", "\n  "))
	}
	return b.String()
}

// settingUsages returns the lines of rows, as those of flags without their dashes.
func settingUsages(rows []*setting) string {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SortFlags = false
	for _, r := range rows {
		for _, name := range r.names() {
			set.Var(shownForm{r.takes}, name, r.usage())
		}
	}
	lines := strings.Split(flagLines(set), "\n")
	for i, line := range lines {
		lines[i] = "  " + strings.TrimPrefix(line[len("      "):], "--")
		if !strings.HasPrefix(line, "      --") { // the end of a text that was broken
			lines[i] = line[len("      "):]
		}
	}
	return strings.Join(lines, "\n")
}

// shownForm is a value of which only the form is shown.
type shownForm struct{ form }

// String implements pflag.Value.
func (shownForm) String() string { return "" }

// Set implements pflag.Value.
func (shownForm) Set(string) error { return nil }

// Type implements pflag.Value.
func (k shownForm) Type() string { return k.name }

// flagLines returns the lines of flags.
func flagLines(set *pflag.FlagSet) string {
	return strings.TrimRight(set.FlagUsagesWrapped(helpColumns), "\n")
}

// details is the annotation with the end of a command's help text.
const details = "details"

// setDetails sets the end of a command's help text, which follows the flags.
func setDetails(cmd *cobra.Command, text string) { cmd.Annotations = map[string]string{details: text} }

// fold breaks the paragraphs of a text into lines of at most helpColumns. Indented lines stay.
func fold(text string) string {
	var paragraphs []string
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		paragraphs = append(paragraphs, wrapped(strings.Fields(p), " ", "\n"))
	}
	return strings.Join(paragraphs, "\n\n")
}

// foldExamples breaks long command lines before a flag.
func foldExamples(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		parts := strings.Split(strings.TrimSpace(line), " --")
		for i := range parts[1:] {
			parts[i+1] = "--" + parts[i+1]
		}
		lines = append(lines, "  "+wrapped(parts, " ", " \\\n      "))
	}
	return strings.Join(lines, "\n")
}

// wrapped joins parts to lines of at most helpColumns, with between in a line and newline at its end.
func wrapped(parts []string, between, newline string) string {
	var b strings.Builder
	column := 2 // of examples
	for i, p := range parts {
		n := utf8.RuneCountInString(p)
		switch {
		case i == 0:
		case column+len(between)+n+len(" \\") > helpColumns:
			b.WriteString(newline)
			column = len(newline)
		default:
			b.WriteString(between)
			column += len(between)
		}
		b.WriteString(p)
		column += n
	}
	return b.String()
}

// init names the functions of the help texts once: the library keeps such names for the whole program.
func init() {
	cobra.AddTemplateFuncs(map[string]any{"sections": sections, "fold": fold, "foldExamples": foldExamples})
}

// setHelp gives all commands their help texts' form.
func setHelp(root *cobra.Command) {
	const flags = "\n\nFlags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	template := root.UsageTemplate()
	if !strings.Contains(template, flags) || !strings.Contains(template, "{{.Example}}") {
		panic("BUG: the library's help texts have another form")
	}
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); err != nil || found == root {
					return unknownCommand(root, args)
				}
				return nil
			}
		}
	}
	template = strings.Replace(template, flags, "{{sections .}}", 1)
	root.SetUsageTemplate(strings.Replace(template, "{{.Example}}", "{{foldExamples .Example}}", 1))
	root.SetHelpTemplate(`{{with (or .Long .Short)}}{{fold .}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}{{with (index .Annotations "details")}}
Details:

{{fold .}}
{{end}}`)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) { // as one text: whoever lost it is known to the output, not to the template
		var text bytes.Buffer
		out := c.OutOrStdout()
		c.SetOut(&text)
		help(c, args)
		c.SetOut(out)
		_, _ = out.Write(text.Bytes())
	})
}
