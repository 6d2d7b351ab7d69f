package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// In the documents, each block of ```console shows exactly the lines that the program prints. Its commands run in order, in a folder with
// the repository's docs, planner, bench and tools. "..." stands for any lines. Four commands are known: plimsoll, cat, sed and make help.
// "; echo exit $?" may follow plimsoll. "cat FILE" writes the lines that the block shows to FILE. sed makes a changed copy of a file.
// -update rewrites the blocks.
func TestDocumentsShowWhatIsPrinted(t *testing.T) {
	// Serial: it changes the working folder.
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	docs, blocks := documents(t), 0
	t.Chdir(t.TempDir())
	for _, doc := range docs {
		doc := filepath.Join(root, strings.TrimPrefix(doc, "../../"))
		text := read(t, doc)
		s := newSession(t, root)
		now := consoleBlock.ReplaceAllStringFunc(text, func(block string) string {
			blocks++
			shown := consoleBlock.FindStringSubmatch(block)[1]
			got := s.replay(t, shown)
			if agree(shown, got) { // "..." stays
				return block
			}
			if !*update {
				t.Errorf("%s shows\n%s\nand the program prints\n%s", filepath.Base(doc), shown, got)
			}
			return "```console\n" + got + "```\n"
		})
		if *update && now != text {
			write(t, doc, now)
		}
	}
	if blocks < 10 {
		t.Errorf("only %d blocks", blocks)
	}
}

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```\n")

// session is a shell that knows few commands.
type session struct{ folder string }

func newSession(t *testing.T, root string) *session {
	t.Helper()
	s := &session{t.TempDir()}
	for _, name := range []string{"docs", "planner", "bench", "tools"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(s.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// replay runs the commands of a block and returns it with what they print.
func (s *session) replay(t *testing.T, block string) string {
	t.Helper()
	t.Chdir(s.folder)
	var b strings.Builder
	for _, part := range strings.SplitAfter("\n"+block, "\n$ ")[1:] {
		part = strings.TrimSuffix(part, "\n$ ")
		if !strings.HasSuffix(part, "\n") {
			part += "\n"
		}
		line, shown, _ := strings.Cut(part, "\n")
		fmt.Fprintf(&b, "$ %s\n%s", line, s.run(t, line, shown))
	}
	return b.String()
}

func (s *session) run(t *testing.T, line, shown string) string {
	t.Helper()
	if file, ok := strings.CutPrefix(line, "cat "); ok {
		write(t, filepath.Join(s.folder, file), shown)
		return shown
	}
	if strings.HasPrefix(line, "sed ") || line == "make help" {
		out, err := exec.Command("sh", "-c", strings.Replace(line, "make", "make -s -C docs/..", 1)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return string(out)
	}
	command, exit := strings.CutSuffix(line, "; echo exit $?")
	args := words(command)
	if args[0] != "plimsoll" {
		t.Fatalf("a block of ```console has %q", line)
	}
	var out, errs strings.Builder
	code := run(context.Background(), args[1:], strings.NewReader(""), &out, &errs)
	text := out.String() + errs.String()
	if exit {
		text += fmt.Sprintf("exit %d\n", code)
	}
	return text
}

// words splits a command line; quotes keep blanks.
func words(line string) (all []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		all = append(all, m[1]+m[2]+m[3])
	}
	return all
}

// agree compares what is shown with what is printed, where "..." on a line of its own stands for any lines.
func agree(shown, got string) bool {
	parts := strings.Split("\n"+shown, "\n...\n")
	if len(parts) == 1 {
		return shown == got
	}
	var pattern []string
	for _, p := range parts {
		pattern = append(pattern, regexp.QuoteMeta(p))
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(pattern, `\n(?:.*\n)?`) + `$`).MatchString("\n" + got)
}

// Every link from a document to a file of the repository, or to a heading in one, leads somewhere.
func TestLinksOfDocuments(t *testing.T) {
	t.Parallel()
	links := 0
	for _, doc := range append(documents(t), "../../SECURITY.md", "../../docs/chains/README.md", "../../bench/research/README.md", "../../bench/research/peers/README.md") {
		text := fenced.ReplaceAllString(read(t, doc), "")
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			target := doc
			if file != "" {
				target = filepath.Join(filepath.Dir(doc), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", doc, m[1], err)
			} else if heading != "" && !anchors(read(t, target))[heading] {
				t.Errorf("%s: %s: there is no such heading", doc, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links", links)
	}
}

var fenced = regexp.MustCompile("(?s)```.*?```")

// anchors returns the names under which a page's headings are linked.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// The README is short: its first command stands within 30 lines, it has one picture and one table, and says what no GPU has run.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	text := read(t, "../../README.md")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 150 {
		t.Errorf("%d lines", len(lines))
	}
	if first := strings.Join(lines[:min(30, len(lines))], "\n"); !strings.Contains(first, "plimsoll train ") {
		t.Errorf("no command in the first lines:\n%s", first)
	}
	if pictures, tables := strings.Count(text, "\n!["), strings.Count(text, "\n|---"); pictures != 1 || tables != 1 {
		t.Errorf("%d pictures, %d tables", pictures, tables)
	}
	if !strings.Contains(text, "what no GPU has run yet") {
		t.Error("nothing about GPUs")
	}
}
