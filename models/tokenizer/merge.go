package tokenizer

import "container/heap"

// candidate is a pair of neighbours that may be merged: that whose left one is at a place.
type candidate struct {
	merging
	at   int32
	pair pair // as it was: one of them may have been merged since
}

// candidates is a heap: the lowest rank first, of those the leftmost one.
type candidates []candidate

func (c candidates) Len() int      { return len(c) }
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// chain is the tokens of a word while it is merged: what is behind a place and before it, -1 at the ends; merged ones are skipped.
type chain struct {
	tokens, next, previous []int32
}

// merge returns the tokens of a word: of all neighbours that can be merged those of the lowest rank are, from the left, again and
// again. The time is n log n in bytes.
func (g *GPT2) merge(word []byte) []int32 {
	n := len(word)
	c := chain{make([]int32, n), make([]int32, n), make([]int32, n)}
	for i, b := range word {
		c.tokens[i], c.next[i], c.previous[i] = g.bytes[b], int32(i+1), int32(i-1)
	}
	c.next[n-1] = -1
	var open candidates
	for i := range n - 1 {
		if x, ok := g.candidate(c, int32(i)); ok {
			open = append(open, x)
		}
	}
	heap.Init(&open)
	for len(open) > 0 {
		open = g.round(c, open)
	}
	var all []int32
	for i := int32(0); i >= 0; i = c.next[i] {
		all = append(all, c.tokens[i])
	}
	return all
}

// round merges all pairs of the lowest rank, before what they make possible.
func (g *GPT2) round(c chain, open candidates) candidates {
	rank := open[0].rank
	var joined []int32
	for len(open) > 0 && open[0].rank == rank {
		best := heap.Pop(&open).(candidate)
		if now, ok := g.candidate(c, best.at); ok && now.pair == best.pair {
			c.join(best.at, best.token)
			joined = append(joined, best.at)
		}
	}
	for _, i := range joined {
		for _, at := range []int32{c.previous[i], i} {
			if x, ok := g.candidate(c, at); ok {
				heap.Push(&open, x)
			}
		}
	}
	return open
}

// candidate returns the pair at a place, if it can be merged.
func (g *GPT2) candidate(c chain, at int32) (candidate, bool) {
	if at < 0 || c.tokens[at] < 0 || c.next[at] < 0 {
		return candidate{}, false
	}
	p := pair{c.tokens[at], c.tokens[c.next[at]]}
	m, ok := g.merges[p]
	return candidate{m, at, p}, ok
}

// join makes one token of a place and the one behind it.
func (c chain) join(at, token int32) {
	gone := c.next[at]
	c.tokens[at], c.tokens[gone] = token, -1
	if c.next[at] = c.next[gone]; c.next[at] >= 0 {
		c.previous[c.next[at]] = at
	}
}
