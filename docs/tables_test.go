package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Widths in pixels of a page at 400 pixels, as browsers show GitHub's pages.
const (
	pageWidth = 370 // without margins
	cellWidth = 27  // padding and border
	charWidth = 7.7 // at most, on average
	codeWidth = 8.2
	codeSides = 11 // padding of a piece of code
)

var link = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// TestTablesFitNarrowPages estimates the least width of each table: words do not break, other than after hyphens.
func TestTablesFitNarrowPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var head string
		var widths []float64
		for _, line := range strings.Split(string(text)+"\n", "\n") {
			if !strings.HasPrefix(line, "|") {
				if width := total(widths); head != "" && width > pageWidth {
					t.Errorf("%s: %s is about %.0f pixels wide, want %d: columns %.0f", page, head, width, pageWidth, widths)
				}
				head, widths = "", nil
				continue
			}
			if head == "" {
				head, tables = line, tables+1
			}
			cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "/"), "|"), "|")
			for i, cell := range cells {
				if i == len(widths) {
					widths = append(widths, 0)
				}
				widths[i] = max(widths[i], leastWidth(link.ReplaceAllString(cell, "$1")))
			}
		}
	}
	if tables < 60 {
		t.Errorf("measured %d tables", tables)
	}
}

func total(columns []float64) float64 {
	var sum float64
	for _, w := range columns {
		sum += w + cellWidth
	}
	return sum
}

// leastWidth returns the width of the longest part of a cell that does not break.
func leastWidth(cell string) float64 {
	var most float64
	for i, part := range strings.Split(cell, "`") {
		for _, word := range strings.FieldsFunc(strings.ReplaceAll(part, "-", "- "), func(r rune) bool { return r == ' ' }) {
			width := charWidth * float64(utf8.RuneCountInString(strings.Trim(word, "*")))
			if i%2 == 1 {
				width = codeWidth*float64(utf8.RuneCountInString(word)) + codeSides
			}
			most = max(most, width)
		}
	}
	return most
}
