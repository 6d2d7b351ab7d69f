package tokenizer

import (
	"slices"
	"sync"
)

// GPT2 is a byte pair encoding on bytes: Radford et al. 2019, section 2.2; Sennrich et al. 2016, algorithm 1.
type GPT2 struct {
	folder string
	name   string
	size   int
	end    int32
	bytes  [256]int32       // the token of each byte
	merges map[pair]merging // what two tokens become
	text   map[int32][]byte // of each token

	word    func(text []byte) int                       // the length of the first word of a text
	symbols func(dst []int32, word []byte) []int32      // the tokens that a word begins as, at most one a byte
	whole   func(word []byte) (token int32, whole bool) // the token of a whole word that is not merged; nil: every word is merged
	merge   func(m *merger)                             // merges the first of the open pairs

	mu    sync.Mutex
	words map[string][]int32 // that came before
}

type pair [2]int32

// merging is the result of merging a pair; the pair of the lowest rank is merged first.
type merging struct{ rank, token int32 }

// Encode implements Tokenizer. The name of the end token inside a text is encoded as text.
func (g *GPT2) Encode(dst []int32, text []byte) []int32 {
	m := &merger{GPT2: g}
	for len(text) > 0 {
		n := g.word(text)
		dst = g.encodeWord(dst, text[:n], m)
		text = text[n:]
	}
	return dst
}

// Words that are kept: most of a text are few words, and short.
const mostWords, longestWord = 1 << 16, 32

func (g *GPT2) encodeWord(dst []int32, word []byte, m *merger) []int32 {
	if len(word) > longestWord {
		return m.tokensOf(dst, word)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	tokens, ok := g.words[string(word)]
	if !ok {
		tokens = m.tokensOf(nil, word)
		if len(g.words) == mostWords {
			clear(g.words)
		}
		g.words[string(word)] = tokens
	}
	return append(dst, tokens...)
}

// candidate is a pair of neighbours that may be merged, by the place of the left one. No two pairs have one rank, so that a pair with
// another rank by now is another pair.
type candidate struct{ rank, at int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// merger merges the bytes of one word after the other, in memory that grows with the longest of them alone: 20 to 28 bytes a byte.
type merger struct {
	*GPT2
	tokens         []int32     // of the word; -1 where one was merged into a place before it
	next, previous []int32     // place behind and before each, -1 at the ends
	open           []candidate // a heap: the lowest rank first, of those the leftmost one
	joined         []int32     // places of a round
}

// tokensOf appends the tokens of a word: the token that a whole word is, or those of append.
func (m *merger) tokensOf(dst []int32, word []byte) []int32 {
	if m.whole != nil {
		if token, whole := m.whole(word); whole {
			return append(dst, token)
		}
	}
	return m.append(dst, word)
}

// append appends the tokens of a word: of all neighbours that can be merged those of the lowest rank are, from the left, again and again.
// The time is n log n in bytes.
func (m *merger) append(dst []int32, word []byte) []int32 {
	begin := len(dst)
	dst = m.symbols(slices.Grow(dst, len(word)), word)
	m.tokens = dst[begin:]
	n := len(m.tokens)
	m.next, m.previous = slices.Grow(m.next[:0], n)[:n], slices.Grow(m.previous[:0], n)[:n]
	for i := range m.tokens {
		m.next[i], m.previous[i] = int32(i+1), int32(i-1)
	}
	m.next[n-1] = -1
	m.open = slices.Grow(m.open[:0], n)
	for i := range int32(n) {
		m.consider(i)
	}
	for len(m.open) > 0 {
		m.merge(m)
	}
	dst = dst[:begin]
	for i := int32(0); i >= 0; i = m.next[i] { // in place: a place is never behind its token
		dst = append(dst, m.tokens[i])
	}
	return dst
}

// step merges one pair, the leftmost of the lowest rank, as Hugging Face's tokenizers do: another one that becomes possible may be next.
func (m *merger) step() {
	c := m.pop()
	if now, ok := m.merging(c.at); ok && now.rank == c.rank {
		m.join(c.at, now.token)
		m.consider(m.previous[c.at])
		m.consider(c.at)
	}
}

// round merges all pairs of the lowest rank, before what they make possible.
func (m *merger) round() {
	rank := m.open[0].rank
	m.joined = m.joined[:0]
	for len(m.open) > 0 && m.open[0].rank == rank {
		at := m.pop().at
		if now, ok := m.merging(at); ok && now.rank == rank {
			m.join(at, now.token)
			m.joined = append(m.joined, at)
		}
	}
	for _, i := range m.joined {
		m.consider(m.previous[i])
		m.consider(i)
	}
}

// consider puts the pair at a place among those that are open, if it can be merged.
func (m *merger) consider(at int32) {
	if x, ok := m.merging(at); ok {
		m.push(candidate{x.rank, at})
	}
}

// merging returns the result of merging the pair at a place.
func (m *merger) merging(at int32) (x merging, ok bool) {
	if at < 0 || m.tokens[at] < 0 || m.next[at] < 0 {
		return merging{}, false
	}
	x, ok = m.merges[pair{m.tokens[at], m.tokens[m.next[at]]}]
	return x, ok
}

// join makes one token of a place and the one behind it.
func (m *merger) join(at, token int32) {
	gone := m.next[at]
	m.tokens[at], m.tokens[gone] = token, -1
	if m.next[at] = m.next[gone]; m.next[at] >= 0 {
		m.previous[m.next[at]] = at
	}
}

// push and pop are those of a binary heap; container/heap would allocate for each candidate.
func (m *merger) push(c candidate) {
	m.open = append(m.open, c)
	for i := len(m.open) - 1; i > 0; {
		up := (i - 1) / 2
		if !m.open[i].before(m.open[up]) {
			return
		}
		m.open[i], m.open[up] = m.open[up], m.open[i]
		i = up
	}
}

func (m *merger) pop() candidate {
	first, last := m.open[0], len(m.open)-1
	m.open[0] = m.open[last]
	m.open = m.open[:last]
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if m.open[down].before(m.open[least]) {
				least = down
			}
		}
		if least == i {
			return first
		}
		m.open[i], m.open[least] = m.open[least], m.open[i]
		i = least
	}
}
