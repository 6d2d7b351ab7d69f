package main

import (
	"strings"
	"testing"
)

// Each bad sample breaks the rule that it is named after, once; the good ones, and texts that nobody reads, break none.
func TestCheck(t *testing.T) {
	t.Parallel()
	words := func(n int) string { return "It" + strings.Repeat(" goes on", n/2) }
	for _, c := range []struct{ name, source, want string }{
		{"a good comment", "// Joined appends a span. It merges it into the last one.\nfunc Joined() {}", ""},
		{"a predicate", "// Place is what there is one task of.\ntype Place int", "predicate"},
		{"a plural", "// Errors are those of planning.\nvar Errors int", "predicate"},
		{"of something", "// Until returns that of the first step.\nfunc Until() {}", "predicate"},
		{"of a name of the package", "// place is what there is one task of.\ntype place int", "predicate"},
		{"an opening there", "// place is one. Of a task it is one.\ntype place int", "opening"},
		{"a long comment there", "// place is one. " + words(31) + ".\ntype place int", "long"},
		{"an embedded field", "type T struct {\n// Held says: " + words(31) + "\nHeld\n}", "long"},
		{"what in the middle", "// Place says what it holds.\ntype Place int", ""},
		{"an opening", "// Save saves. What is older goes away.\nfunc Save() {}", "opening"},
		{"a question", "// Save saves. What is lost?\nfunc Save() {}", ""},
		{"of a plan", "// Cost costs. Of a plan it is the sum.\nfunc Cost() {}", "opening"},
		{"long", "// Save saves. " + words(31) + ".\nfunc Save() {}", "long"},
		{"just short enough", "// Save saves. " + words(29) + ".\nfunc Save() {}", ""},
		{"two sentences", "// Save saves. " + words(20) + ". " + words(20) + ".\nfunc Save() {}", ""},
		{"a paper", "// Save saves as in Yang et al. 2021, section 4.2.\nfunc Save() {}", ""},
		{"a list", "// Save saves:\n// - " + words(20) + "\n// - " + words(20) + "\nfunc Save() {}", ""},
		{"a long item", "// Save saves:\n//   - " + words(20) + "\n//   - " + words(31) + "\nfunc Save() {}", "long"},
		{"a long numbered item", "// Save saves:\n//  1. " + words(20) + "\n//  2. " + words(31) + "\nfunc Save() {}", "long"},
		{"items of just enough", "// Save saves:\n//\n//   - " + words(29) + "\n//     " + words(3) + ".\nfunc Save() {}", "long"},
		{"code", "// Save saves:\n//\n//\tx := " + words(40) + "\nfunc Save() {}", ""},
		{"an error", `var _ = errors.New("` + words(31) + `")`, "long"},
		{"an error of two parts", `var _ = fmt.Errorf("` + words(31) + `" + "x")`, "long"},
		{"a flag", `func f() { s.IntVar(&x, "x", 0, "` + words(31) + `") }`, "long"},
		{"a help text", "var c = cobra.Command{Long: `" + words(31) + "`}", "long"},
		{"another string", `var s = "` + words(31) + `"`, ""},
		{"a field", "type T struct {\n// Held is what it holds.\nHeld int\n}", "predicate"},
	} {
		found, err := check("planner/x.go", []byte("package x\n\n"+c.source))
		got := ""
		for _, b := range found {
			got += string(b.kind)
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q: %v", c.name, got, err, c.want, found)
		}
	}
}

// Sentences of paragraphs and of items break the rule, and nothing else does; each is named by the line that its paragraph begins with.
func TestDocument(t *testing.T) {
	t.Parallel()
	words := func(n int) string { return "It" + strings.Repeat(" goes on", n/2) }
	for _, c := range []struct{ name, text, want string }{
		{"long", "# Title\n\nShort.\n" + words(31) + ".", "d.md:3"},
		{"over two lines", words(17) + "\n" + strings.ToLower(words(17)) + ".", "d.md:1"},
		{"an opening", "It goes on. What goes on ends.", "d.md:1"},
		{"a question", "What goes on?", ""},
		{"two sentences", words(20) + ". " + words(20) + ".", ""},
		{"a bold one", "**" + words(20) + ".** " + words(20) + ".", ""},
		{"code begins one", words(20) + ". `train` " + strings.ToLower(words(20)) + ".", ""},
		{"code is a word", words(27) + " `plimsoll train -m resnet20 --steps 7`.", ""},
		{"an item", "- " + words(20) + "\n- " + words(31) + "\n  and more", "d.md:2"},
		{"a numbered item", "1. " + words(31), "d.md:1"},
		{"a table", "| " + words(31) + " |", ""},
		{"a heading", "## " + words(31), ""},
		{"a block", "```\n" + words(31) + "\n```\n", ""},
		{"indented code", "So:\n\n    " + words(31), ""},
		{"after a block", "```\nx\n```\n" + words(31), "d.md:4"},
	} {
		got := ""
		for _, b := range document("d.md", c.text) {
			got += b.position
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Comments of C that stand in lines of their own break the rule, and code and comments behind it do not.
func TestCSource(t *testing.T) {
	t.Parallel()
	words := func(n int) string { return "It" + strings.Repeat(" goes on", n/2) }
	for _, c := range []struct{ name, text, want string }{
		{"long", "int x;\n// " + words(17) + "\n// " + strings.ToLower(words(17)) + ".", "k.cu:2"},
		{"an opening", "\t// What goes on ends.", "k.cu:1"},
		{"a predicate", "// place is what there is.", "k.cu:1"},
		{"two texts", "// " + words(17) + "\n//\n// " + strings.ToLower(words(17)) + ".", ""},
		{"code", "int x; // " + words(31), ""},
	} {
		found, got := cSource("k.cu", c.text), ""
		for _, b := range found {
			got += b.position
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
