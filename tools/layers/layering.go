package main

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// circles returns the files of each circle, the largest first: files that all reach each other along arrows, two at least (Tarjan 1972).
func (f *folder) circles() (all [][]int) {
	next := make([][]int, len(f.files))
	for a := range f.arrows {
		next[a.from] = append(next[a.from], a.to)
	}
	number, low := make([]int, len(f.files)), make([]int, len(f.files)) // numbers begin at 1; 0: not met yet
	var open []int
	met := 0
	var visit func(v int)
	visit = func(v int) {
		met++
		number[v], low[v] = met, met
		open = append(open, v)
		for _, w := range next[v] {
			if number[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if slices.Contains(open, w) {
				low[v] = min(low[v], number[w])
			}
		}
		if low[v] == number[v] {
			at := slices.Index(open, v)
			if circle := slices.Sorted(slices.Values(open[at:])); len(circle) > 1 {
				all = append(all, circle)
			}
			open = open[:at]
		}
	}
	for v := range f.files {
		if number[v] == 0 {
			visit(v)
		}
	}
	slices.SortFunc(all, func(a, b []int) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return a[0] - b[0]
	})
	return all
}

// layer puts the files of a circle in an order, the lowest first, so that few arrows run back: from a file to one above it.
// No order has fewer where the circle has at most exactMost files; a larger one is searched, and the same files give the same order.
func (f *folder) layer(circle []int) (order []int, back []arrow) {
	g := newCircle(f, circle)
	positions := g.exact
	if len(circle) > exactMost {
		positions = g.search
	}
	for _, v := range positions() {
		order = append(order, circle[v])
	}
	for i, from := range order {
		for _, to := range order[i+1:] {
			if _, ok := f.arrows[arrow{from, to}]; ok {
				back = append(back, arrow{from, to})
			}
		}
	}
	return order, back
}

// back returns the arrows that run back in all circles.
func (f *folder) back() (all []arrow) {
	for _, circle := range f.circles() {
		_, back := f.layer(circle)
		all = append(all, back...)
	}
	return all
}

// inside returns the arrows between the files of a circle, sorted.
func (f *folder) inside(circle []int) (all []arrow) {
	for _, from := range circle {
		for _, to := range circle {
			if _, ok := f.arrows[arrow{from, to}]; ok {
				all = append(all, arrow{from, to})
			}
		}
	}
	return all
}

// graph has the arrows between the files 0 to n-1 of one circle: uses[a][b] is 1 when a uses b, else 0.
type graph struct{ uses [][]int }

func newCircle(f *folder, circle []int) graph {
	g := graph{make([][]int, len(circle))}
	for i, from := range circle {
		g.uses[i] = make([]int, len(circle))
		for j, to := range circle {
			if _, ok := f.arrows[arrow{from, to}]; ok {
				g.uses[i][j] = 1
			}
		}
	}
	return g
}

const exactMost = 18 // files; exact takes 2^files steps for each file

// exact returns an order with the fewest arrows back: the best order of each set of lowest files, from small sets to large ones
// (Held and Karp 1962). Of equal orders it takes the one whose highest files come last in the alphabet.
func (g graph) exact() []int {
	n := len(g.uses)
	users := make([]uint, n) // of each file, as a set
	for a := range n {
		for b := range n {
			users[b] |= uint(g.uses[a][b]) << a
		}
	}
	fewest, highest := make([]int, 1<<n), make([]int, 1<<n)
	for set := uint(1); set < 1<<n; set++ {
		fewest[set] = n * n
		for v := range n {
			if below := set &^ (1 << v); below != set {
				if back := fewest[below] + bits.OnesCount(users[v]&below); back <= fewest[set] {
					fewest[set], highest[set] = back, v
				}
			}
		}
	}
	order := make([]int, 0, n)
	for set := uint(1)<<n - 1; set != 0; set &^= 1 << highest[set] {
		order = append(order, highest[set])
	}
	slices.Reverse(order)
	return order
}

const rounds = 400

// search returns an order with few arrows back. It begins with greedy's and moves single files as long as that helps. Then it moves some
// files at random and begins again, rounds times from the best order so far (iterated local search; Lourenço, Martin and Stützle 2003).
func (g graph) search() []int {
	random := rand.New(rand.NewPCG(1, 2))
	best := g.greedy()
	fewest := g.settle(best)
	for range rounds {
		order := slices.Clone(best)
		for range 4 {
			move(order, random.IntN(len(order)), random.IntN(len(order)))
		}
		if back := g.settle(order); back <= fewest {
			best, fewest = order, back
		}
	}
	return best
}

// greedy places a file that uses none of those left lowest, and one that none of them uses highest. Where there is neither, it places that
// file highest whose arrows from it exceed those to it by most (Eades, Lin and Smyth 1993).
func (g graph) greedy() []int {
	n := len(g.uses)
	order, placed := make([]int, n), make([]bool, n)
	for low, high := 0, n-1; low <= high; {
		at, score := &high, -n
		next := 0
		for v := range n {
			out, in := 0, 0
			for w := range n {
				if !placed[w] {
					out, in = out+g.uses[v][w], in+g.uses[w][v]
				}
			}
			switch {
			case placed[v]:
			case out == 0:
				at, score, next = &low, 2*n, v
			case in == 0 && score < n:
				at, score, next = &high, n, v
			case out-in > score:
				at, score, next = &high, out-in, v
			}
		}
		order[*at], placed[next] = next, true
		if at == &low {
			low++
		} else {
			high--
		}
	}
	return order
}

// settle moves single files of an order to their best places until none gains, and returns the arrows that run back then.
func (g graph) settle(order []int) int {
	for moved := true; moved; {
		moved = false
		for from := range order {
			if to, gain := g.place(order, from); gain > 0 {
				move(order, from, to)
				moved = true
			}
		}
	}
	return g.back(order)
}

// back returns the number of arrows that run back in an order.
func (g graph) back(order []int) (n int) {
	for i, v := range order {
		for _, w := range order[i+1:] {
			n += g.uses[v][w]
		}
	}
	return n
}

// place returns the best place for the file at a place, and how many arrows run back no longer when it moves there.
func (g graph) place(order []int, from int) (to, most int) {
	v, gain := order[from], 0
	for i := from + 1; i < len(order); i++ { // above order[i]
		if gain += g.uses[v][order[i]] - g.uses[order[i]][v]; gain > most {
			to, most = i, gain
		}
	}
	gain = 0
	for i := from - 1; i >= 0; i-- { // below order[i]
		if gain += g.uses[order[i]][v] - g.uses[v][order[i]]; gain > most {
			to, most = i, gain
		}
	}
	return to, most
}

// move takes the file at a place to another one; the files between move by one place.
func move(order []int, from, to int) {
	v := order[from]
	copy(order[from:], order[from+1:])
	copy(order[to+1:], order[to:len(order)-1])
	order[to] = v
}
