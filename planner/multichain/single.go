package multichain

// single is AdjChain: one chain whose last gradient is given (thesis 1.1.5, Theorem 1; Griewank and Walther's Revolve).
type single struct {
	forward, backward float64
	cost              [][]float64 // Opt_0(l, m)
	split             [][]int     // the forwards to the next checkpoint; 0: none, every backward starts from a_0
}

// newSingle fills the table for chains of up to longest-1 layers and up to so many slots. O(longest^2 slots).
func newSingle(j Join, slots, longest int) *single {
	s := &single{forward: j.Forward, backward: j.Backward}
	for m := range slots + 1 {
		cost, split := make([]float64, longest+1), make([]int, longest+1)
		s.cost, s.split = append(s.cost, cost), append(s.split, split)
		for l := range longest + 1 {
			cost[l] = float64(l*(l+1)/2)*s.forward + float64(l+1)*s.backward
			for i := 1; m > 3 && i <= l; i++ {
				c := float64(i)*s.forward + s.cost[m-1][l-i] + cost[i-1]
				if c < cost[l] {
					cost[l], split[l] = c, i
				}
			}
		}
	}
	return s
}

// emit appends the steps of AdjChain on layers first+1..first+l+1 of a branch, with m slots for it.
func (s *single) emit(out Schedule, branch, first, l, m int) Schedule {
	if i := s.split[m][l]; i > 0 {
		out = append(out, Op{Store, branch, first})
		out = forwards(out, branch, first, i)
		out = s.emit(out, branch, first+i, l-i, m-1)
		return s.emit(out, branch, first, i-1, m)
	}
	for ; l >= 0; l-- {
		if l > 0 {
			out = append(out, Op{Store, branch, first})
			out = forwards(out, branch, first, l)
		}
		out = append(out, Op{Backward, branch, first + l + 1})
	}
	return out
}

// forwards appends F_{first+1}..F_{first+count}.
func forwards(out Schedule, branch, first, count int) Schedule {
	for i := 1; i <= count; i++ {
		out = append(out, Op{Forward, branch, first + i})
	}
	return out
}
