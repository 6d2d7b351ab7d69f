package tokenizer

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// contractions are words of their own, behind what they are joined to.
var contractions = [][]byte{[]byte("'s"), []byte("'t"), []byte("'re"), []byte("'ve"), []byte("'m"), []byte("'ll"), []byte("'d")}

// class is the class of a character, for the ends of words.
type class uint8

const (
	other class = iota
	space
	letter
	number
)

func classOf(text []byte) (c class, size int) {
	r, size := utf8.DecodeRune(text)
	switch {
	case unicode.IsSpace(r):
		return space, size
	case unicode.IsLetter(r):
		return letter, size
	case unicode.IsNumber(r):
		return number, size
	}
	return other, size
}

// run returns the length of the characters of a class that text begins with.
func run(text []byte, c class) (n, last int) {
	for n < len(text) {
		k, size := classOf(text[n:])
		if k != c {
			break
		}
		n, last = n+size, size
	}
	return n, last
}

// word returns the length of the first word of text, beyond which pairs are not merged: what GPT-2's pattern matches, of
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// (openai/gpt-2, encoder.py). It is written out because Go's regular expressions cannot look ahead.
func word(text []byte) int {
	for _, c := range contractions {
		if bytes.HasPrefix(text, c) {
			return len(c)
		}
	}
	before := 0
	if text[0] == ' ' && len(text) > 1 {
		before = 1
	}
	c, _ := classOf(text[before:])
	if c != space {
		n, _ := run(text[before:], c)
		return before + n
	}
	n, last := run(text, space)
	if n < len(text) && n > last { // the last one goes with what follows
		n -= last
	}
	return n
}

// modernWord returns the length of the first word of text by the pattern that Llama 3 and Qwen have, with numbers of at most so many digits:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func modernWord(text []byte, digits int) int {
	if n := contraction(text); n > 0 {
		return n
	}
	c, size := classOf(text)
	if n, _ := run(text, letter); n > 0 {
		return n
	}
	if c == number {
		n := size
		for digits--; digits > 0 && n < len(text); digits-- {
			if c, size = classOf(text[n:]); c != number {
				break
			}
			n += size
		}
		return n
	}
	if text[0] != '\r' && text[0] != '\n' {
		if n, _ := run(text[size:], letter); n > 0 {
			return size + n
		}
	}
	before := 0
	if text[0] == ' ' {
		before = 1
	}
	if n, _ := run(text[before:], other); n > 0 {
		n += before
		for n < len(text) && (text[n] == '\r' || text[n] == '\n') {
			n++
		}
		return n
	}
	return spaces(text)
}

// contraction returns the length of the contraction that text begins with, in letters of any case; 0: it begins with none.
func contraction(text []byte) int {
	for _, c := range contractions {
		n := 0
		for _, want := range string(c) {
			r, size := utf8.DecodeRune(text[n:])
			if !sameLetter(r, want) {
				n = 0
				break
			}
			n += size
		}
		if n > 0 {
			return n
		}
	}
	return 0
}

// sameLetter reports whether two letters are one, whatever their cases.
func sameLetter(a, b rune) bool {
	for r := unicode.SimpleFold(b); ; r = unicode.SimpleFold(r) {
		if r == a {
			return true
		}
		if r == b {
			return false
		}
	}
}

// spaces returns the length of a word of spaces: up to the last end of a line, or all but the last space, which goes with what follows.
func spaces(text []byte) int {
	n, last := run(text, space)
	if at := bytes.LastIndexAny(text[:n], "\r\n"); at >= 0 {
		return at + 1
	}
	if n < len(text) && n > last {
		n -= last
	}
	return n
}
