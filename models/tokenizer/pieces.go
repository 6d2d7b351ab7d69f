package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"plimsoll/internal/fields"
)

// pieces says how a text becomes the words of WordPiece and Unigram.
type pieces struct {
	normal []func(text string) string
	split  []func(words []string, joined bool) []string
}

// words returns the words of a text; joined says that it stands behind another one.
func (p *pieces) words(text string, joined bool) []string {
	text = strings.ToValidUTF8(text, "\ufffd")
	for _, normal := range p.normal {
		text = normal(text)
	}
	if text == "" {
		return nil
	}
	first, _ := utf8.DecodeRuneInString(text)
	joined = joined && !unicode.IsSpace(first)
	words := []string{text}
	for _, split := range p.split {
		words = split(words, joined)
	}
	return words
}

// readPieces reads normalizer and pre_tokenizer.
func readPieces(o *fields.Object) (*pieces, error) {
	p := &pieces{}
	normal, err := flatten(o, "normalizer", "normalizers")
	if err != nil {
		return nil, err
	}
	for _, n := range normal {
		step, err := readNormal(n)
		if err != nil {
			return nil, fmt.Errorf("normalizer: %w", err)
		}
		p.normal = append(p.normal, step)
	}
	steps, err := flatten(o, "pre_tokenizer", "pretokenizers")
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		step, err := readSplitter(s)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: %w", err)
		}
		p.split = append(p.split, step)
	}
	return p, nil
}

// normalForms are Unicode's, by their names in the file.
var normalForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// readNormal reads a step that changes a text.
func readNormal(o *fields.Object) (step func(string) string, err error) {
	switch kind := o.String("type", ""); kind {
	case "BertNormalizer":
		step = readBERT(o)
	case "Lowercase":
		step = lowered
	case "StripAccents":
		step = without(isMark)
	case "Strip":
		left, right := o.Bool("strip_left", true), o.Bool("strip_right", true)
		step = func(text string) string { return stripped(text, left, right) }
	case "Replace":
		step, err = readReplace(o)
	case "Precompiled":
		m, bad := readCharsmap(o.Text("precompiled_charsmap", ""))
		if bad != nil {
			o.Refuse("precompiled_charsmap", "", "cannot be read: "+bad.Error())
			break
		}
		step = m.apply
	default:
		form, known := normalForms[kind]
		if !known {
			o.Refuse("type", strconv.Quote(kind), "is none of BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Precompiled, Replace, Strip, StripAccents")
		}
		step = func(text string) string { return normalized(form, text) }
	}
	if err != nil {
		return nil, err
	}
	return step, unknown(o)
}

// readBERT reads BertNormalizer: controls go, Chinese characters become words, and accents and capitals go where the fields say so.
func readBERT(o *fields.Object) func(string) string {
	clean, chinese, lower := o.Bool("clean_text", true), o.Bool("handle_chinese_chars", true), o.Bool("lowercase", true)
	accents := o.Bool("strip_accents", lower)
	return func(text string) string {
		if clean {
			text = strings.Map(cleaned, text)
		}
		if chinese {
			text = spacedChinese(text)
		}
		if accents {
			text = without(isNonspacing)(normalized(norm.NFD, text))
		}
		if lower {
			text = lowered(text)
		}
		return text
	}
}

// cleaned returns the replacement of a character; -1: it goes.
func cleaned(r rune) rune {
	switch {
	case r == '\t' || r == '\n' || r == '\r':
		return ' '
	case r == 0 || r == '\ufffd' || isControl(r):
		return -1
	case unicode.IsSpace(r):
		return ' '
	}
	return r
}

// chinese are the characters that BertNormalizer puts spaces around.
var chinese = ranges("3400-4dbf 4e00-9fff f900-faff 20000-2a6df 2a700-2b73f 2b740-2b81f 2b920-2ceaf 2f800-2fa1f")

func spacedChinese(text string) string {
	var b strings.Builder
	for _, r := range text {
		if !unicode.Is(chinese, r) {
			b.WriteRune(r)
			continue
		}
		b.WriteByte(' ')
		b.WriteRune(r)
		b.WriteByte(' ')
	}
	return b.String()
}

