package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"

	"golang.org/x/text/unicode/norm"

	"plimsoll/internal/fields"
)

// cut says how a text is normalized and cut into words, before pairs are merged.
type cut struct {
	compose bool                  // NFC
	word    func(text []byte) int // the length of the first word, of models of bytes; nil: spaces are characters of words
	prefix  prefix                // of models of characters
}

// prefix says where a space is put before a text, of models of characters.
type prefix uint8

const (
	noPrefix    prefix = iota
	firstPrefix        // before the whole text, unless it begins with a space
	eachPrefix         // likewise, and before what follows a special token
	bluntPrefix        // before each of them, also where it begins with a space
)

// spaced reports whether spaces are characters of words, as in Llama 2.
func (c cut) spaced() bool { return c.word == nil }

// patterns are the regular expressions that words are cut by; each is written out, because Go's cannot look ahead.
var patterns = map[string]func(text []byte) int{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: word,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: func(text []byte) int {
		return modernWord(text, 3)
	},
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: func(text []byte) int {
		return modernWord(text, 1)
	},
}

// readCut reads normalizer and pre_tokenizer.
func readCut(o *fields.Object) (c cut, err error) {
	normal, err := flatten(o, "normalizer", "normalizers")
	if err != nil {
		return c, err
	}
	steps, err := flatten(o, "pre_tokenizer", "pretokenizers")
	if err != nil {
		return c, err
	}
	replaced := false
	for _, n := range normal {
		if err := c.readNormalizer(n, &replaced); err != nil {
			return c, fmt.Errorf("normalizer: %w", err)
		}
	}
	if err := c.readSteps(steps, replaced); err != nil {
		return c, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if replaced && !c.spaced() || c.compose && c.spaced() {
		return c, fmt.Errorf("normalizer and pre_tokenizer are of a model of bytes and of one of characters: only those of one are supported")
	}
	return c, nil
}

// flatten returns the steps of a field: those of a sequence, or the one that there is.
func flatten(o *fields.Object, name, list string) (all []*fields.Object, err error) {
	if !o.Has(name) {
		o.Raw(name)
		return nil, nil
	}
	one := o.Object(name)
	if err := o.Err(); err != nil {
		return nil, err
	}
	if !one.Has(list) {
		return []*fields.Object{one}, nil
	}
	var raws []json.RawMessage
	if kind := one.String("type", ""); kind != "Sequence" {
		one.Refuse("type", strconv.Quote(kind), "has steps, and is no Sequence")
	}
	raws = one.Array(list)
	if err := unknown(one); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, raw := range raws {
		step, err := fields.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, step)
	}
	return all, nil
}

// mark is how models of characters write a space.
const mark = "▁"

// readNormalizer reads what a text is made before it is cut.
func (c *cut) readNormalizer(o *fields.Object, replaced *bool) error {
	switch kind := o.String("type", ""); kind {
	case "NFC":
		c.compose = true
	case "Prepend":
		if text := o.Text("prepend", ""); text != mark || *replaced {
			o.Refuse("prepend", strconv.Quote(text), "is not "+strconv.Quote(mark)+" before spaces are replaced, which alone is supported")
		}
		c.prefix = bluntPrefix
	case "Replace":
		pattern := o.Object("pattern")
		from, to := pattern.Text("String", ""), o.Text("content", "")
		if err := unknown(pattern); err != nil {
			return err
		}
		if *replaced = true; from != " " || to != mark {
			o.Refuse("pattern", strconv.Quote(from), "is not a space that becomes "+strconv.Quote(mark)+", which alone is supported")
		}
	default:
		o.Refuse("type", strconv.Quote(kind), "is none of NFC, Prepend, Replace")
	}
	return unknown(o)
}

