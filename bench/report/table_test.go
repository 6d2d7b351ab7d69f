package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var small = Table{
	Columns: []Column{{"strategy", false}, {"time", true}, {"ok", false}},
	Rows:    [][]string{{"store-all", "4.56 ms", "yes"}, {"rotor", "12 µs", "no"}, {"revolve", "-"}},
}

func TestText(t *testing.T) {
	t.Parallel()
	want := strings.Join([]string{
		"strategy      time  ok",
		"─────────  ───────  ───",
		"store-all  4.56 ms  yes",
		"rotor        12 µs  no",
		"revolve          -",
		"",
	}, "\n")
	var b bytes.Buffer
	if err := small.Text(&b); err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	want := strings.Join([]string{
		"| strategy  |    time | ok  |",
		"| --------- | ------: | --- |",
		"| store-all | 4.56 ms | yes |",
		"| rotor     |   12 µs | no  |",
		"| revolve   |       - |     |",
		"",
	}, "\n")
	var b bytes.Buffer
	if err := small.Markdown(&b); err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
	}
}

// All lines of a table in Markdown are equally wide, and a bar in a cell does not start a column.
func TestAligned(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.StringOf(rapid.RuneFrom([]rune("ab µ|\n9")))
		table := Table{Columns: []Column{{cell.Draw(t, "a"), rapid.Bool().Draw(t, "ra")}, {cell.Draw(t, "b"), rapid.Bool().Draw(t, "rb")}}}
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			table.Rows = append(table.Rows, []string{cell.Draw(t, "x"), cell.Draw(t, "y")}[:rapid.IntRange(0, 2).Draw(t, "cells")])
		}
		var b bytes.Buffer
		if err := table.Markdown(&b); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != len(table.Rows)+2 {
			t.Fatalf("%d lines for %d rows:\n%s", len(lines), len(table.Rows), b.String())
		}
		for _, line := range lines {
			bars := strings.Count(line, "|") - strings.Count(line, `\|`)
			if utf8.RuneCountInString(line) != utf8.RuneCountInString(lines[0]) || bars != 3 {
				t.Fatalf("line %q is not like %q", line, lines[0])
			}
		}
	})
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"text": small.Text(broken{}), "markdown": small.Markdown(broken{}), "page": samplePage().Write(broken{}),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A table that is too wide for a terminal becomes several, each with the keys and within the width; no cell is lost.
func TestTerminalDividesWideTables(t *testing.T) {
	t.Parallel()
	var wide Table
	row := []string{}
	for i := range 12 {
		wide.Columns = append(wide.Columns, Column{strings.Repeat("h", 14) + string(rune('a'+i)), i > 0})
		row = append(row, "cell-"+string(rune('a'+i)))
	}
	wide.Rows = [][]string{row, row[:3]}
	var b bytes.Buffer
	if err := wide.Terminal(&b, 1); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for line := range strings.SplitSeq(text, "\n") {
		if n := utf8.RuneCountInString(line); n > TerminalColumns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	parts := strings.Split(text, "\n\n")
	if len(parts) != 3 {
		t.Fatalf("%d tables:\n%s", len(parts), text)
	}
	for i := range 12 {
		if n := strings.Count(text, "cell-"+string(rune('a'+i))); i > 2 && n != 1 || n == 0 {
			t.Errorf("column %d is there %d times:\n%s", i, n, text)
		}
	}
	var one, plain bytes.Buffer
	if err := errors.Join(small.Terminal(&one, 1), small.Text(&plain)); err != nil || one.String() != plain.String() {
		t.Errorf("%v: a narrow table changed:\n%s", err, one.String())
	}
}
