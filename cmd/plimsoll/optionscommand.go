package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// settingFigure is a row of a table, in JSON.
type settingFigure struct {
	Names    []string `json:"names"` // each is written NAME.KEY=VALUE, or KEY=VALUE
	Takes    string   `json:"takes"`
	Default  string   `json:"default,omitempty"`
	Summary  string   `json:"summary"`
	OldFlag  string   `json:"old_flag,omitempty"`
	Commands []string `json:"commands"`
}

// settingList is the JSON of options.
type settingList struct {
	Options []settingFigure `json:"options"`
	Debug   []settingFigure `json:"debug"`
}

func newOptionsCommand(a *app) *cobra.Command {
	cmd := command("options", "List the settings that --option and --debug take", `List the settings that --option and --debug take, with their defaults.

--option NAME.KEY=VALUE is a setting of a strategy, an optimizer, a schedule of the learning rate or another part of a run. A setting of
a strategy, an optimizer or a schedule that the command line does not ask for is refused. --debug KEY=VALUE is for tests and for finding
faults. Both may be repeated; a setting that is true or false may stand without =VALUE. The help text of each command names the settings
that it has; --json names the commands of each setting.`, nil)
	cmd.Example = `  plimsoll options
  plimsoll plan -c c.json --memory 40% --strategy rotor --option rotor.slots=1000
  plimsoll train -m resnet20 --optimizer adamw --option adamw.beta2=0.95 --debug threads=1`
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return listSettings(a, cmd.Root()) }
	return cmd
}

func listSettings(a *app, root *cobra.Command) error {
	list := settingList{figuresOfTable(root, "option", optionTable), figuresOfTable(root, "debug", debugTable)}
	return a.print(list, func(out io.Writer) {
		for i, f := range settingFlags {
			fmt.Fprintf(out, "%sSettings of --%s:\n%s\n", []string{"", "\n"}[min(i, 1)], f.flag, settingUsages(allRows(f.table)))
		}
	})
}

// figuresOfTable returns a table with the commands that have each row.
func figuresOfTable(root *cobra.Command, flag string, table []setting) (all []settingFigure) {
	for _, r := range allRows(table) {
		all = append(all, settingFigure{r.names(), r.takes.name, r.unset, r.line, r.old, commandsWith(root, flag, r)})
	}
	return all
}

// commandsWith returns the commands whose help texts list a row of a flag, in the order of their names.
func commandsWith(root *cobra.Command, flag string, row *setting) (all []string) {
	for _, c := range root.Commands() {
		if s := lookupSettings(c.Flags(), flag); s != nil && slices.Contains(s.shown(), row) {
			all = append(all, c.Name())
		}
	}
	return all
}
