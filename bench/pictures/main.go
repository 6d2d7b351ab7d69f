// Command pictures draws pictures of documents from tables of results, each of which a run of the program has written. It runs at the root of
// the repository:
//
//	go run ./bench/pictures        # into docs/results
package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"plimsoll/bench/report"
	"plimsoll/internal/atomicfile"
)

func main() {
	if err := drawAll("bench/results", "docs/results"); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// drawAll draws all pictures from a folder of tables into another folder.
func drawAll(tables, pictures string) error {
	byMemory, err := frontier(tables)
	if err != nil {
		return err
	}
	byTime, err := predicted(tables)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(pictures, "frontier.svg"), byMemory.WriteSVG); err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(pictures, "predicted.svg"), byTime.WriteSVG)
}

// curve is a series and the columns of a table that it shows.
type curve struct {
	report.Series
	file, x, y string
}

// add adds the curves to the chart.
func add(c *report.Chart, tables string, curves ...curve) (err error) {
	for i, s := range curves {
		s.Color = i
		if s.Points, err = columns(filepath.Join(tables, s.file), s.x, s.y); err != nil {
			return err
		}
		c.Series = append(c.Series, s.Series)
	}
	return nil
}

// frontier draws the time of a step over its memory, as plimsoll frontier has planned it.
func frontier(tables string) (*report.Chart, error) {
	c := &report.Chart{
		Title: "ResNet-50 on a V100: time over memory (simulated)",
		X:     report.Axis{Label: "memory limit", Unit: report.Bytes, Tight: true}, Y: report.Axis{Label: "time of a step", Unit: report.Seconds, Tight: true},
	}
	return c, add(c, tables,
		curve{report.Series{Name: "recompute only", Shape: report.Step}, "frontier-recompute.csv", "memory_bytes", "makespan_s"},
		curve{report.Series{Name: "host memory at 12 GB/s, too", Shape: report.Step}, "frontier-offload.csv", "memory_bytes", "makespan_s"},
		curve{report.Series{Name: "no plan is faster", Shape: report.Step, Dashed: true}, "frontier-offload.csv", "memory_bytes", "lower_bound_s"})
}

// predicted draws measured steps over predicted ones.
func predicted(tables string) (*report.Chart, error) {
	c := &report.Chart{
		X: report.Axis{Label: "predicted", Unit: report.Seconds, Log: true}, Y: report.Axis{Label: "measured", Unit: report.Seconds, Log: true},
	}
	err := add(c, tables,
		curve{report.Series{Name: "recompute and offload", Shape: report.Marks}, "validate-offload.csv", "predicted_time", "measured_time"},
		curve{report.Series{Name: "move weights and state", Shape: report.Marks}, "timed-plans.csv", "predicted_s", "measured_s"})
	least, most, count := math.Inf(1), 0.0, 0
	for _, s := range c.Series {
		count += len(s.Points)
		for _, p := range s.Points {
			least, most = min(least, p.X, p.Y), max(most, p.X, p.Y)
		}
	}
	c.Title = fmt.Sprintf("Steps of %d plans on two cores", count)
	c.Series = append(c.Series, report.Series{Name: "equal", Color: 7, Dashed: true, Points: []report.Point{{X: least, Y: least}, {X: most, Y: most}}})
	return c, err
}

// columns returns two columns of a table. Rows of grids with random delays, whose times mean nothing, and rows without a plan are left out.
func columns(file, x, y string) (points []report.Point, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	atX, atY := slices.Index(rows[0], x), slices.Index(rows[0], y)
	for _, row := range rows[1:] {
		if strings.HasSuffix(row[0], "-chaos") || row[atX] == "" {
			continue
		}
		px, failedX := number(row[atX])
		py, failedY := number(row[atY])
		if err := errors.Join(failedX, failedY); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		points = append(points, report.Point{X: px, Y: py})
	}
	return points, nil
}

// number reads a number, or a time as people write it: "37.8 ms".
func number(cell string) (float64, error) {
	if strings.HasSuffix(cell, "s") {
		d, err := time.ParseDuration(strings.ReplaceAll(cell, " ", ""))
		return d.Seconds(), err
	}
	return strconv.ParseFloat(cell, 64)
}
