package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// strange are names that would leave a folder, hide a file, control a terminal, or end a tag; and harmless ones that look alike.
var strange = []string{
	"timm/resnet50", "x/../../../escaped", "..", ".", "/etc/passwd", `a\b`, "", strings.Repeat("long", 200),
	"\x1b]0;title\x07\x1b[31mred", "two\nlines\rone\ttab", "\u009b31m \u202egnp.exe \u2028", "<script>alert(1)</script>&amp;]]>'\"", "résumé 層",
}

// Whatever a chain and its layers are called, no command writes outside its output. No command emits anything that controls a terminal or a
// page: not on standard output and error, not in any file but JSON.
func TestStrangeNames(t *testing.T) {
	// Serial: it changes the working folder.
	plain := read(t, five)
	for i, name := range strange {
		around := t.TempDir()
		folder := filepath.Join(around, "1", "2", "3", "4")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		at := func(file string) string { return filepath.Join(folder, file) }
		write(t, at("c.json"), namedChain(t, plain, name))
		t.Chdir(folder)
		for _, args := range [][]string{
			{"plan", "-c", "c.json", "--memory", "90%", "-o", "p.json"},
			{"check", "-c", "c.json", "-p", "p.json"},
			{"trace", "-c", "c.json", "-p", "p.json", "-o", "t.json"},
			{"frontier", "-c", "c.json", "-o", "f.csv", "--points", "3"},
			{"plan", "-c", "c.json", "--devices", "2", "--bandwidth", "1kB/s", "--svg", "p.svg", "--trace", "pt.json", "-o", "pp.json"},
			{"check", "-c", "c.json", "-p", "pp.json"},
			{"plan", "-c", "c.json", "--memory", "1B"},
			{"bench", "-c", "c.json", "--out", "bench", "--points", "3", "--strategy", "rotor,pofo"},
			{"bench", "pipelines", "-c", "c.json", "--out", "pipelines", "--memory", "2kB", "--bandwidths", "1kB/s", "--devices", "2"},
		} {
			r := plimsoll(t, args...)
			if wantCode := map[bool]int{true: exitNoFit, false: exitOK}[args[4] == "1B"]; r.code != wantCode {
				t.Errorf("%q: %v: exit code %d: %s", name, args, r.code, r.err)
			}
			harmless(t, fmt.Sprintf("%q: output of %v", name, args), r.out+r.err)
		}
		for _, file := range tree(t, around) {
			inside := strings.TrimPrefix(file, "1/2/3/4/")
			if inside == file {
				t.Errorf("%q: a file was written to %s", name, file)
			}
			if ext := filepath.Ext(file); ext != ".png" && inside != "c.json" {
				text := read(t, filepath.Join(around, file))
				harmless(t, fmt.Sprintf("%q: %s", name, inside), text)
				if ext == ".svg" {
					wellFormed(t, inside, text)
				}
				if (ext == ".svg" || ext == ".html") && strings.Contains(text, "<script>alert") {
					t.Errorf("%q: %s: a name is markup", name, inside)
				}
			}
		}
		if _, err := os.Stat(at("bench/figures")); err != nil {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// namedChain returns a chain file under another name, which its layers have, too.
func namedChain(t *testing.T, file, name string) string {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal([]byte(file), &c); err != nil {
		t.Fatal(err)
	}
	c["name"], c["bandwidth_bytes_per_s"] = name, 1000.0
	for i, l := range c["layers"].([]any) {
		l.(map[string]any)["name"] = fmt.Sprint(name, i)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// harmless reports characters that control a terminal or a page.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	bad := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028') || r == unicode.ReplacementChar
	}
	if i := strings.IndexFunc(text, bad); i >= 0 {
		t.Errorf("%s: %q", what, text[max(0, i-40):min(len(text), i+40)])
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "lines") {
			t.Errorf("%s: a name begins a line", what)
		}
	}
}

// wellFormed reads a picture as XML.
func wellFormed(t *testing.T, what, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}
