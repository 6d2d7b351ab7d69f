package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plimsoll/internal/names"
	"plimsoll/internal/visible"
)

// run executes one command line and returns the exit code. It is 0, 1 for a failed run, 2 for bad usage or input,
// 3 for "does not fit", 141 when nobody reads its output. A signal ends the context: see untilSignal.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (code int) {
	ctx, hangUp, stop := untilSignal(ctx)
	defer stop()
	results := &stream{Writer: out}
	a := &app{args: args, stdin: in, stdout: visible.Writer{W: results}, stderr: &stream{Writer: errs, failed: hangUp}, causes: launcher()}
	defer func() {
		if p := recover(); p != nil {
			text := strings.TrimPrefix(fmt.Sprint(p), "BUG: ")
			a.warn("BUG: %s\n%s", text, debug.Stack())
			a.causes.report(errors.New(text))
			bug := &failure{Command: "plimsoll", Error: text, Kind: kindBug, ExitCode: exitFailed}
			if code = bug.ExitCode; slices.Contains(args, "--json") {
				bug.writeJSON(visible.Writer{W: a.stderr})
			}
		}
	}()
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err = firstOf(err, results.lost()); err == nil {
		return exitOK
	}
	if errors.Is(err, syscall.EPIPE) { // plimsoll | head: whoever read has what they wanted
		return exitUnread
	}
	a.causes.report(err)
	failure := failureOf(cmd.CommandPath(), err)
	if a.json || slices.Contains(args, "--json") { // which may stand behind the flag that is wrong
		failure.writeJSON(visible.Writer{W: a.stderr})
	} else {
		a.warn("%s: %s", failure.Command, failure.Error)
	}
	return failure.ExitCode
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "plimsoll",
		Short: "Train networks that do not fit in memory, along a plan, at a predicted cost",
		Long: `Plimsoll trains chains of layers that do not fit in device memory. It measures a chain, plans the fastest
schedule under a memory limit, runs exactly that schedule, and reports prediction beside measurement.

Sizes are written as 4GiB, 512MB or 123, memory also as a share of what the plain step needs: 40%.

Exit codes: 0 done, 1 the run failed, 2 bad usage or input, 3 it does not fit.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
	}
	version := root.Flags().Bool("version", false, "print the version, as the command version does")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return printVersion(a)
		}
		return cmd.Help()
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON object, in SI base units")
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no notes")
	root.AddCommand(
		newDevicesCommand(a), newFitCommand(a), newProfileCommand(a), newPlanCommand(a), newFrontierCommand(a), newCheckCommand(a), newTrainCommand(a),
		newEvaluateCommand(a), newGenerateCommand(a), newTokenizeCommand(a), newValidateCommand(a), newBenchCommand(a), newTraceCommand(a),
		newReportCommand(a), newDemoCommand(a), newModelsCommand(a), newOptionsCommand(a), newImportCommand(a), newConvertCommand(a),
		newLaunchCommand(a), newVersionCommand(a))
	linkSettings(a, root)
	setHelp(root)
	completeValues(root)
	return root
}

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
