package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/internal/names"
	"plimsoll/planner"
)

// settings is the flag --option or --debug of a command, which takes one value of a table at a time. Its flag set holds a flag, called by
// the first of its row's names, for every value that the command has.
type settings struct {
	*pflag.FlagSet
	flag  string
	table []setting
	said  map[*setting][]said
}

// said is a value as the command line gave it.
type said struct {
	spelling string // "--option rotor.slots", or the old flag
	name     string // "rotor.slots"; "" of the old flag
	text     string // as it was typed
	value    string // as it was read
}

// settingFlags are the two flags.
var settingFlags = []struct {
	flag, usage string
	table       []setting
}{
	{"option", "one setting of a strategy, an optimizer or another part, as in rotor.slots=50; may be repeated", optionTable},
	{"debug", "one setting for tests and for finding faults, as in threads=1; may be repeated", debugTable},
}

// optionsOf returns the values of --option of a command, debugOf those of --debug: a command registers what it has there.
func optionsOf(cmd *cobra.Command) *settings { return settingsOf(cmd, "option") }

func debugOf(cmd *cobra.Command) *settings { return settingsOf(cmd, "debug") }

func settingsOf(cmd *cobra.Command, flag string) *settings {
	if s := lookupSettings(cmd.Flags(), flag); s != nil {
		return s
	}
	for _, f := range settingFlags {
		if f.flag == flag {
			s := &settings{pflag.NewFlagSet(flag, pflag.ContinueOnError), flag, f.table, map[*setting][]said{}}
			s.SortFlags = false
			cmd.Flags().Var(s, flag, f.usage)
			return s
		}
	}
	panic("BUG: --" + flag + " has no table")
}

// lookupSettings returns a flag of the command line as settings; nil where the command has none.
func lookupSettings(set *pflag.FlagSet, flag string) *settings {
	if f := set.Lookup(flag); f != nil {
		s, _ := f.Value.(*settings)
		return s
	}
	return nil
}