// readSteps reads how a text is cut into words: by a pattern into bytes, or, as characters, not at all.
func (c *cut) readSteps(steps []*fields.Object, replaced bool) error {
	bytes := false
	for i, o := range steps {
		switch kind := o.String("type", ""); kind {
		case "Split":
			if err := c.readSplit(o); err != nil {
				return err
			}
		case "ByteLevel":
			bytes = true
			if o.Bool("add_prefix_space", true) {
				o.Refuse("add_prefix_space", "true", "is not supported: want false")
			}
			o.Raw("trim_offsets") // where tokens are, not which
			if o.Bool("use_regex", true) {
				if c.word != nil {
					o.Refuse("use_regex", "true", "is a second pattern: one alone is supported")
				}
				c.word = word
			}
		case "Metaspace":
			if len(steps) > 1 || replaced {
				o.Refuse("type", strconv.Quote(kind), "is not the only step, which alone is supported")
			}
			return c.readMetaspace(o)
		default:
			o.Refuse("type", strconv.Quote(kind), "is none of ByteLevel, Metaspace, Split")
		}
		if err := unknown(o); err != nil {
			return err
		}
		if bytes != (i == len(steps)-1) {
			return fmt.Errorf("the last step, and that alone, has to be ByteLevel")
		}
	}
	if bytes && c.word == nil {
		return fmt.Errorf("the text is cut by no pattern, which is not supported")
	}
	if len(steps) == 0 && !replaced {
		return fmt.Errorf("there is none, and no normalizer replaces spaces by %q, which is not supported", mark)
	}
	return nil
}

// readSplit reads a pattern.
func (c *cut) readSplit(o *fields.Object) error {
	pattern := o.Object("pattern")
	text := pattern.Text("Regex", "")
	if err := unknown(pattern); err != nil {
		return err
	}
	cutWord, known := patterns[text]
	switch {
	case !known:
		o.Refuse("pattern", brief([]byte(strconv.Quote(text))), "is none of the patterns of GPT-2, Llama 3 and Qwen 2, which alone are supported")
	case c.word != nil:
		o.Refuse("pattern", "a Split", "is a second pattern: one alone is supported")
	}
	if how := o.String("behavior", ""); how != "Isolated" {
		o.Refuse("behavior", strconv.Quote(how), "is not Isolated, which alone is supported")
	}
	if o.Bool("invert", false) {
		o.Refuse("invert", "true", "is not supported")
	}
	c.word = cutWord
	return nil
}

// readMetaspace reads how spaces become characters.
func (c *cut) readMetaspace(o *fields.Object) error {
	if text := o.Text("replacement", ""); text != mark {
		o.Refuse("replacement", strconv.Quote(text), "is not "+strconv.Quote(mark))
	}
	if o.Bool("split", true) {
		o.Refuse("split", "true", "is not supported: want false")
	}
	schemes := map[string]prefix{"always": eachPrefix, "first": firstPrefix, "never": noPrefix}
	scheme := o.String("prepend_scheme", "always")
	how, known := schemes[scheme]
	if !known {
		o.Refuse("prepend_scheme", strconv.Quote(scheme), "is none of always, first, never")
	}
	c.prefix = how
	o.Raw("add_prefix_space") // of earlier versions, which prepend_scheme has replaced
	return unknown(o)
}

// normalize returns a piece of a text as it is cut; first says that the text begins with it.
func (c cut) normalize(text []byte, first bool) []byte {
	switch {
	case c.compose:
		return norm.NFC.Bytes(text)
	case !c.spaced() || len(text) == 0:
		return text
	}
	begun := text[0] == ' ' || len(text) >= len(mark) && string(text[:len(mark)]) == mark
	before := c.prefix == bluntPrefix || !begun && (c.prefix == eachPrefix || c.prefix == firstPrefix && first)
	marked := make([]byte, 0, len(text)+len(text)/2+len(mark))
	if before {
		marked = append(marked, mark...)
	}
	for _, b := range text {
		if b == ' ' {
			marked = append(marked, mark...)
		} else {
			marked = append(marked, b)
		}
	}
	return marked
}
