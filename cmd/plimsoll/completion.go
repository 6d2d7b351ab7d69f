package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/models"
	"plimsoll/models/data"
	"plimsoll/planner"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/devices"
)

// values list what a flag can be, for the shell's completion; behind a tab, what that is. Flags of package oneOf know by themselves.
var values = map[string]func(*cobra.Command) []string{
	"model":    func(*cobra.Command) []string { return modelValues() },
	"strategy": strategyValues,
	"data":     func(*cobra.Command) []string { return dataValues() },
	"devices":  func(*cobra.Command) []string { return deviceValues() },
	"versions": func(*cobra.Command) (all []string) {
		for _, v := range pipeline.AllVersions() {
			all = append(all, string(v))
		}
		return all
	},
}

// files are the endings of the files that a flag names; none are all.
var files = map[string][]string{
	"chain": {"json", "txt", "csv"}, "profile": {"json", "txt", "csv"}, "plan": {"json", "csv", "txt"}, "platform": {"json"},
	"init": {"safetensors"}, "output": {}, "out": {}, "svg": {"svg"}, "trace": {"json"},
}

func modelValues() (all []string) {
	for _, k := range models.All() {
		all = append(all, k.Name+"\t"+k.Summary)
	}
	return all
}

func dataValues() (all []string) {
	for _, info := range slices.Concat(data.Known(), data.Files(), data.Texts()) {
		name, _, _ := strings.Cut(info.Name, "PATH")
		all = append(all, name+"\t"+info.Summary)
	}
	return all
}

func deviceValues() (all []string) {
	for _, b := range devices.Backends() {
		all = append(all, b.Name+"\t"+b.Doc)
	}
	return append(all, "cpu*2\ttwo virtual devices that share the processor", "cpu*4\tfour")
}

// strategyValues are the strategies for one device or several, as far as the command can have them.
func strategyValues(cmd *cobra.Command) (all []string) {
	devices, several := cmd.Flags().Lookup("devices"), cmd.Name() == "pipelines"
	if !several && (devices == nil || !devices.Changed) {
		for _, s := range slices.Concat(planner.Sequences(), planner.Joins()) {
			all = append(all, s.Name+"\t"+s.Summary)
		}
	}
	if devices != nil {
		for _, s := range planner.Pipelines() {
			all = append(all, s.Name+"\t"+s.Summary)
		}
	}
	return all
}

// completeValues lets the shell complete the values of all flags.
func completeValues(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		var err error
		switch endings, file := files[f.Name]; {
		case f.Name == "out" && strings.Contains(f.Usage, "folder"):
			err = cmd.MarkFlagDirname(f.Name)
		case file && f.Value.Type() != "bool":
			err = cmd.MarkFlagFilename(f.Name, endings...)
		default:
			if of := valuesOf(f); of != nil {
				err = cmd.RegisterFlagCompletionFunc(f.Name, offered(of))
			}
		}
		if err != nil {
			panic("BUG: " + err.Error())
		}
	})
	for _, c := range cmd.Commands() {
		completeValues(c)
	}
}

// valuesOf returns the function that lists the values of a flag; nil: there is none.
func valuesOf(f *pflag.Flag) func(*cobra.Command) []string {
	if names, ok := f.Value.(*oneOf); ok {
		return func(*cobra.Command) []string { return names.known }
	}
	if s, ok := f.Value.(*settings); ok {
		return s.completions
	}
	if t := f.Value.Type(); t == "int" || t == "intSlice" {
		return nil
	}
	return values[f.Name]
}

// offered completes the last of the values that commas separate.
func offered(values func(*cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		before := typed[:strings.LastIndex(typed, ",")+1]
		for _, v := range values(cmd) {
			if !strings.HasPrefix(before+v, typed) {
				continue
			}
			all = append(all, before+v)
			if name, _, _ := strings.Cut(v, "\t"); before != "" || strings.HasSuffix(name, ":") || strings.HasSuffix(name, "=") {
				directive |= cobra.ShellCompDirectiveNoSpace // more may follow
			}
		}
		return all, directive
	}
}
