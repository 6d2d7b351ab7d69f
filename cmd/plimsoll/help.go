package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groups are the headings of a long list of flags, and what stands under each.
var groups = []struct {
	title string
	flags []string
}{
	{"Model and data", []string{"model", "image", "length", "language", "tokenizer", "batch", "channels", "classes", "dtype", "data", "skip-bad", "seed", "init", "weights"}},
	{"Text", []string{"prompt", "tokens", "temperature", "top-k"}},
	{"Training", []string{"steps", "optimizer", "lr", "lr-schedule", "lr-step", "lr-gamma", "warmup", "momentum", "weight-decay", "clip-norm", "accumulate", "on-nan", "eval-every"}},
	{"Plan", []string{"chain", "plan", "memory", "strategy", "list", "tolerance", "budget", "slots", "pofo-slots", "states", "segments", "duplex", "host-memory", "offload-state", "bandwidths", "points"}},
	{"Several devices", []string{
		"platform", "peer-bandwidth", "microbatches", "minibatches", "versions", "zero", "chunks", "per-period", "accounting", "portals", "deferred-batchnorm",
		"pipemare", "pipemare-decay", "time-limit", "patience", "simulated", "draws", "node", "node-bandwidth", "host-bandwidth",
	}},
	{"Several processes", []string{"world", "rank", "master", "transport", "allreduce", "secret-file", "tls-certificate", "tls-key", "tls-ca", "rendezvous-timeout", "lost-after", "pairs"}},
	{"Device", []string{"devices", "device-memory", "bandwidth", "threads", "reference", "vendor", "vendor-path", "no-graph", "chaos"}},
	{"Measuring the model", []string{"profile", "no-cache", "profile-steps", "profile-warmup", "halves", "layers", "audit"}},
	{"Output", []string{"out", "wait", "output", "text", "svg", "trace", "checkpoint-every", "keep", "resume", "force", "metrics", "help"}},
}

// longList is the number of flags from which a list has headings.
const longList = 15

// sections prints the flags of a command, under headings where they are many.
func sections(cmd *cobra.Command) string {
	left := cmd.LocalFlags()
	if len(flagNames(cmd)) < longList {
		return "\n\nFlags:\n" + strings.TrimRight(left.FlagUsages(), "\n")
	}
	var b strings.Builder
	for _, g := range groups {
		set := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range g.flags {
			if f := left.Lookup(name); f != nil {
				set.AddFlag(f)
			}
		}
		if set.HasAvailableFlags() {
			b.WriteString("\n\n" + g.title + ":\n" + strings.TrimRight(set.FlagUsages(), "\n"))
		}
	}
	return b.String()
}

// init names the function of the help texts once: the library keeps such names for the whole program.
func init() { cobra.AddTemplateFunc("sections", sections) }

// setHelp gives all commands their help texts' form.
func setHelp(root *cobra.Command) {
	const flags = "\n\nFlags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	template := root.UsageTemplate()
	if !strings.Contains(template, flags) {
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
	root.SetUsageTemplate(strings.Replace(template, flags, "{{sections .}}", 1))
}
