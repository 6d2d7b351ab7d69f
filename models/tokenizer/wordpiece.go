package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"plimsoll/internal/fields"
)

// wordPiece finds the longest token that a word begins with, and goes on after it with tokens that continue words. Sources: Schuster,
// Nakajima 2012, Japanese and Korean Voice Search; Devlin et al. 2019, BERT.
type wordPiece struct {
	begin, next map[string]int32 // tokens that begin words, and the others without what is written ahead of them
	longest     int              // bytes of a token
	most        int              // characters of a word; a longer one is unknown
	unknown     int32
}

// mostCharacters bounds the words that are cut, since that takes time of their square.
const mostCharacters = 1000

// readWordPiece reads the model, and returns the numbers of tokens as they are written.
func (a *Added) readWordPiece(o *fields.Object, p *pieces) (numbers map[string]int32, err error) {
	const normalMost = 100
	o.Require("vocab", "unk_token")
	prefix, none := o.Text("continuing_subword_prefix", "##"), o.Text("unk_token", "")
	most := o.Int("max_input_chars_per_word", normalMost)
	if most < 0 || most > mostCharacters {
		o.Refuse("max_input_chars_per_word", strconv.FormatInt(most, 10), fmt.Sprintf("is not from 0 to %d", mostCharacters))
	}
	vocabulary := o.Object("vocab")
	if err := unknown(o); err != nil {
		return nil, err
	}
	if numbers, err = readNumbers(vocabulary); err != nil {
		return nil, err
	}
	w := &wordPiece{begin: numbers, next: map[string]int32{}, most: int(most)}
	var known bool
	if w.unknown, known = numbers[none]; !known {
		return nil, fmt.Errorf("unk_token is %q, which is no token", none)
	}
	for written, n := range numbers {
		rest, continues := strings.CutPrefix(written, prefix)
		text := " " + written
		if continues {
			w.next[rest] = n
			text = rest
		}
		if err := a.pairs.add(n, written, []byte(text)); err != nil {
			return nil, err
		}
		w.longest = max(w.longest, len(written))
	}
	a.changes = len(p.normal) > 0
	a.plain = func(dst []int32, text []byte, _ place) []int32 {
		for _, word := range p.words(string(text), false) {
			dst = w.append(dst, word)
		}
		return dst
	}
	return numbers, nil
}

// append appends the tokens of a word.
func (w *wordPiece) append(dst []int32, word string) []int32 {
	if utf8.RuneCountInString(word) > w.most {
		return append(dst, w.unknown)
	}
	begin, tokens := len(dst), w.begin
	for word != "" {
		token, n := w.first(tokens, word)
		if n == 0 {
			return append(dst[:begin], w.unknown)
		}
		dst, word, tokens = append(dst, token), word[n:], w.next
	}
	return dst
}

// first returns the longest of tokens that a word begins with, and its length; 0: it begins with none.
func (w *wordPiece) first(tokens map[string]int32, word string) (token int32, n int) {
	for n = min(len(word), w.longest); n > 0; n-- {
		if token, is := tokens[word[:n]]; is {
			return token, n
		}
	}
	return 0, 0
}
