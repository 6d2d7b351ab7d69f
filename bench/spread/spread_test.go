package spread

import (
	"slices"
	"testing"
)

// Every place comes once. In each prefix the counts of two positions of a list differ by 3 at most.
func TestOrder(t *testing.T) {
	t.Parallel()
	lengths := Place{9, 4, 5, 4}
	whole := Order(lengths, nil)
	seen := map[Place]bool{}
	var counts [4][9]int
	for n, p := range whole {
		seen[p] = true
		for d, i := range p {
			counts[d][i]++
			if c := counts[d][:lengths[d]]; slices.Max(c)-slices.Min(c) > 3 {
				t.Errorf("after %d places, list %d has %v", n+1, d, c)
			}
		}
	}
	if len(whole) != 720 || len(seen) != 720 {
		t.Fatalf("%d places, %d different", len(whole), len(seen))
	}
	if !slices.Equal(Order(lengths, whole[:100]), whole) {
		t.Error("an order that goes on from its first 100 places is another")
	}
	for _, p := range Order(lengths, Nested(lengths)[:80])[80:144] { // the first model has all its places
		if p[0] == 0 {
			t.Fatal("the model that is complete comes again")
		}
	}
}
