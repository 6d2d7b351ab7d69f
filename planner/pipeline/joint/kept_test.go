package joint

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/planner/chain"
)

// Stages keep the saved sets that are worth most, one after the other, and a part of the first that has no room.
func TestKeptSetsAreWorthMost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 1))
	parts := 0
	for range 200 {
		c := &chain.Chain{}
		for range 1 + r.IntN(40) {
			c.Layers = append(c.Layers, chain.Layer{ForwardS: float64(r.IntN(4)), SavedBytes: r.Int64N(5)})
		}
		k := newKeeper(c)
		for range 50 {
			i := 1 + r.IntN(c.Len())
			j, room := i+r.IntN(c.Len()+1-i), float64(r.IntN(80))/4
			want, left := 0.0, room
			for _, l := range k.worthy {
				if l < i || l > j {
					continue
				}
				layer := c.Layer(l)
				bytes := float64(layer.SavedBytes)
				if kept := min(bytes, left); kept < bytes {
					want += more(layer) * (1 - kept/bytes)
					parts++
				}
				left = max(0, left-bytes)
			}
			if got := k.seconds(i, j, room); math.Abs(got-want) > 1e-9 {
				t.Fatalf("layers %d to %d with room for %g: %g s, want %g", i, j, room, got, want)
			}
		}
	}
	if parts < 1000 {
		t.Errorf("sets have no room in %d cases only", parts)
	}
}
