package pofo

import "slices"

// queue holds the bytes still to be moved, the oldest first: after a forward to the host, or, in reversed time,
// before a backward to the device.
//
// The thesis lets memory go piece by piece (assumption OR.5). A queue can also hold the rule for real transfers: the whole
// activation stays until its transfer has ended.
type queue struct {
	whole bool
	total float64 // bytes that the queue has on the device
	items []item
}

// item is an activation of size bytes of which rest bytes are still to be moved.
type item struct{ rest, size float64 }

// wait returns how many bytes have to be moved until x bytes are free.
func (q *queue) wait(x float64) float64 {
	if x <= 0 || !q.whole {
		return max(x, 0)
	}
	var moved, free float64
	for _, it := range q.items {
		moved += it.rest
		if free += it.size; free >= x {
			return moved
		}
	}
	return moved + x - free // what joins the queue now
}

// fill makes the queue of rest bytes from the sizes of everything offloaded so far, the newest first.
func (q *queue) fill(rest float64, newest []float64) {
	q.items, q.total = q.items[:0], rest
	if !q.whole {
		return
	}
	q.total = 0
	for _, size := range newest {
		if rest <= 0 {
			break
		}
		q.items = append(q.items, item{min(rest, size), size})
		q.total += size
		rest -= size
	}
	slices.Reverse(q.items)
}
