package host

import (
	"slices"
	"testing"
	"time"
)

func draws(seed uint64, stream int) []time.Duration {
	c := newChaos(seed, stream)
	var all []time.Duration
	for range 1000 {
		all = append(all, c.next())
	}
	return all
}

func TestChaosIsSeeded(t *testing.T) {
	t.Parallel()
	first := draws(1, 0)
	if !slices.Equal(first, draws(1, 0)) {
		t.Error("the same seed gives different delays")
	}
	if slices.Equal(first, draws(1, 1)) || slices.Equal(first, draws(2, 0)) {
		t.Error("another stream, or another seed, gives the same delays")
	}
	naps := 0
	for _, d := range first {
		if d > 0 {
			naps++
		}
	}
	if longest := slices.Max(first); naps < 80 || naps > 170 || longest < 180*time.Microsecond || longest > 200*time.Microsecond {
		t.Errorf("%d naps of 1000 draws, up to %v", naps, longest)
	}
}

func TestChaosIsOnWhenSeeded(t *testing.T) {
	t.Parallel()
	for seed, want := range map[uint64]bool{0: false, 1: true} {
		parts, err := Split(Config{Memory: 8, HostMemory: 8, Chaos: seed}, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parts {
			s := newStream(d, "s", 0)
			s.close()
			if (s.chaos != nil) != want {
				t.Errorf("seed %d, %s: chaos %v", seed, d.config.Name, s.chaos)
			}
		}
		if want && slices.Equal(draws(parts[0].config.Chaos, 0), draws(parts[1].config.Chaos, 0)) {
			t.Error("the parts of a split have the same delays")
		}
	}
}
