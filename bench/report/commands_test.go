package report

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/executor/commands"
)

// texts draws tables and returns the texts of the picture, in order, and all of it.
func texts(t *testing.T, tables []commands.Table) (all []string, picture string) {
	t.Helper()
	var b strings.Builder
	if err := WriteCommands(&b, "<a title>", tables); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range regexp.MustCompile(`<text [^>]*>([^<]*)</text>`).FindAllStringSubmatch(b.String(), -1) {
		all = append(all, m[1])
	}
	return all, b.String()
}

// A picture has the commands in order, launches that follow each other as one mark, and a stream where it changes. Each event and turn has
// one number. A row has two variants and the number of further ones; notes are left out.
func TestPictureOfTables(t *testing.T) {
	t.Parallel()
	on := func(stream string, verb commands.Verb, what string) commands.Command {
		return commands.Command{Verb: verb, Stream: stream, What: what}
	}
	launch := []commands.Command{on("compute", commands.Launch, "relu")}
	tables := []commands.Table{{Device: "gpu", Period: "a step", Rows: []commands.Row{
		commands.Constant("F0", []commands.Command{
			on("compute", commands.Launch, "relu"), on("compute", commands.Note, "the time"), on("compute", commands.Launch, "add"), on("compute", commands.Record, "ready"),
			on(commands.Driver, commands.Give, "block"), on("link", commands.Wait, "ready"), {Verb: commands.Copy, Stream: "link", What: "a_1", Bytes: 2048},
			on("compute", commands.Wait, "sent"), on("compute", commands.Launch, "relu"),
		}),
		commands.Constant("notes", []commands.Command{on("compute", commands.Note, "the time")}),
		{Task: "B0", Round: []int{0, 1, 0, 1, 0}, Variants: [][]commands.Command{launch, launch}},
	}}}
	got, picture := texts(t, tables)
	want := []string{
		"launches", "copies, messages", "events", "turns of drivers", "work of the host", "gpu: a period is a step",
		"F0", "compute", "2 launches", "record 1", "give 1", "link", "wait 1", "copy 2 KiB", "compute", "wait 2", "1 launch",
		"B0", "compute", "1 launch", "1 of 5", "B0", "compute", "1 launch", "2 of 5", "3 more variants", "&lt;a title&gt;",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, part := range []string{`<title>launch  relu&#xA;launch  add</title>`, "prefers-color-scheme:dark", `viewBox="0 -24 400 `} {
		if !strings.Contains(picture, part) {
			t.Errorf("no %s in\n%s", part, picture)
		}
	}
}

// No mark is drawn beyond the picture's width.
func TestMarksStayWithinThePicture(t *testing.T) {
	t.Parallel()
	list := slices.Repeat([]commands.Command{{Verb: commands.Wait, Stream: "compute", What: "an event"}, {Verb: commands.Work, Stream: commands.Driver, What: "await the result"}}, 20)
	_, picture := texts(t, []commands.Table{{Device: "gpu", Rows: []commands.Row{commands.Constant("F0", list)}}})
	marks := regexp.MustCompile(`<rect class="k\d[^"]*" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"`).FindAllStringSubmatch(picture, -1)
	lines := map[string]bool{}
	for _, m := range marks {
		if lines[m[2]] = true; atof(t, m[1])+atof(t, m[3]) > tableRight {
			t.Errorf("a mark from %s, %s wide", m[1], m[3])
		}
	}
	if len(marks) != 45 || len(lines) < 8 {
		t.Errorf("%d marks in %d lines", len(marks), len(lines))
	}
}

func atof(t *testing.T, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
