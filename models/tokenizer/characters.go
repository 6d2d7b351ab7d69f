package tokenizer

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// onCharacters makes the model one of characters, among which spaces are written as marks; characters that are no tokens are bytes.
//
// A word begins with marks. No token has a mark behind something else, so that no pair is merged from one word to the next.
func (g *GPT2) onCharacters(numbers map[string]int32, fallback, ignore bool) error {
	switch {
	case !fallback:
		return fmt.Errorf(`field "byte_fallback" is false: characters that are no tokens would be lost, which is not supported`)
	case ignore:
		return fmt.Errorf(`field "ignore_merges" is true, which is not supported of characters`)
	}
	for written, n := range numbers {
		rest := strings.TrimLeft(written, mark)
		if strings.Contains(rest, mark) && !(strings.HasPrefix(written, "<") && strings.HasSuffix(written, ">")) {
			return fmt.Errorf("token %q has a space behind something else, which is not supported", written)
		}
		if err := g.add(n, written, []byte(strings.ReplaceAll(written, mark, " "))); err != nil {
			return err
		}
	}
	for b := range g.bytes {
		written := fmt.Sprintf("<0x%02X>", b)
		n, is := numbers[written]
		if !is {
			return fmt.Errorf("byte %d, written %s, is no token", b, written)
		}
		g.bytes[b], g.text[n] = n, []byte{byte(b)}
	}
	characters := map[string]int32{}
	for written, n := range numbers {
		if utf8.RuneCountInString(written) == 1 {
			characters[written] = n
		}
	}
	g.word = markedWord
	g.symbols = func(dst []int32, word []byte) []int32 {
		for len(word) > 0 {
			_, size := utf8.DecodeRune(word)
			if n, is := characters[string(word[:size])]; is {
				dst = append(dst, n)
			} else {
				dst = g.bytesOf(dst, word[:size])
			}
			word = word[size:]
		}
		return dst
	}
	return nil
}

// markedWord returns the length of the first word of a text: marks, and what follows up to the next one.
func markedWord(text []byte) int {
	n := 0
	for bytes.HasPrefix(text[n:], []byte(mark)) {
		n += len(mark)
	}
	if at := bytes.Index(text[n:], []byte(mark)); at >= 0 {
		return n + at
	}
	return len(text)
}
