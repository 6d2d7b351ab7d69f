package visible

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                        "",
		"résumé α→β 層 🙂":          "résumé α→β 層 🙂",
		"a\x1b[31mred\x07":        `a\u001b[31mred\u0007`,
		"two\nlines\tand\r\x00":   `two\u000alines\u0009and\u000d\u0000`,
		"C1 \u009b, DEL \x7f":     `C1 \u009b, DEL \u007f`,
		"bytes \x9b \xff\xfe":     `bytes \u009b \u00ff\u00fe`,
		"\u202eflip\u2066\u2028":  `\u202eflip\u2066\u2028`,
		"it says \ufffd on paper": `it says \ufffd on paper`,
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got, want := Lines("a\tb\x1b\n"), "a\tb\\u001b\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var b strings.Builder
	if n, err := (Writer{&b}).Write([]byte("a\x1bb\n")); n != 4 || err != nil || b.String() != "a\\u001bb\n" {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
}

func TestFileName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"resnet50":        "resnet50",
		"timm/resnet50":   "timm=2fresnet50",
		"timm=2fresnet50": "timm=3d2fresnet50",
		"../../x":         "=2e.=2f..=2fx",
		"":                "=",
		"=":               "=3d",
		"a b\n\x00":       "a=20b=0a=00",
		".hidden":         "=2ehidden",
		"v1.5-q_x+y":      "v1.5-q_x+y",
	} {
		if got := FileName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	long, other := strings.Repeat("x", 300), strings.Repeat("x", 301)
	if a, b := FileName(long), FileName(other); a == b || len(a) > 200 {
		t.Errorf("%q and %q", a, b)
	}
}

// FuzzNames: what is shown controls nothing and is shown once more as it is; what names a file is one element of a path, and
// two names have two files.
func FuzzNames(f *testing.F) {
	f.Add("a\x1b", "b")
	f.Add("../x", "..=2fx")
	f.Add(strings.Repeat("x", 101), strings.Repeat("x", 100)+"y")
	f.Fuzz(func(t *testing.T, a, b string) {
		shown := Text(a)
		if Text(shown) != shown || !utf8.ValidString(shown) || strings.ContainsFunc(shown, unicode.IsControl) {
			t.Errorf("%q is shown as %q", a, shown)
		}
		name := FileName(a)
		if name != filepath.Base(name) || filepath.Clean(name) != name || len(name) > 255 || strings.HasPrefix(name, ".") {
			t.Errorf("%q names a file %q", a, name)
		}
		if a != b && name == FileName(b) {
			t.Errorf("%q and %q name one file, %q", a, b, name)
		}
	})
}
