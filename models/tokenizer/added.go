package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"plimsoll/internal/fields"
)

// Added is a byte pair encoding with tokens that a text has as they are written, such as <|endoftext|>, before the rest is cut into words.
type Added struct {
	pairs *GPT2
	pad   int32
	cut   cut
	added [256][]addedToken // by their first byte, the longest first
}

type addedToken struct {
	text   []byte
	number int32
}

// readAdded reads the tokens that are found in a text before it is cut.
func (a *Added) readAdded(all []json.RawMessage, cut cut, numbers map[string]int32) error {
	a.cut = cut
	next := int32(len(numbers)) // of a token that the vocabulary does not have
	for i, raw := range all {
		o, err := fields.Parse(raw)
		if err != nil {
			return fmt.Errorf("added_tokens[%d]: %w", i, err)
		}
		o.Require("id", "content")
		n, text := o.Int("id", 0), o.Text("content", "")
		for _, name := range []string{"single_word", "lstrip", "rstrip"} {
			if o.Bool(name, false) {
				o.Refuse(name, "true", "is not supported")
			}
		}
		o.Raw("special") // for decoders, which may leave it out
		if o.Bool("normalized", true) && (cut.spaced() || cut.compose) {
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
		a.add(int32(n), text)
		next = max(next, int32(n)+1)
	}
	for i := range a.added {
		slices.SortStableFunc(a.added[i], func(x, y addedToken) int { return cmp.Compare(len(y.text), len(x.text)) })
	}
	return nil
}

// add adds a token, which may be one of the vocabulary.
func (a *Added) add(n int32, text string) {
	if a.pairs.text[n] = []byte(text); text == endOfText {
		a.pairs.end = n
	}
	a.pairs.size = max(a.pairs.size, int(n)+1)
	a.added[text[0]] = append(a.added[text[0]], addedToken{[]byte(text), n})
}

// Name implements Tokenizer, with a hash of the file, wherever it is.
func (a *Added) Name() string { return a.pairs.Name() }

// Size implements Tokenizer.
func (a *Added) Size() int { return a.pairs.Size() }

// Pad is the token that fills samples, or -1.
func (a *Added) Pad() int32 { return a.pad }

// End implements Tokenizer.
func (a *Added) End() int32 { return a.pairs.End() }

// Decode implements Tokenizer. Special tokens are shown as they are written.
func (a *Added) Decode(dst []byte, tokens []int32) ([]byte, error) {
	return a.pairs.Decode(dst, tokens)
}

// Encode implements Tokenizer. Where words are characters, a text may begin with a space that the given one does not have.
func (a *Added) Encode(dst []int32, text []byte) []int32 { return a.encode(dst, text, a.cut) }

// Continue appends the tokens of text behind other text: no space is put ahead of it.
func (a *Added) Continue(dst []int32, text []byte) []int32 {
	bare := a.cut
	bare.prefix = noPrefix
	return a.encode(dst, text, bare)
}

// encode is Encode with another way to cut what comes before the first special token.
func (a *Added) encode(dst []int32, text []byte, first cut) []int32 {
	from, cut := 0, first
	for at := 0; at < len(text); {
		token := a.at(text[at:])
		if token == nil {
			at++
			continue
		}
		dst = a.pairs.Encode(dst, cut.normalize(text[from:at], from == 0))
		dst = append(dst, token.number)
		at += len(token.text)
		from, cut = at, a.cut
	}
	return a.pairs.Encode(dst, cut.normalize(text[from:], from == 0))
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
