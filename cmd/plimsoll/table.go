package main

import (
	"fmt"
	"io"
	"path/filepath"

	"plimsoll/bench/report"
	"plimsoll/executor/commands"
	"plimsoll/executor/train"
	"plimsoll/internal/atomicfile"
)

// writeTables writes the tables of commands of a planned run to a file: a picture where its name ends with .svg, else text. No path, no
// file.
func writeTables(path string, r *train.Run) error {
	if path == "" {
		return nil
	}
	tables, err := r.Tables()
	if err != nil {
		return fmt.Errorf("--debug table=%s: %w", path, err)
	}
	return atomicfile.WriteFile(path, func(w io.Writer) error {
		if filepath.Ext(path) != ".svg" {
			return commands.Write(w, tables)
		}
		return report.WriteCommands(w, "Commands of "+r.Plan.Strategy, tables)
	})
}
