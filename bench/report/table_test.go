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
	for name, err := range map[string]error{
		"text": small.Text(broken{}), "markdown": small.Markdown(broken{}), "page": samplePage().Write(broken{}),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
