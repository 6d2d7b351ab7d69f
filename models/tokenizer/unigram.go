package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"plimsoll/internal/fields"
)

// unigram cuts a word into the tokens with the largest sum of scores (Kudo 2018, Subword Regularization, section 3.2; Viterbi's algorithm).
type unigram struct {
	sorted  []scored
	numbers map[string]int32
	unknown int32
	penalty float64    // the score of a character that is no token
	bytes   [256]int32 // the tokens of bytes that unknown characters become; those of no use are -1
}

// scored is a token.
type scored struct {
	text  string
	token int32
	score float64
}

// unknownPenalty is how far the score of an unknown character lies below the smallest one.
const unknownPenalty = 10

// readUnigram reads the model, and returns the numbers of tokens as they are written.
func (a *Added) readUnigram(o *fields.Object, p *pieces) (map[string]int32, error) {
	o.Require("vocab", "unk_id")
	none, fallback, all := o.Int("unk_id", 0), o.Bool("byte_fallback", false), o.Array("vocab")
	if none < 0 || none >= int64(len(all)) {
		o.Refuse("unk_id", strconv.FormatInt(none, 10), fmt.Sprintf("is no token of %d", len(all)))
	}
	if err := unknown(o); err != nil {
		return nil, err
	}
	u := &unigram{numbers: map[string]int32{}, unknown: int32(none)}
	scores := make([]float64, len(all))
	for i, raw := range all {
		text, score, err := readScored(raw)
		if err != nil || i >= mostTokens {
			return nil, fmt.Errorf("vocab[%d] is %s, want a token and its score", i, brief(raw))
		}
		n := int32(i)
		u.numbers[text], scores[i], u.penalty = n, score, min(u.penalty, score)
		if i == 0 {
			u.penalty = score
		}
		if err := a.pairs.add(n, text, []byte(strings.ReplaceAll(text, mark, " "))); err != nil {
			return nil, err
		}
	}
	u.penalty -= unknownPenalty
	for text, n := range u.numbers {
		u.sorted = append(u.sorted, scored{text, n, scores[n]})
	}
	slices.SortFunc(u.sorted, func(a, b scored) int { return strings.Compare(a.text, b.text) })
	u.findBytes(fallback)
	a.changes = len(p.normal) > 0
	a.plain = func(dst []int32, text []byte, at place) []int32 {
		for _, word := range p.words(string(text), at.joined) {
			dst = u.append(dst, word)
		}
		return dst
	}
	return u.numbers, nil
}

// readScored reads a token and its score.
func readScored(raw json.RawMessage) (text string, score float64, err error) {
	var two []json.RawMessage
	if err = json.Unmarshal(raw, &two); err == nil && len(two) != 2 {
		err = fmt.Errorf("%d values", len(two))
	}
	if err == nil {
		err = json.Unmarshal(two[0], &text)
	}
	if err == nil {
		err = json.Unmarshal(two[1], &score)
	}
	if err == nil && text == "" {
		err = fmt.Errorf("an empty token")
	}
	return text, score, err
}

// findBytes finds the tokens that the bytes of unknown characters become, where the model falls back on them.
func (u *unigram) findBytes(fallback bool) {
	for b := range u.bytes {
		n, is := u.numbers[fmt.Sprintf("<0x%02X>", b)]
		if u.bytes[b] = n; !is || !fallback {
			u.bytes[b] = -1
		}
	}
}

// prefixes calls found for each token that a text begins with.
func (u *unigram) prefixes(text string, found func(s *scored)) {
	all := u.sorted
	for n := 1; n <= len(text); n++ {
		c := text[n-1]
		from := sort.Search(len(all), func(i int) bool { return len(all[i].text) >= n && all[i].text[n-1] >= c })
		all = all[from:]
		all = all[:sort.Search(len(all), func(i int) bool { return all[i].text[n-1] > c })]
		if len(all) == 0 {
			return
		}
		if len(all[0].text) == n {
			found(&all[0])
		}
	}
}

// best is the best way to a place of a word.
type best struct {
	score float64
	from  int // where its last token begins
	token int32
	there bool
}

func (b *best) take(score float64, from int, token int32) {
	if !b.there || score > b.score {
		*b = best{score, from, token, true}
	}
}

// append appends the tokens of a word. Characters beside each other that are no tokens are one.
func (u *unigram) append(dst []int32, word string) []int32 {
	ways := make([]best, len(word)+1)
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRuneInString(word[at:])
		so, single := ways[at].score, false
		u.prefixes(word[at:], func(s *scored) {
			ways[at+len(s.text)].take(so+s.score, at, s.token)
			single = single || len(s.text) == size
		})
		if !single {
			ways[at+size].take(so+u.penalty, at, u.unknown)
		}
		at += size
	}
	var cuts []int // from the end
	for at := len(word); at > 0; at = ways[at].from {
		if n := len(cuts); n == 0 || ways[at].token != u.unknown || ways[cuts[n-1]].token != u.unknown {
			cuts = append(cuts, at)
		}
	}
	slices.Reverse(cuts)
	from := 0
	for _, at := range cuts {
		dst = u.piece(dst, word[from:at])
		from = at
	}
	return dst
}

// piece appends the token of a piece of a word: its own, or those of its bytes, or that of unknown ones.
func (u *unigram) piece(dst []int32, text string) []int32 {
	if n, is := u.numbers[text]; is {
		return append(dst, n)
	}
	begin := len(dst)
	for i := range len(text) {
		n := u.bytes[text[i]]
		if n < 0 {
			return append(dst[:begin], u.unknown)
		}
		dst = append(dst, n)
	}
	return dst
}
