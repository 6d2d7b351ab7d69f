package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/internal/version"
	"plimsoll/kernels/library"
	"plimsoll/planner/milp"
)

func newVersionCommand(a *app) *cobra.Command {
	return command("version", "Print the version, and what is built in", "", func(context.Context) error { return printVersion(a) })
}

// versionFigures is the JSON of version.
type versionFigures struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  bool   `json:"cpu_kernels"` // those in C; without them only --debug reference trains on the cpu
	CUDA     bool   `json:"cuda"`
	HiGHS    bool   `json:"highs"` // which checkmate, milp and ilp need
}

func printVersion(a *app) error {
	v := versionFigures{
		version.Release, version.Commit(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, library.Compiled, withCUDA, milp.Built,
	}
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "plimsoll %s (%s, %s)\n", version.String(), v.Go, v.Platform)
		var in []string
		for _, part := range []struct {
			name  string
			built bool
		}{{"cpu kernels", v.Kernels}, {"cuda", v.CUDA}, {"highs", v.HiGHS}} {
			in = append(in, part.name+map[bool]string{true: "", false: " not"}[part.built]+" built in")
		}
		fmt.Fprintln(w, strings.Join(in, ", "))
	})
}
