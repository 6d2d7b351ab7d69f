package visible

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a word and of a line, in bytes.
const (
	mostWord = 300
	mostLine = 2000
)

// Clip cuts the middle out of long words and long lines, because an error may quote a file and a file may hold anything. A message keeps
// its beginning and the advice at its end.
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

// withoutMiddle shortens a longer text to most bytes: three quarters of them from its beginning, one quarter from its end.
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
