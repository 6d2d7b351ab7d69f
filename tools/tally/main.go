// Command tally reads the events of `go test -json` and prints a line a package, the output of failed tests and a count.
//
// It fails when a test fails, and when fewer tests pass than counts.txt has for the tier. So no filter and no missing
// tool can leave tests out without a word.
package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

//go:embed counts.txt
var counts string

func main() {
	tier := flag.String("tier", "", "tier whose least number of tests counts.txt has; none: any number will do")
	slow := flag.Float64("slow", 5, "seconds from which a test is named")
	flag.Parse()
	least, err := leastOf(counts, *tier)
	if err == nil {
		err = tally(os.Stdin, os.Stdout, least, *slow)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
}

// leastOf returns the number that a text of lines `tier number` has for a tier.
func leastOf(text, tier string) (int, error) {
	if tier == "" {
		return 0, nil
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == tier {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("tools/tally/counts.txt has no tier %q", tier)
}

// event is one line of `go test -json` (`go doc test2json`).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// report collects the events of one run.
type report struct {
	w       io.Writer
	slow    float64
	output  map[string]*strings.Builder // of running tests and packages
	reasons map[string]int              // number of skipped tests by reason
	slowest []string

	passed, failed, skipped int
	broken                  bool // a package failed outside of its tests
}

// tally prints a run of tests. It fails when a test or a package failed, or fewer than least tests passed.
func tally(events io.Reader, w io.Writer, least int, slow float64) error {
	r := &report{w: w, slow: slow, output: map[string]*strings.Builder{}, reasons: map[string]int{}}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(w, lines.Text()) // what the go command itself says
			continue
		}
		r.take(e)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return r.end(least)
}

func (r *report) take(e event) {
	name := e.Package + "." + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.w, e.Output)
	case "build-fail":
		r.broken = true
	case "output":
		r.keep(name, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e, name)
		}
		delete(r.output, name)
	}
}

func (r *report) keep(name, text string) {
	if r.output[name] == nil {
		r.output[name] = &strings.Builder{}
	}
	r.output[name].WriteString(text)
}

// endPackage prints the line of a package, and what it printed outside of its tests when it failed.
func (r *report) endPackage(e event) {
	said := cmp.Or(r.output[e.Package+"."], &strings.Builder{})
	switch e.Action {
	case "fail":
		r.broken = true
		fmt.Fprint(r.w, said)
	case "pass":
		for line := range strings.Lines(said.String()) {
			if strings.HasPrefix(line, "ok ") {
				fmt.Fprint(r.w, line)
			}
		}
	}
}

// endTest counts a test; subtests are counted with theirs, and named when they fail.
func (r *report) endTest(e event, name string) {
	if e.Action == "fail" {
		fmt.Fprint(r.w, r.output[name])
	}
	if strings.Contains(e.Test, "/") {
		return
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
	case "skip":
		r.skipped++
		r.reasons[reason(r.output[name])]++
	}
	if e.Elapsed >= r.slow {
		r.slowest = append(r.slowest, fmt.Sprintf("%7.1f s  %s", e.Elapsed, name))
	}
}

// reason returns the message of a skipped test.
func reason(output *strings.Builder) string {
	if output != nil {
		for line := range strings.Lines(output.String()) {
			if _, said, ok := strings.Cut(line, "_test.go:"); ok {
				_, said, _ = strings.Cut(said, ": ")
				return strings.TrimSpace(said)
			}
		}
	}
	return "no reason given"
}

func (r *report) end(least int) error {
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(r.w, "skipped %3d  %s\n", r.reasons[why], why)
	}
	slices.Sort(r.slowest)
	for _, line := range slices.Backward(r.slowest) {
		fmt.Fprintln(r.w, "slow", line)
	}
	fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	switch {
	case r.failed > 0 || r.broken:
		return fmt.Errorf("tests failed")
	case r.passed < least:
		return fmt.Errorf("%d tests passed, fewer than the %d of tools/tally/counts.txt: find out which no longer run", r.passed, least)
	}
	return nil
}
