package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/internal/names"
)

// numbers say what flags of pflag's own types take.
var numbers = map[string]string{
	"int": "a whole number", "uint64": "a whole number from 0", "float64": "a number", "duration": `a time, as in 10s or 5m`,
	"bool": "true or false", "intSlice": "whole numbers, separated by commas",
}

// flagError says what is wrong about a flag of a command, and what may be meant.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		name := unknown.GetSpecifiedName()
		err = fmt.Errorf("unknown flag --%s: %s%s --help lists the flags", name, names.Hint(names.Closest(name, flagNames(cmd)), "--"), cmd.CommandPath())
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := bad.GetFlag()
		if namesFlag(f.Value) {
			return usage(bad.Unwrap())
		}
		if err = fmt.Errorf("--%s: %w", f.Name, bad.Unwrap()); numbers[f.Value.Type()] != "" {
			err = fmt.Errorf("--%s is %q: give %s", f.Name, bad.GetValue(), numbers[f.Value.Type()])
		}
	}
	return usage(err)
}

// namesFlag reports whether the errors of a flag's values name it.
func namesFlag(v pflag.Value) bool {
	switch v.(type) {
	case *settings, *oldFlag:
		return true
	}
	return false
}
