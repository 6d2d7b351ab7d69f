package visible

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// What people read of a line, in bytes: of each word, of all.
const (
	mostWord = 300
	mostLine = 2000
)

// Clip returns a text in which long words and long lines lose their middle: an error may quote a file, and files hold anything. Where a
// message begins and what it advises at its end stay.
func Clip(s string) string {
	if len(s) <= mostWord {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		words := strings.Split(line, " ")
		for k, w := range words {
			words[k] = withoutMiddle(w, mostWord)
		}
		lines[i] = withoutMiddle(strings.Join(words, " "), mostLine)
	}
	return strings.Join(lines, "\n")
}

// withoutMiddle leaves out what is behind three quarters of most bytes, up to the last quarter of them.
func withoutMiddle(s string, most int) string {
	if len(s) <= most {
		return s
	}
	from, to := most*3/4, len(s)-most/4
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	return fmt.Sprintf("%s…(%d bytes)…%s", s[:from], to-from, s[to:])
}
