package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func (a *Item) meets(b *Item) bool { return a.First <= b.Last && b.First <= a.Last }

// checkPacking fails if two items that live together overlap, and returns the extent.
func checkPacking(t *testing.T, items []Item) (extent int64) {
	t.Helper()
	for i := range items {
		a := &items[i]
		if a.Offset < 0 {
			t.Fatalf("item %d has no offset: %+v", i, a)
		}
		extent = max(extent, a.Offset+a.Bytes)
		for j := range i {
			b := &items[j]
			if a.meets(b) && a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes {
				t.Fatalf("items %d %+v and %d %+v overlap", i, a, j, b)
			}
		}
	}
	return extent
}

func randomItems(r *rand.Rand, n, ops int) []Item {
	items := make([]Item, n)
	for i := range items {
		first := r.IntN(ops)
		items[i] = Item{Bytes: 64 * int64(r.IntN(20)), First: first, Last: first + r.IntN(ops-first)}
	}
	return items
}

func TestPackNeverOverlapsAndStaysNearTheLivePeak(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	const cases = 500
	var excess float64
	for c := range cases {
		ops, n := 2+r.IntN(40), 60
		if c%50 == 0 { // so many that parts of the sequence are looked at
			ops, n = 50+r.IntN(500), 1000
		}
		items := randomItems(r, 1+r.IntN(n), ops)
		floor := Live(items, ops)
		extent := Pack(items, ops)
		if got := checkPacking(t, items); got != extent {
			t.Fatalf("pack says %d bytes, the items end at %d", extent, got)
		}
		if extent < floor {
			t.Fatalf("extent %d is below the live peak %d", extent, floor)
		}
		if floor > 0 {
			excess += float64(extent)/float64(floor) - 1
		}
	}
	// Random lifetimes are much harder than those of chains; a packer that ignored lifetimes would need 2 to 10 times.
	if mean := excess / cases; mean > 0.05 {
		t.Errorf("the mean excess over the live peak is %.1f %%, want at most 5 %%", 100*mean)
	}
}

// Around leaves fixed items where they are and places others beside them.
func TestAroundFixedItems(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	filled := 0
	for range 300 {
		ops := 2 + r.IntN(20)
		fixed := randomItems(r, 1+r.IntN(10), ops)
		ground := Pack(fixed, ops)
		before := slices.Clone(fixed)
		items := randomItems(r, 1+r.IntN(30), ops)
		extent := Around(fixed, items, ops)
		if !slices.Equal(fixed, before) {
			t.Fatalf("fixed items %v have moved to %v", before, fixed)
		}
		if got := checkPacking(t, slices.Concat(fixed, items)); max(got, ground) != extent {
			t.Fatalf("it says %d bytes, the items end at %d", extent, got)
		}
		if slices.ContainsFunc(items, func(it Item) bool { return it.Bytes > 0 && it.Offset < ground }) {
			filled++
		}
	}
	if filled < 200 {
		t.Errorf("gaps between fixed items are filled in %d cases only", filled)
	}
	if got := Around([]Item{{Bytes: 5, Offset: 3}}, nil, 1); got != 8 {
		t.Errorf("extent %d of one item that ends at 8", got)
	}
}

func TestLivePeakByHand(t *testing.T) {
	t.Parallel()
	items := []Item{{Bytes: 5, First: 0, Last: 1}, {Bytes: 7, First: 1, Last: 2}, {Bytes: 9, First: 2, Last: 2}}
	if got := Live(items, 3); got != 16 {
		t.Errorf("live peak %d, want 16 (items 1 and 2 at op 2)", got)
	}
}

func TestPackIsDeterministic(t *testing.T) {
	t.Parallel()
	a := randomItems(rand.New(rand.NewPCG(3, 4)), 200, 50)
	b := append([]Item(nil), a...)
	Pack(a, 50)
	Pack(b, 50)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("item %d lies at %d and at %d", i, a[i].Offset, b[i].Offset)
		}
	}
}

func TestPackOfNothing(t *testing.T) {
	t.Parallel()
	if got := Pack(nil, 3); got != 0 {
		t.Errorf("extent %d of no items", got)
	}
}
