package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"golang.org/x/text/unicode/norm"
)

// Hugging Face's tokenizers have tables of several versions of Unicode, which differ from Go's. These are the characters that tokenizers 0.23 and Go
// take for different kinds.
var (
	// otherControl are characters that are controls to one of both alone.
	otherControl = ranges("890-891 8e2 110cd 13430-1343f")
	// otherPunctuation likewise, of punctuation.
	otherPunctuation = ranges("61d 9fd a76 c77 c84 166d 1b7d-1b7e 2e43-2e4f 2e52-2e5d 10ead 10f55-10f59 10f86-10f89 111c9 1144b-1144f " +
		"1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2 11b00-11b09 " +
		"11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2 16e97-16e9a 16fe2 1e95e-1e95f")
	// otherNonspacing likewise, of marks without a width.
	otherNonspacing = ranges("7fd 898-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba ece 1734 180f 1885-1886 1abf-1ace 1df6-1dfb " +
		"a82c a8c5 a8ff a9bd 10d24-10d27 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 111c9 " +
		"111cf 1123e 11241 1133b 11438-1143f 11442-11444 11446 1145e 1182f-11837 11839-1183a 1193b-1193c 1193e 11943 " +
		"119d4-119d7 119da-119db 119e0 11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 " +
		"11a98-11a99 11c30-11c36 11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a " +
		"11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97 11ef3-11ef4 11f00-11f01 11f36-11f3a 11f40 11f42 13440 " +
		"13447-13455 16f4f 16fe4 1cf00-1cf2d 1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a " +
		"1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e944-1e94a")
	// otherMark likewise, of all marks.
	otherMark = ranges("7fd 898-89f 8ca-8d3 9fe afa-aff b55 c04 c3c cf3 d00 d3b-d3c d81 eba ece 1715 180f 1abf-1ace 1cf2-1cf3 1cf7 " +
		"1df6-1dfa a82c a8ff 10d24-10d27 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 " +
		"11145-11146 111c9 111ce-111cf 11241 1133b 1145e 1182c-1183a 11930-11935 11937-11938 1193b-1193e 11940 " +
		"11942-11943 119d1-119d7 119da-119e0 119e4 11a01-11a0a 11a33-11a39 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 " +
		"11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 11f00-11f01 " +
		"11f03 11f34-11f3a 11f3e-11f42 13440 13447-13455 16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46 " +
		"1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef")
	// undecomposed are characters that Go decomposes and they do not.
	undecomposed = ranges("32ff a7f2-a7f4 ab69 10781-10785 10787-107b0 107b2-107ba 11938 1e030-1e06d 1f16c 1fbf0-1fbf9")
	// newerExtends are marks that Go's tables do not know, which are seen as one with the character ahead of them.
	newerExtends = ranges("897 1acf-1add 1ae0-1aeb 10d69-10d6d 10efa-10efc 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2 " +
		"113e1-113e2 11b60-11b67 11f5a 1611e-1612f 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5")
)

// newerCapitals are capital letters that Go has no small ones for, by their first, their last and the distance to the small letter.
var newerCapitals = [][3]rune{
	{0x1c89, 0x1c89, 1}, {0xa7cb, 0xa7cb, -42343}, {0xa7cc, 0xa7cc, 1}, {0xa7ce, 0xa7ce, 1}, {0xa7d2, 0xa7d2, 1}, {0xa7d4, 0xa7d4, 1}, {0xa7da, 0xa7da, 1},
	{0xa7dc, 0xa7dc, -42561}, {0x10d50, 0x10d65, 32}, {0x16ea0, 0x16eb8, 27},
}

// ranges reads hexadecimal numbers and ranges of them.
func ranges(text string) *unicode.RangeTable {
	t := &unicode.RangeTable{}
	for part := range strings.FieldsSeq(text) {
		first, last, is := strings.Cut(part, "-")
		if !is {
			last = first
		}
		t.R32 = append(t.R32, unicode.Range32{Lo: hexadecimal(first), Hi: hexadecimal(last), Stride: 1})
	}
	return t
}

func hexadecimal(text string) (n uint32) {
	for _, c := range text {
		n = n<<4 | uint32(strings.IndexRune("0123456789abcdef", c))
	}
	return n
}

func isControl(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) != unicode.Is(otherControl, r)
}

func isPunctuation(r rune) bool {
	return r < utf8.RuneSelf && unicode.IsSymbol(r) || unicode.IsPunct(r) != unicode.Is(otherPunctuation, r)
}

func isNonspacing(r rune) bool { return unicode.Is(unicode.Mn, r) != unicode.Is(otherNonspacing, r) }

func isMark(r rune) bool { return unicode.IsMark(r) != unicode.Is(otherMark, r) }

// firstSeen returns the characters of a text that are seen as one, and the rest.
func firstSeen(text string) (seen, rest string) {
	seen, rest, _, _ = uniseg.FirstGraphemeClusterInString(text, -1)
	for rest != "" {
		last, _ := utf8.DecodeLastRuneInString(seen)
		next, _ := utf8.DecodeRuneInString(rest)
		alone := unicode.In(last, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Cf) && last != '\u200d' && last != '\u200c'
		if alone || !unicode.Is(newerExtends, next) {
			break
		}
		more, _, _, _ := uniseg.FirstGraphemeClusterInString(rest, -1)
		seen, rest = text[:len(seen)+len(more)], rest[len(more):]
	}
	return seen, rest
}

// lowered returns a text in small letters, each by itself.
func lowered(text string) string {
	var b strings.Builder
	for _, r := range text {
		small := unicode.ToLower(r)
		for _, c := range newerCapitals {
			if c[0] <= r && r <= c[1] {
				small = r + c[2]
			}
		}
		if b.WriteRune(small); r == 'İ' {
			b.WriteRune('\u0307')
		}
	}
	return b.String()
}

// normalized returns a text in a form. Characters that the tokenizers do not know stay as they are, and nothing moves across them.
func normalized(form norm.Form, text string) string {
	kept := func(r rune) bool {
		return unicode.Is(otherMark, r) || unicode.Is(undecomposed, r) && (r == 0x11938 || form == norm.NFKC || form == norm.NFKD)
	}
	if strings.IndexFunc(text, kept) < 0 {
		return form.String(text)
	}
	var b strings.Builder
	for text != "" {
		at := strings.IndexFunc(text, kept)
		if at < 0 {
			at = len(text)
		}
		b.WriteString(form.String(text[:at]))
		_, size := utf8.DecodeRuneInString(text[at:])
		b.WriteString(text[at : at+size])
		text = text[at+size:]
	}
	return b.String()
}
