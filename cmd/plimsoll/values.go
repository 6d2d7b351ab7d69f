package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/internal/names"
)

// oneOf is a flag that takes one of a few names.
type oneOf struct {
	value *string
	known []string
}

// newOneOf returns the flag; the first name is the default.
func newOneOf(value *string, known ...string) *oneOf {
	*value = known[0]
	return &oneOf{value, known}
}

// String implements pflag.Value.
func (o *oneOf) String() string { return *o.value }

// Set implements pflag.Value.
func (o *oneOf) Set(text string) error {
	*o.value = text
	return names.In(errValue, text, o.known)
}

// Type implements pflag.Value; help texts show it.
func (o *oneOf) Type() string { return "name" }

var (
	errValue   = errors.New("unknown value")
	errCommand = errors.New("unknown command")
)

// flagNames lists the flags of a command.
func flagNames(cmd *cobra.Command) (all []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, f.Name)
		}
	})
	return all
}
