package main

import (
	"fmt"
	"runtime"
	"strings"

	"plimsoll/bench/report"
	"plimsoll/internal/version"
)

// facts are what only the command line knows of a page's environment.
func (a *app) facts() []report.Fact {
	return []report.Fact{
		{Name: "command", Value: commandLine(a.args)},
		{Name: "version", Value: fmt.Sprintf("plimsoll %s, %s, %s/%s", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)},
	}
}

// commandLine is what a shell would be given.
func commandLine(args []string) string {
	all := []string{"plimsoll"}
	for _, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \t\n\"'`$\\*?[]{}()<>|&;~#!") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		all = append(all, arg)
	}
	return strings.Join(all, " ")
}
