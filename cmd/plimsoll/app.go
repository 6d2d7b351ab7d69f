package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"plimsoll/bench/report"
	"plimsoll/internal/fields"
	"plimsoll/internal/names"
	"plimsoll/internal/version"
	"plimsoll/internal/visible"
)

// app is the state that all commands share: where they read and write, and the flags that every command takes.
type app struct {
	stdin   io.Reader
	stdout  io.Writer // results alone, without control characters
	stderr  *stream   // progress, notes and errors
	args    []string  // the command line
	json    bool
	quiet   bool
	verbose bool // of commands that print statistics on request
	rank    int  // of this process, of several; 0 speaks for all

	causes *causePipe // to the launch that has started this process; nil where none has

	mu    sync.Mutex // of stderr, and of
	drawn bool       // the last line of the terminal is a live one
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(names.Unknown(errCommand, args[0], commandNames(cmd)))
}

// commandNames lists the commands under one.
func commandNames(cmd *cobra.Command) (all []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, c.Name())
		}
	}
	return all
}

// command returns a command without arguments, whose run gets the context.
func command(use, short, long string, run func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				meant := names.Hint(names.Closest(args[0], commandNames(cmd)), cmd.CommandPath()+" ")
				return usage(fmt.Errorf("unexpected argument %q: %severything is given by flags", args[0], meant))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	}
}

// print writes the result: the object as JSON, or the text for people.
func (a *app) print(object any, text func(io.Writer)) error {
	if !a.json {
		text(a.stdout)
		return nil
	}
	b, err := fields.MarshalIndent(object)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s\n", b)
	return nil
}

// draw rewrites the last line of a terminal.
func (a *app) draw(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line = visible.Text(line)
	if width := a.stderr.width(); width > 1 { // some say 0
		line = string([]rune(line)[:min(len([]rune(line)), width-1)])
	}
	fmt.Fprint(a.stderr, erase+line)
	a.drawn = true
}

// note writes a line about the run to standard error.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		a.warn(format, args...)
	}
}

// noteWhenEnded notes something when the context ends. Call done at the end of the work in the context; it waits for a note that
// has begun.
func (a *app) noteWhenEnded(ctx context.Context, text string) (done func()) {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		a.note("%s", text)
	})
	return func() {
		if !stop() {
			<-said
		}
	}
}

// warn writes a line to standard error, --quiet or not.
func (a *app) warn(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := visible.Clip(visible.Lines(fmt.Sprintf(format, args...)))
	if a.drawn {
		line, a.drawn = erase+line, false
	}
	fmt.Fprintln(a.stderr, strings.TrimRight(line, "\n"))
}

// erase lets a terminal begin its line anew.
const erase = "\r\x1b[K"

// progress returns a function that shows how far something is: a bar on a terminal, nothing elsewhere.
func (a *app) progress(what string) func(done, total int) {
	if a.quiet || !a.stderr.terminal() {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(done, total int) {
		if bar == nil {
			bar = progressbar.NewOptions(total,
				progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(visible.Text(what)),
				progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		}
		_ = bar.Set(done) // a bar that cannot be drawn is no reason to fail
	}
}

// facts are the facts of a page's environment that only the command line knows.
func (a *app) facts() []report.Fact {
	return []report.Fact{
		{Name: "command", Value: commandLine(a.args)},
		{Name: "version", Value: fmt.Sprintf("plimsoll %s, %s, %s/%s", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)},
	}
}

// commandLine is the line for a shell.
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
