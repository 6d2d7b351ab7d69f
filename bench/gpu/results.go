package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"plimsoll/internal/atomicfile"
)

// results are the latest outcomes of all parts that ran into one folder.
type results struct {
	Format string     `json:"format"`
	Parts  []*outcome `json:"parts"`
}

const (
	resultsFormat = "plimsoll.gpu-suite/v1"
	logName       = "log.txt"
)

func readResults(folder string) (*results, error) {
	r := &results{Format: resultsFormat}
	err := readJSON(filepath.Join(folder, "results.json"), r)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	return r, err
}

// record replaces the outcome of a part in a folder's results.json and results.md.
func record(folder string, p *outcome) error {
	r, err := readResults(folder)
	if err != nil {
		return err
	}
	r.replace(p)
	return r.write(folder)
}

// replace puts the outcome of a part in place of an older one.
func (r *results) replace(p *outcome) {
	r.Parts = slices.DeleteFunc(r.Parts, func(q *outcome) bool { return q.Part == p.Part })
	r.Parts = append(r.Parts, p)
	order := partNames()
	slices.SortStableFunc(r.Parts, func(a, b *outcome) int { return slices.Index(order, a.Part) - slices.Index(order, b.Part) })
}

// add is replace unless there is a later outcome of the part.
func (r *results) add(p *outcome) {
	if !slices.ContainsFunc(r.Parts, func(q *outcome) bool { return q.Part == p.Part && q.Started.After(p.Started) }) {
		r.replace(p)
	}
}

// write writes a folder's results.json and results.md.
func (r *results) write(folder string) error {
	if err := atomicfile.WriteJSON(filepath.Join(folder, "results.json"), r); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(folder, "results.md"), r.markdown)
}

// markdown writes the results for people: a table of all parts, then the tables of each.
func (r *results) markdown(w io.Writer) error {
	var text strings.Builder
	text.WriteString("# GPU suite\n\n")
	if slices.ContainsFunc(r.Parts, func(p *outcome) bool { return p.Environment.Simulated }) {
		text.WriteString(simulated + "\n\n")
	}
	var machine string
	for _, p := range slices.Backward(r.Parts) {
		machine = cmp.Or(p.Environment.line(), machine)
	}
	if machine != "" {
		text.WriteString(machine + ".\n\n")
	}
	text.WriteString("| part | state | time | began | commit | |\n|---|---|---|---|---|---|\n")
	for _, p := range r.Parts {
		fmt.Fprintf(&text, "| %s | %s | %.0f s | %s | %.7s | %s |\n", p.Part, p.State, p.Seconds, p.Started.Format("2006-01-02 15:04 MST"), p.Environment.Commit,
			strings.ReplaceAll(p.Summary, "|", "/"))
	}
	for _, p := range r.Parts {
		p.section(&text, machine)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// section writes the tables of a part, with its machine if that is another one than the page's.
func (p *outcome) section(text *strings.Builder, machine string) {
	tables := p.Markdown
	if own := p.Environment.line(); own != "" && own != machine {
		tables = own + ".\n\n" + tables
	}
	if strings.TrimSpace(tables) != "" {
		fmt.Fprintf(text, "\n## %s\n\n%s", p.Part, tables)
	}
}

// summarize prints a folder's results as a short table.
func summarize(folder string, out io.Writer) error {
	r, err := readResults(folder)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, p := range r.Parts {
		note := p.Summary
		if p.Environment.Simulated {
			note = "(simulated) " + note
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f s\t%s\n", p.Part, p.State, p.Seconds, note)
	}
	return w.Flush()
}
