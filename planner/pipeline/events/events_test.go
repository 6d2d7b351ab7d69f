package events

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Jobs end in the order of time. Jobs that end at one instant end together, in the order in which they were started. The clock never goes
// back, and is not before the end of any job that has ended.
func TestClock(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 1))
	together := 0
	for range 300 {
		var c Clock[int]
		var at []float64 // by job
		start := func() {
			seconds := float64(rng.IntN(4)) * 0.1
			c.Start(len(at), seconds)
			at = append(at, c.Now+seconds)
		}
		for range 1 + rng.IntN(5) {
			start()
		}
		ended, before := 0, 0.0
		for all := c.Next(); len(all) > 0; all = c.Next() {
			for i, j := range all {
				if at[j] > c.Now || at[j] < c.Now*(1-2*simultaneous) || i > 0 && at[j] == at[all[i-1]] && j < all[i-1] {
					t.Fatalf("%v end at %v, at %v", all, at, c.Now)
				}
			}
			if c.Now < before {
				t.Fatalf("%v behind %v", c.Now, before)
			}
			before, ended = c.Now, ended+len(all)
			together += len(all) - 1
			if len(at) < 40 {
				for range 1 + rng.IntN(2) {
					start()
				}
			}
		}
		if ended != len(at) || math.Abs(c.Now-slices.Max(at)) > 0 {
			t.Fatalf("%d of %d ended, at %v", ended, len(at), c.Now)
		}
	}
	if together < 1000 {
		t.Errorf("only %d ended with another", together)
	}
}

// Sums of the same times in another order are the same instant.
func TestRoundingIsNoTime(t *testing.T) {
	t.Parallel()
	var c Clock[string]
	c.Start("three tenths", 0.3)
	c.Start("a tenth", 0.1)
	c.Next()
	c.Start("two more", 0.2) // ends at 0.30000000000000004
	if all := c.Next(); !slices.Equal(all, []string{"three tenths", "two more"}) {
		t.Errorf("%q end at %v", all, c.Now)
	}
}
