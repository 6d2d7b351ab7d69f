package visible

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Clipped lines are short, and keep their beginning and their advice.
func TestClip(t *testing.T) {
	t.Parallel()
	quoted := strings.Repeat("äöü", 40000)
	for what, s := range map[string]string{
		"a word":  "x.json: layer \"" + quoted + "\" is unknown: give another",
		"words":   "x.json: layer \"" + strings.Repeat("two words ", 20000) + "\" is unknown: give another",
		"a run":   "x.json: layer \"" + strings.Repeat("\xff", 200000) + "\" is unknown: give another",
		"nothing": "x.json: layer \"conv\" is unknown: give another",
	} {
		got := Clip(s)
		if len(got) > mostLine+40 || !strings.HasPrefix(got, "x.json: layer \"") || !strings.HasSuffix(got, "is unknown: give another") {
			t.Errorf("%s: %d bytes: %.80q", what, len(got), got)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%s: a character is cut", what)
		}
		if again := Clip(got); what == "nothing" && again != s {
			t.Errorf("%q became %q", s, again)
		}
	}
	if got := Clip(strings.Repeat("a line\n", 1000)); got != strings.Repeat("a line\n", 1000) {
		t.Errorf("short lines are cut to %d bytes", len(got))
	}
}
