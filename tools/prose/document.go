package main

import (
	"fmt"
	"regexp"
	"strings"
)

// documents returns the breaches of all pages in Markdown below a folder.
func documents(root string) (all []breach, err error) {
	err = files(root, ".md", func(path string, text []byte) error {
		all = append(all, document(path, string(text))...)
		return nil
	})
	return all, err
}

var (
	fence = regexp.MustCompile("^(```|~~~)")
	item  = regexp.MustCompile(`^([-*+]|\d+\.) `)
	// Code between backticks is one word.
	span = regexp.MustCompile("`[^`]*`")
)

// document returns the breaches of a text in Markdown, code blocks, tables and headings apart. Items of lists are texts of their own.
func document(file, text string) (all []breach) {
	r := documentReader{file: file}
	for n, line := range strings.Split(text, "\n") {
		r.line(n+1, line)
	}
	r.end()
	return r.found
}

// documentReader collects the breaches of a document, paragraph by paragraph.
type documentReader struct {
	file  string
	code  bool // within a fence
	first int  // the line that the paragraph begins with
	lines []string
	found []breach
}

// line reads a line of a document.
func (r *documentReader) line(n int, line string) {
	s := strings.TrimSpace(line)
	switch {
	case fence.MatchString(s):
		r.end()
		r.code = !r.code
	case r.code:
	case s == "" || strings.ContainsAny(s[:1], "#|<"):
		r.end()
	case item.MatchString(s):
		r.end()
		r.first, r.lines = n, []string{item.ReplaceAllString(s, "")}
	case len(r.lines) > 0:
		r.lines = append(r.lines, s)
	case !strings.HasPrefix(line, "    "): // else it is code
		r.first, r.lines = n, []string{s}
	}
}

// end checks the sentences of the paragraph that has ended.
func (r *documentReader) end() {
	text := span.ReplaceAllStringFunc(strings.Join(r.lines, " "), func(code string) string { return strings.ReplaceAll(code, " ", "_") })
	for _, s := range sentences(text) {
		for _, k := range faults(s) {
			r.found = append(r.found, breach{fmt.Sprintf("%s:%d", r.file, r.first), k, s})
		}
	}
	r.lines = nil
}
