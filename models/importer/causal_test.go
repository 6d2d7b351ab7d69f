package importer

import (
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

// Rows are said to be kept only if each element of the output is of the row that it comes from.
func TestKeptRows(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	kept := 0
	for range 100_000 {
		var loops []kernels.Loop
		n := 1
		for range 1 + r.IntN(4) {
			l := kernels.Loop{N: 1 + r.IntN(4), Stride: []int{0, 1, 2, 3, 4, 6, 8, 12, 24}[r.IntN(9)]}
			loops, n = append(loops, l), n*l.N
		}
		const rows, in = 6, 4
		if n%rows != 0 {
			continue
		}
		op := kernels.NewRearrange([]int{n}, r.IntN(3), loops)
		same := true
		for i := range n {
			at, rest := op.From, i
			for k := len(loops) - 1; k >= 0; k-- {
				at += rest % loops[k].N * loops[k].Stride
				rest /= loops[k].N
			}
			same = same && at/in == i/(n/rows)
		}
		got := keepsRows(op, in, int64(n/rows), rows)
		if got && !same {
			t.Fatalf("%+v: rows are not kept", op)
		}
		if got {
			kept++
		}
	}
	if kept < 20 {
		t.Errorf("%d of all keep their rows", kept)
	}
}
