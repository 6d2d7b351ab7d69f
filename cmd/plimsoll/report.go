package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/report"
	"plimsoll/internal/atomicfile"
)

// reportCommand is plimsoll report.
type reportCommand struct {
	*app
	out, svg string
}

func newReportCommand(a *app) *cobra.Command {
	c := &reportCommand{app: a}
	cmd := &cobra.Command{
		Use:   "report FOLDER...",
		Short: "Draw the page of a run again, or compare several in one",
		Long: `Draw the page of a folder that train, validate, demo or bench wrote, from its report.json. Several folders stand side by side: figures,
differences of their environments, and losses, memory and pipelines on the same axes.

Differences are to the first one. Curves of the same title lie over each other, a color for each folder.`,
		Example: `  plimsoll report runs/a --svg memory.svg
  plimsoll report runs/a runs/b --out compared.html
  plimsoll report before/demo after/demo --out demo.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(errors.New("no folder: name one or several with a report.json, as in plimsoll report runs/a runs/b --out compared.html"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return c.run(args) },
	}
	s := cmd.Flags()
	s.StringVarP(&c.out, "out", "o", "", "write the page here")
	s.StringVar(&c.svg, "svg", "", "draw the memory over a step here: of the plan, as it ran, and of the step without a plan")
	return cmd
}

func (c *reportCommand) run(paths []string) error {
	if err := allWritable("", output{"--out", c.out}, output{"--svg", c.svg}); err != nil {
		return err
	}
	names, pages, err := readPages(paths)
	if err != nil {
		return err
	}
	page := pages[0]
	if len(pages) > 1 {
		page = report.Compare(names, pages)
	}
	if err := c.write(page); err != nil {
		return err
	}
	object := reportList{}
	for i, p := range pages {
		object.Reports = append(object.Reports, reportFigures{names[i], p.Title, p.Environment, p.Figures})
	}
	return c.print(object, func(w io.Writer) {
		for i, p := range pages {
			fmt.Fprintf(w, "%s: %s\n", names[i], p.Title)
			for _, f := range p.Environment {
				if f.Name == bench.Processors {
					fmt.Fprintf(w, "%s: %s\n", names[i], f.Value)
				}
			}
		}
		if table := report.FigureTable(names, pages); len(table.Rows) > 0 {
			fmt.Fprintln(w)
			_ = table.Text(w) // as all that is printed, it is not worth failing for
		}
	})
}

// reportList is the JSON of plimsoll report.
type reportList struct {
	Reports []reportFigures `json:"reports"`
}

// reportFigures is the JSON of plimsoll report for a page.
type reportFigures struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Environment []report.Fact   `json:"environment"`
	Figures     []report.Figure `json:"figures"`
}

// readPages reads the pages, whose names are their paths.
func readPages(paths []string) (names []string, pages []*report.Page, err error) {
	seen := map[string]bool{}
	for _, path := range paths {
		name := filepath.Clean(path)
		if seen[name] {
			return nil, nil, usage(fmt.Errorf("%s is given twice", path))
		}
		seen[name] = true
		p, err := report.Read(path)
		if err != nil {
			return nil, nil, usage(fmt.Errorf("%w; train --out, validate --out, demo and bench write it", err))
		}
		names, pages = append(names, name), append(pages, p)
	}
	return names, pages, nil
}

// write writes the page and the picture that the flags name.
func (c *reportCommand) write(page *report.Page) error {
	var all []atomicfile.Output
	if c.out != "" {
		all = append(all, atomicfile.Output{Path: c.out, Write: page.Write})
	}
	if c.svg != "" {
		memory := page.MemoryPicture()
		if memory == nil {
			return usage(errors.New("--svg draws the memory over a step, and there is none in this report"))
		}
		all = append(all, atomicfile.Output{Path: c.svg, Write: memory})
	}
	return atomicfile.WriteAll(atomicfile.OS{}, all...)
}
