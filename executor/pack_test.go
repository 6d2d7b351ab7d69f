package executor

import (
	"math/rand/v2"
	"testing"
)

func (a *item) meets(b *item) bool { return a.first <= b.last && b.first <= a.last }

// checkPacking fails if two items that live together overlap, and returns the extent.
func checkPacking(t *testing.T, items []item) (extent int64) {
	t.Helper()
	for i := range items {
		a := &items[i]
		if a.offset < 0 {
			t.Fatalf("item %d has no offset: %+v", i, a)
		}
		extent = max(extent, a.offset+a.bytes)
		for j := range i {
			b := &items[j]
			if a.meets(b) && a.offset < b.offset+b.bytes && b.offset < a.offset+a.bytes {
				t.Fatalf("items %d %+v and %d %+v overlap", i, a, j, b)
			}
		}
	}
	return extent
}

func randomItems(r *rand.Rand, n, ops int) []item {
	items := make([]item, n)
	for i := range items {
		first := r.IntN(ops)
		items[i] = item{bytes: 64 * int64(r.IntN(20)), first: first, last: first + r.IntN(ops-first)}
	}
	return items
}

func TestPackNeverOverlapsAndStaysNearTheLivePeak(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const cases = 500
	var excess float64
	for range cases {
		ops := 2 + r.IntN(40)
		items := randomItems(r, 1+r.IntN(60), ops)
		floor := livePeak(items, ops)
		extent := pack(items, ops)
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

func TestLivePeakByHand(t *testing.T) {
	items := []item{{bytes: 5, first: 0, last: 1}, {bytes: 7, first: 1, last: 2}, {bytes: 9, first: 2, last: 2}}
	if got := livePeak(items, 3); got != 16 {
		t.Errorf("live peak %d, want 16 (items 1 and 2 at op 2)", got)
	}
}

func TestPackIsDeterministic(t *testing.T) {
	a := randomItems(rand.New(rand.NewPCG(3, 4)), 200, 50)
	b := append([]item(nil), a...)
	pack(a, 50)
	pack(b, 50)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("item %d lies at %d and at %d", i, a[i].offset, b[i].offset)
		}
	}
}

func TestPackOfNothing(t *testing.T) {
	if got := pack(nil, 3); got != 0 {
		t.Errorf("extent %d of no items", got)
	}
}
