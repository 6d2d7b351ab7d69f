package pack

import (
	"math/rand/v2"
	"testing"
)

// Items of a round keep apart at every moment of it, as a table of who owns which byte when says.
func TestCircleNeverOverlapsAndStaysNearTheLivePeak(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	const cases, unit = 300, 64
	var excess float64
	over := 0
	for c := range cases {
		moments := 2 + r.IntN(30)
		items := make([]Item, 1+r.IntN(40))
		switch { // so many that parts of the round are looked at
		case c%75 == 0:
			moments, items = 50+r.IntN(300), make([]Item, r.IntN(1000))
		case c%10 == 0:
			moments, items = 2+r.IntN(12), make([]Item, 256+r.IntN(600))
		}
		for i := range items {
			first := r.IntN(moments)
			items[i] = Item{Bytes: unit * int64(r.IntN(12)), First: first, Last: first + r.IntN(1+r.IntN(moments))}
		}
		extent, end := Circle(items, moments), int64(0)
		owner, live, most := map[[2]int]int{}, make([]int64, moments), int64(0)
		for i, it := range items {
			end = max(end, it.Offset+it.Bytes)
			for at := it.First; at <= it.Last; at++ {
				if at >= moments {
					over++
				}
				live[at%moments] += it.Bytes
				for u := range int(it.Bytes / unit) {
					cell := [2]int{at % moments, int(it.Offset/unit) + u}
					if other, taken := owner[cell]; taken {
						t.Fatalf("items %d %+v and %d %+v overlap in a round of %d", other, items[other], i, it, moments)
					}
					owner[cell] = i
				}
			}
		}
		for _, bytes := range live {
			most = max(most, bytes)
		}
		if extent != end || LiveCircle(items, moments) != most || extent < most {
			t.Fatalf("extent %d, the items end at %d; live peak %d, it is %d", extent, end, LiveCircle(items, moments), most)
		}
		if most > 0 {
			excess += float64(extent)/float64(most) - 1
		}
	}
	if mean := excess / cases; mean > 0.1 {
		t.Errorf("the mean excess over the live peak is %.1f %%, want at most 10 %%", 100*mean)
	}
	if over == 0 {
		t.Error("no item lasts beyond the end of a round")
	}
}
