package tokenizer

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// contractions are words of their own, behind what they are joined to.
var contractions = [][]byte{[]byte("'s"), []byte("'t"), []byte("'re"), []byte("'ve"), []byte("'m"), []byte("'ll"), []byte("'d")}

// class is what a character is, for the ends of words.
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