// without returns the function that removes characters of a kind.
func without(kind func(rune) bool) func(string) string {
	return func(text string) string {
		return strings.Map(func(r rune) rune {
			if kind(r) {
				return -1
			}
			return r
		}, text)
	}
}

func stripped(text string, left, right bool) string {
	if left {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	if right {
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	return text
}

// manySpaces is the one regular expression that Replace may have.
const manySpaces = " {2,}"

// readReplace reads what replaces a text by another one.
func readReplace(o *fields.Object) (func(string) string, error) {
	pattern := o.Object("pattern")
	if o.Err() != nil {
		return nil, o.Err()
	}
	from, expression, to := pattern.Text("String", ""), pattern.Text("Regex", ""), o.Text("content", "")
	if err := unknown(pattern); err != nil {
		return nil, err
	}
	switch {
	case expression == manySpaces && from == "":
		return func(text string) string { return replaceSpaces(text, to) }, nil
	case expression != "" || from == "":
		o.Refuse("pattern", strconv.Quote(expression), "is neither a String nor the Regex "+strconv.Quote(manySpaces)+", which alone are supported")
	}
	return func(text string) string { return strings.ReplaceAll(text, from, to) }, nil
}

// replaceSpaces replaces each run of two spaces and more.
func replaceSpaces(text, to string) string {
	var b strings.Builder
	for text != "" {
		at := strings.Index(text, "  ")
		if at < 0 {
			break
		}
		b.WriteString(text[:at])
		b.WriteString(to)
		text = strings.TrimLeft(text[at:], " ")
	}
	b.WriteString(text)
	return b.String()
}

// readSplitter reads a step that cuts words into smaller ones.
func readSplitter(o *fields.Object) (step func([]string, bool) []string, err error) {
	switch kind := o.String("type", ""); kind {
	case "BertPreTokenizer":
		step = func(words []string, _ bool) []string { return isolated(fieldsOf(words), isPunctuation) }
	case "WhitespaceSplit":
		step = func(words []string, _ bool) []string { return fieldsOf(words) }
	case "Metaspace":
		step = readMarks(o)
	default:
		o.Refuse("type", strconv.Quote(kind), "is none of BertPreTokenizer, Metaspace, WhitespaceSplit")
	}
	return step, unknown(o)
}

// fieldsOf cuts words at white space, which goes.
func fieldsOf(words []string) (all []string) {
	for _, word := range words {
		all = append(all, strings.Fields(word)...)
	}
	return all
}

// isolated makes each character of a kind a word of its own.
func isolated(words []string, kind func(rune) bool) (all []string) {
	for _, word := range words {
		from := 0
		for at, r := range word {
			if !kind(r) {
				continue
			}
			if from < at {
				all = append(all, word[from:at])
			}
			from = at + len(string(r))
			all = append(all, word[at:from])
		}
		if from < len(word) {
			all = append(all, word[from:])
		}
	}
	return all
}

// readMarks reads Metaspace: spaces become marks, one stands ahead of each word, and a word begins with each.
func readMarks(o *fields.Object) func([]string, bool) []string {
	if text := o.Text("replacement", ""); text != mark {
		o.Refuse("replacement", strconv.Quote(text), "is not "+strconv.Quote(mark))
	}
	schemes := map[string]bool{"always": true, "never": false}
	missing := "always"
	if !o.Bool("add_prefix_space", true) { // of earlier versions, which prepend_scheme has replaced
		missing = "never"
	}
	scheme := o.String("prepend_scheme", missing)
	prepend, known := schemes[scheme]
	if !known {
		o.Refuse("prepend_scheme", strconv.Quote(scheme), "is neither always nor never, which alone are supported")
	}
	split := o.Bool("split", true)
	return func(words []string, joined bool) (all []string) {
		for i, word := range words {
			word = strings.ReplaceAll(word, " ", mark)
			if prepend && !(joined && i == 0) && !strings.HasPrefix(word, mark) {
				word = mark + word
			}
			for split && word != "" {
				at := strings.Index(word[1:], mark) + 1
				if at == 0 {
					break
				}
				all, word = append(all, word[:at]), word[at:]
			}
			if word != "" {
				all = append(all, word)
			}
		}
		return all
	}
}
