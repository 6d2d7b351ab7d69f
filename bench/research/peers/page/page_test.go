// Package page follows docs/pytorch.md word by word, with the Python of PLIMSOLL_TORCH and the program of PLIMSOLL_PROGRAM.
package page

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mostDifference bounds the relative difference of a held-out loss from PyTorch's.
const mostDifference = 1e-4

var (
	block  = regexp.MustCompile("(?s)```(python)?\n(.*?)```\n")
	title  = regexp.MustCompile(`^# (\w+\.py)\n`)
	number = regexp.MustCompile(`[0-9][0-9,.]*|\b(MiB|KiB|GiB|ms|µs|s|B)\b|sha256 [0-9a-f]+|\(\w+\)`)
	loss   = regexp.MustCompile(`loss ([0-9.]+)`)
)

// TestPageOfPyTorch runs the commands of the page in order, in a copy of examples/pytorch. They print lines of the shown form, and each loss
// that PyTorch prints is that of the command before. Python on the page is that of the folder.
func TestPageOfPyTorch(t *testing.T) {
	python, program := os.Getenv("PLIMSOLL_TORCH"), os.Getenv("PLIMSOLL_PROGRAM")
	if python == "" || program == "" {
		t.Skip("PLIMSOLL_TORCH and PLIMSOLL_PROGRAM name a Python with PyTorch and the program: make test-oracle sets both")
	}
	page, err := os.ReadFile("../../../../docs/pytorch.md")
	if err != nil {
		t.Fatal(err)
	}
	w := walk{t: t, dir: t.TempDir(), programs: map[string]string{"python": python, "plimsoll": program}}
	if err := os.CopyFS(w.dir, os.DirFS("../../../../examples/pytorch")); err != nil {
		t.Fatal(err)
	}
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		if m[1] == "" {
			w.console(m[2])
			continue
		}
		name := title.FindStringSubmatch(m[2])
		if name == nil {
			t.Fatalf("a block of Python has no file: %.60q", m[2])
		}
		file, err := os.ReadFile(filepath.Join(w.dir, name[1]))
		if err != nil {
			t.Fatal(err)
		}
		if name[0]+string(file) != m[2] {
			t.Errorf("the page shows another %s than examples/pytorch has", name[1])
		}
	}
	if w.commands < 10 || w.compared != 3 {
		t.Errorf("%d commands ran, and %d losses were compared, want 3", w.commands, w.compared)
	}
}

// walk is where a reader of the page has come.
type walk struct {
	t                  *testing.T
	dir                string
	programs           map[string]string
	last               float64 // loss that was printed
	commands, compared int
}

// console runs the commands of a block, each behind "$ ", and compares what they print with the lines below.
func (w *walk) console(text string) {
	w.t.Helper()
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		line, shown, _ := strings.Cut(strings.TrimSuffix(part, "\n"), "\n")
		args := strings.Fields(line)
		c := exec.CommandContext(w.t.Context(), w.programs[args[0]], args[1:]...)
		c.Dir = w.dir
		c.Env = append(os.Environ(), "TOKENIZERS_PARALLELISM=false", "HF_HUB_OFFLINE=1")
		var errs strings.Builder
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil {
			w.t.Fatalf("%s: %v\n%s%s", line, err, out, errs.String())
		}
		w.commands++
		w.t.Logf("$ %s\n%s", line, out)
		if got := strings.TrimSuffix(string(out), "\n"); !agree(shown, got) {
			w.t.Errorf("%s prints\n%s\nand the page shows\n%s", line, got, shown)
		}
		w.compare(args[0] == "python", string(out))
	}
}

// compare holds a loss of PyTorch's to the one printed before.
func (w *walk) compare(torch bool, out string) {
	m := loss.FindStringSubmatch(out)
	if m == nil {
		return
	}
	value, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		w.t.Fatal(err)
	}
	if torch {
		w.compared++
		if math.Abs(value-w.last) > mostDifference*value {
			w.t.Errorf("PyTorch's loss is %v, ours %v", value, w.last)
		}
	}
	w.last = value
}

// agree compares lines but for their numbers; "..." stands for any lines.
func agree(shown, got string) bool {
	var pattern []string
	for _, p := range strings.Split("\n"+shown+"\n", "\n...\n") {
		pattern = append(pattern, regexp.QuoteMeta(number.ReplaceAllString(p, "#")))
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(pattern, `\n(?:.*\n)?`) + `$`).MatchString("\n" + number.ReplaceAllString(got, "#") + "\n")
}