// allSettings returns both flags, as far as a command has them.
func allSettings(set *pflag.FlagSet) (all []*settings) {
	for _, f := range settingFlags {
		if s := lookupSettings(set, f.flag); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// row returns the row of a name, and the flag with its value; nil where the command has none.
func (s *settings) row(name string) (*setting, *pflag.Flag) {
	for _, r := range allRows(s.table) {
		if f := s.Lookup(r.names()[0]); f != nil && slices.Contains(r.names(), name) {
			return r, f
		}
	}
	return nil, nil
}

// shown returns the rows that help texts list, in the order of the table.
func (s *settings) shown() (rows []*setting) {
	for _, r := range allRows(s.table) {
		if f := s.Lookup(r.names()[0]); f != nil && !f.Hidden {
			rows = append(rows, r)
		}
	}
	return rows
}

// known lists the names of the rows that help texts list.
func (s *settings) known() (all []string) {
	for _, r := range s.shown() {
		all = append(all, r.names()...)
	}
	return all
}

// hide leaves rows out of help texts and completion.
func (s *settings) hide(rows ...string) {
	for _, name := range rows {
		_, f := s.row(name)
		if f == nil {
			panic("BUG: a command hides " + name + ", which it does not have")
		}
		f.Hidden = true
	}
}

// String implements pflag.Value.
func (s *settings) String() string { return "" }

// Type implements pflag.Value; help texts show it.
func (s *settings) Type() string {
	if s.flag == "option" {
		return "name.key=value"
	}
	return "key=value"
}

var (
	errOption = errors.New("unknown name")
	errKey    = errors.New("unknown key")
)

// Set implements pflag.Value.
func (s *settings) Set(text string) error {
	name, value, given := strings.Cut(text, "=")
	row, f := s.row(name)
	if row == nil {
		return fmt.Errorf("--%s %s: %w", s.flag, text, s.unknown(name))
	}
	if !given {
		if value = f.NoOptDefVal; value == "" {
			return fmt.Errorf("--%s %s has no value: give %s, as in --%s %s=VALUE", s.flag, name, row.takes.asked(), s.flag, name)
		}
	}
	return s.take(row, f, said{spelling: "--" + s.flag + " " + name, name: name, text: value})
}

// unknown is the error of a name that the command does not have: it names those that it has.
func (s *settings) unknown(name string) error {
	of, key, dotted := strings.Cut(name, ".")
	var owners, keys []string
	for _, n := range s.known() {
		owner, k, _ := strings.Cut(n, ".")
		if !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
		if owner == of && dotted {
			keys = append(keys, k)
		}
	}
	if len(keys) > 0 {
		return fmt.Errorf("of %s: %w", of, names.Unknown(errKey, key, keys))
	}
	if s.flag == "option" {
		return names.Unknown(errOption, of, owners)
	}
	return names.Unknown(errKey, name, owners)
}

// take reads a value, and notes that the command line gave it.
func (s *settings) take(row *setting, f *pflag.Flag, v said) error {
	err := f.Value.Set(v.text)
	switch k := row.takes; {
	case err != nil && k.give == "":
		return fmt.Errorf("%s: %w", v.spelling, err)
	case err != nil:
		return fmt.Errorf("%s is %q: give %s", v.spelling, v.text, k.give)
	case k.fits != nil && !k.fits(f.Value.String()):
		return fmt.Errorf("%s is %s: give %s", v.spelling, v.text, k.give)
	}
	f.Changed, v.value = true, f.Value.String()
	s.said[row] = append(slices.DeleteFunc(s.said[row], func(was said) bool { return was.spelling == v.spelling }), v)
	return nil
}

// oldFlag is a flag of an earlier version: it sets a row.
type oldFlag struct {
	*settings
	row  *setting
	flag *pflag.Flag // of the row
}

// String implements pflag.Value.
func (o *oldFlag) String() string {
	if o.flag == nil {
		return ""
	}
	return o.flag.Value.String()
}

// Set implements pflag.Value.
func (o *oldFlag) Set(text string) error {
	return o.take(o.row, o.flag, said{spelling: "--" + o.row.old, text: text})
}

// Type implements pflag.Value.
func (o *oldFlag) Type() string { return o.flag.Value.Type() }

// linkSettings gives every command that has settings their old flags, and the check of what was given.
func linkSettings(a *app, cmd *cobra.Command) {
	for _, s := range allSettings(cmd.Flags()) {
		s.VisitAll(func(f *pflag.Flag) {
			row, _ := s.row(f.Name)
			if row == nil || row.names()[0] != f.Name {
				panic("BUG: --" + s.flag + " has no row that begins with " + f.Name)
			}
			if row.old != "" {
				old := cmd.Flags().VarPF(&oldFlag{s, row, f}, row.old, "", "")
				old.Hidden, old.NoOptDefVal = true, f.NoOptDefVal
			}
		})
		cmd.Flags().Lookup(s.flag).Hidden = len(s.shown()) == 0
		cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return checkSettings(a, cmd) }
	}
	for _, c := range cmd.Commands() {
		linkSettings(a, c)
	}
}

// checkSettings refuses settings that contradict each other, or are those of nothing that the command line asks for, and notes the new
// spelling of old flags.
func checkSettings(a *app, cmd *cobra.Command) error {
	var old, now []string
	for _, s := range allSettings(cmd.Flags()) {
		for _, row := range allRows(s.table) {
			for _, v := range s.said[row] {
				if first := s.said[row][0]; v.value != first.value {
					return usage(fmt.Errorf("%s is %s and %s is %s: they are one setting, give one of them", first.spelling, first.text, v.spelling, v.text))
				}
				if v.name == "" {
					old, now = append(old, v.spelling), append(now, "--"+s.flag+" "+row.written(cmd, v.text))
				} else if err := asksFor(cmd, v); err != nil {
					return err
				}
			}
		}
	}
	if old != nil {
		a.note("the next version does not know %s: give %s", strings.Join(old, ", "), strings.Join(now, " "))
	}
	return nil
}

// written returns a row with a value, under the name that the command line asks for, if there is one.
func (r *setting) written(cmd *cobra.Command, text string) string {
	all := r.names()
	i := max(0, slices.IndexFunc(all, func(name string) bool { return asksFor(cmd, said{name: name}) == nil }))
	if r.takes.name == aSwitch.name && text == "true" {
		return all[i]
	}
	return all[i] + "=" + text
}

// asksFor refuses a setting of a strategy, an optimizer or a schedule of the learning rate that the command line does not ask for.
func asksFor(cmd *cobra.Command, v said) error {
	of, _, _ := strings.Cut(v.name, ".")
	flag := chosenBy(of)
	f := cmd.Flags().Lookup(flag)
	if f == nil {
		return nil
	}
	chosen := strings.Split(strings.Trim(f.Value.String(), "[]"), ",")
	for _, name := range chosen {
		if name = strings.TrimSpace(name); name == of || name == "all" || name == "auto" && ofOneDevice(of) {
			return nil
		}
	}
	if flag == "strategy" && !f.Changed { // the default depends on the devices
		return usage(fmt.Errorf("%s is a setting of %s, and no --strategy is given: leave it out, or give --strategy %s", v.spelling, of, of))
	}
	return usage(fmt.Errorf("%s is a setting of %s, and --%s is %s: leave it out, or give --%s %s", v.spelling, of, flag, strings.Join(chosen, ","), flag, of))
}

// chosenBy returns the flag that asks for what has settings; "" where that is part of every command.
func chosenBy(of string) string {
	_, optimizer := optimizerDefaults[of]
	switch _, err := planner.Lookup(of); {
	case of == "pipemare": // its corrections go with other strategies, too
		return ""
	case err == nil:
		return "strategy"
	case optimizer:
		return "optimizer"
	case of == "step":
		return "lr-schedule"
	}
	return ""
}

// ofOneDevice reports whether a strategy is one for one device.
func ofOneDevice(of string) bool {
	_, err := planner.LookupSequence(of)
	return err == nil
}

// spelling returns how the command line gave a flag or a setting, for errors; "" when it did not.
func spelling(set *pflag.FlagSet, name string) string {
	for _, s := range allSettings(set) {
		if row, _ := s.row(name); row != nil {
			if all := s.said[row]; len(all) > 0 {
				return all[len(all)-1].spelling
			}
			return ""
		}
	}
	if set.Changed(name) {
		return "--" + name
	}
	return ""
}

// completions lists what may follow the flag, with what it says behind a tab: names, and names with a value where only a few are known.
func (s *settings) completions(cmd *cobra.Command) (all []string) {
	for _, r := range s.shown() {
		_, f := s.row(r.names()[0])
		for _, name := range r.names() {
			if cmd.Flags().Changed("strategy") && asksFor(cmd, said{name: name}) != nil {
				continue
			}
			if few, ok := f.Value.(*oneOf); ok {
				for _, value := range few.known {
					all = append(all, name+"="+value+"\t"+r.line)
				}
				continue
			}
			all = append(all, name+"="+"\t"+r.line)
		}
	}
	return all
}

// optionsNamed returns the settings of --option of one strategy, each with what it takes and says.
func optionsNamed(of string) (all []string) {
	for _, r := range allRows(optionTable) {
		for _, name := range r.names() {
			if owner, _, _ := strings.Cut(name, "."); owner == of {
				all = append(all, fmt.Sprintf("%s=%s: %s", name, strings.ToUpper(r.takes.name), r.usage()))
			}
		}
	}
	return all
}

// allRows returns the rows of a table.
func allRows(table []setting) (rows []*setting) {
	for i := range table {
		rows = append(rows, &table[i])
	}
	return rows
}

// refuse returns an error for the first of the flags or settings that was given.
func refuse(cmd *cobra.Command, why string, flags ...string) error {
	for _, name := range flags {
		if given := spelling(cmd.Flags(), name); given != "" {
			return usage(fmt.Errorf("%s %s", given, why))
		}
	}
	return nil
}
