package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode"

	"plimsoll/internal/fields"
)

// Added is a model of text with tokens that a text has as they are written, such as <|endoftext|>, before the rest is cut into words.
type Added struct {
	pairs   *GPT2 // the tokens; of a byte pair encoding also the merges
	pad     int32
	mask    int32
	frame   frame
	changes bool                                             // a normalizer changes the text
	plain   func(dst []int32, text []byte, at place) []int32 // appends the tokens of a text without added tokens
	added   [256][]addedToken                                // by their first byte, the longest first
}

// place says where a piece of a text stands: first is its beginning, joined is the beginning of one behind other text.
type place struct{ first, joined bool }

type addedToken struct {
	text        []byte
	number      int32
	left, right bool // white space ahead of it and behind it goes
}

// readAdded reads the tokens that are found in a text before it is cut.
func (a *Added) readAdded(all []json.RawMessage, numbers map[string]int32) error {
	next := int32(len(numbers)) // of a token that the vocabulary does not have
	for i, raw := range all {
		o, err := fields.Parse(raw)
		if err != nil {
			return fmt.Errorf("added_tokens[%d]: %w", i, err)
		}
		o.Require("id", "content")
		n, text := o.Int("id", 0), o.Text("content", "")
		if o.Bool("single_word", false) {
			o.Refuse("single_word", "true", "is not supported")
		}
		token := addedToken{[]byte(text), int32(n), o.Bool("lstrip", false), o.Bool("rstrip", false)}
		o.Raw("special") // for decoders, which may leave it out
		if o.Bool("normalized", true) && a.changes {
			o.Refuse("normalized", "true", "is not supported where a normalizer changes the text")
		}
		switch {
		case text == "":
			o.Refuse("content", `""`, "is empty")
		case n < 0 || n >= mostTokens:
			o.Refuse("id", strconv.FormatInt(n, 10), fmt.Sprintf("is not from 0 to %d", mostTokens-1))
		}
		if err := unknown(o); err != nil {
			return fmt.Errorf("added_tokens[%d]: %w", i, err)
		}
		if want, is := numbers[text]; is && int64(want) != n || !is && n != int64(next) {
			if !is {
				want = next
			}
			return fmt.Errorf("added_tokens[%d]: token %q has number %d, want %d, which Hugging Face's tokenizers give it", i, text, n, want)
		}
		a.add(token)
		next = max(next, int32(n)+1)
	}
	for i := range a.added {
		slices.SortStableFunc(a.added[i], func(x, y addedToken) int { return cmp.Compare(len(y.text), len(x.text)) })
	}
	return nil
}

// add adds a token, which may be one of the vocabulary.
func (a *Added) add(t addedToken) {
	if a.pairs.text[t.number] = t.text; string(t.text) == endOfText {
		a.pairs.end = t.number
	}
	if text := string(t.text); text == "[MASK]" || text == "<mask>" {
		a.mask = t.number
	}
	a.pairs.size = max(a.pairs.size, int(t.number)+1)
	a.added[t.text[0]] = append(a.added[t.text[0]], t)
}

// checkFrame refuses a frame of numbers that are no tokens.
func (a *Added) checkFrame() error {
	for _, n := range slices.Concat(a.frame.before, a.frame.behind) {
		if a.pairs.text[n] == nil {
			return fmt.Errorf("post_processor: number %d is no token", n)
		}
	}
	return nil
}

// Name implements Tokenizer, with a hash of the file, wherever it is.
func (a *Added) Name() string { return a.pairs.Name() }

// Size implements Tokenizer.
func (a *Added) Size() int { return a.pairs.Size() }

// Pad is the token that fills samples, or -1.
func (a *Added) Pad() int32 { return a.pad }

// Mask is the token that stands for one that is to be told, or -1.
func (a *Added) Mask() int32 { return a.mask }

// End implements Tokenizer.
func (a *Added) End() int32 { return a.pairs.End() }

// Decode implements Tokenizer. Special tokens are shown as they are written.
func (a *Added) Decode(dst []byte, tokens []int32) ([]byte, error) {
	return a.pairs.Decode(dst, tokens)
}

// Encode implements Tokenizer. Where words are characters, a text may begin with a space that the given one does not have.
func (a *Added) Encode(dst []int32, text []byte) []int32 { return a.encode(dst, text, false) }

// Continue appends the tokens of text behind other text: no space is put ahead of it.
func (a *Added) Continue(dst []int32, text []byte) []int32 { return a.encode(dst, text, true) }

// EncodeSample appends the tokens of a text that is a sample by itself, with the special tokens that the file puts around it.
func (a *Added) EncodeSample(dst []int32, text []byte) []int32 {
	return append(a.Encode(append(dst, a.frame.before...), text), a.frame.behind...)
}

// encode is Encode of a text that may be joined to other text.
func (a *Added) encode(dst []int32, text []byte, joined bool) []int32 {
	from := 0
	rest := func(to int) {
		if from < to || len(text) == 0 {
			dst = a.plain(dst, text[from:to], place{from == 0, from == 0 && joined})
		}
	}
	for at := 0; at < len(text); {
		token := a.at(text[at:])
		if token == nil {
			at++
			continue
		}
		before := text[from:at]
		if token.left {
			before = bytes.TrimRightFunc(before, unicode.IsSpace)
		}
		rest(from + len(before))
		dst = append(dst, token.number)
		if at += len(token.text); token.right {
			at = len(text) - len(bytes.TrimLeftFunc(text[at:], unicode.IsSpace))
		}
		from = at
	}
	rest(len(text))
	return dst
}

// at returns the longest added token that a text begins with; nil: there is none.
func (a *Added) at(text []byte) *addedToken {
	for i := range a.added[text[0]] {
		if t := &a.added[text[0]][i]; bytes.HasPrefix(text, t.text) {
			return t
		}
	}
	return nil
}
