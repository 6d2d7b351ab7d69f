package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"plimsoll/internal/atomicfile"
)

// convertCommand is plimsoll convert.
type convertCommand struct {
	*app
	plan planInput
	of   planFor
	out  string
}

func newConvertCommand(a *app) *cobra.Command {
	c := &convertCommand{app: a}
	cmd := command("convert", "Turn a sequence into a plan file, and back", `Read a plan in any form that plimsoll check reads, and write it in another. If -o ends in .json, convert writes a plan file. The time
and the peak in it are simulated. Otherwise convert writes the text form of the plan's sequence, one token an op. A table of PyTorch's pipeline schedules becomes a plan file for several devices, which has no text form.`, nil)
	cmd.Example = `  plimsoll convert -c c.json --text "Fall1 Fall2 B2 B1" -o p.json
  plimsoll convert -c c.json -p p.json
  plimsoll convert -p schedule.csv -o p.json`
	c.plan.register(cmd)
	c.of.register(cmd)
	cmd.Flags().StringVarP(&c.out, "output", "o", "", "write it here: a plan file with the ending .json, else the text form (default: the text form, on standard output)")
	cmd.RunE = func(*cobra.Command, []string) error { return c.run() }
	return cmd
}

// errNoText is the error for a pipeline, which is no sequence.
var errNoText = errors.New("a plan for several devices is no sequence and has no text form: give a file for the plan, as in -o p.json")

// convertFigures is the JSON of convert.
type convertFigures struct {
	File     string `json:"file,omitempty"`
	Ops      int    `json:"ops"` // of a pipeline, tasks
	Sequence string `json:"sequence,omitempty"`
}

func (c *convertCommand) run() error {
	if err := writable("--output", c.out); err != nil {
		return err
	}
	p, err := c.plan.plan(c.stdin, &c.of)
	if err != nil {
		return err
	}
	figures := convertFigures{File: c.out}
	figures.Ops, _ = p.size()
	switch text := p.plan.IsSequence(); {
	case strings.HasSuffix(c.out, ".json"):
		err = p.write(planFiles{plan: c.out})
	case !text:
		return usage(fmt.Errorf("%s: %w", &c.plan, errNoText))
	case c.out != "":
		err = atomicfile.WriteFile(c.out, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, p.plan.Sequence())
			return err
		})
	}
	if err != nil {
		return err
	}
	if p.plan.IsSequence() {
		figures.Sequence = p.plan.Sequence().String()
	}
	return c.print(figures, func(w io.Writer) {
		if c.out == "" {
			fmt.Fprintln(w, p.plan.Sequence())
			return
		}
		fmt.Fprintf(w, "%s: %d ops\n", c.out, figures.Ops)
	})
}
