package remat

// grouped returns the costs of the chain in which every count layers are one, the last one perhaps of fewer. A sequence
// for it is one for the chain itself, with the same excess and no higher peak.
func (k *costs) grouped(count int) *costs {
	g := &costs{again: []int64{0}}
	g.append(k.a[0], k.saved[0], k.grad[0], 0, 0, 0)
	for first := 1; first <= k.n; first += count {
		last := min(first+count-1, k.n)
		g.n++
		g.again = append(g.again, k.again[last])
		k.group(g, first, last)
	}
	return g
}

func (k *costs) append(a, saved, grad, forwardOver, discardOver, backwardOver int64) {
	k.a, k.saved, k.grad = append(k.a, a), append(k.saved, saved), append(k.grad, grad)
	k.forwardOver, k.discardOver = append(k.forwardOver, forwardOver), append(k.discardOver, discardOver)
	k.backwardOver = append(k.backwardOver, backwardOver)
}

// group appends layers first..last to g as one. Its overheads are what its ops need at most, less what the formulas for
// one layer count besides; sizes are never negative.
func (k *costs) group(g *costs, first, last int) {
	var saved, forward, backward int64
	discard := k.needFirst(first)
	for l := first; l <= last; l++ {
		saved += k.saved[l]
		forward = max(forward, saved+k.forwardOver[l])
		backward = max(backward, saved+k.grad[l]+k.grad[l-1]+k.backwardOver[l])
		if l > first {
			discard = max(discard, k.needNext(l))
		}
	}
	backward -= saved + k.grad[last] + k.grad[first-1]
	g.append(k.a[last], saved, k.grad[last], max(0, forward-saved), max(0, discard-k.a[last]), max(0, backward))
}
