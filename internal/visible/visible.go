// Package visible makes what others wrote harmless to show and to name files after: chains, layers, paths and errors may hold
// anything.
package visible

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text in which every character that would control a terminal or a page is written out, as \u001b. These
// are control characters, characters that change the direction of text, and bytes that are no character.
func Text(s string) string { return escape(s, "") }

// Lines is Text, but for line ends and tabs.
func Lines(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	if strings.IndexFunc(s, controls) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case !controls(r) || strings.ContainsRune(keep, r):
			b.WriteString(s[:size])
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\u%04x`, s[0])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

// controls reports whether a character is not to be shown. Bytes that are no character come as unicode.ReplacementChar.
func controls(r rune) bool {
	return unicode.IsControl(r) || r == utf8.RuneError || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// Writer writes Lines. Each Write must consist of whole characters.
type Writer struct{ W io.Writer }

func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// longest is how many bytes of a name FileName keeps; file systems take 255.
const longest = 100

// FileName returns a file name for a thing of the given name: never a path, never hidden, different for different names. A
// character that file systems or pages might not take for a letter is written out, as =2f.
func FileName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '+', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02x", c)
		}
	}
	out := b.String()
	if len(out) > longest {
		return fmt.Sprintf("%s=%x", out[:longest], sha256.Sum256([]byte(name)))
	}
	if out == "" {
		return "="
	}
	return out
}

// Name returns the name of a file, as it may be shown, without folder and the first of the endings that it has.
func Name(file string, endings ...string) string {
	name := Text(file[strings.LastIndexAny(file, `/\`)+1:])
	for _, e := range endings {
		if cut, ok := strings.CutSuffix(name, e); ok {
			return cut
		}
	}
	return name
}
