package schedule

import "testing"

// Each copy counts from its offload to its last prefetch, saved sets as such; one that comes back twice counts until the second time.
func TestHostBytes(t *testing.T) {
	t.Parallel()
	c := smallChain()
	a0, s1 := c.Activation(0), c.Saved(1)
	for text, want := range map[string]int64{
		"Fall1 Fall2 B2 B1":                         0,
		"O1 Fall1 Fall2 B2 P1 B1":                   a0,
		"O1 Fall1 O2 Fall2 P2 B2 P1 B1":             a0 + s1,
		"O1 Fall1 P1 O2 Fall2 P2 B2 B1":             max(a0, s1),
		"O1 Fck1 P1 O1 Fall2 B2 P1 Fall1 B1":        a0,
		"O1 Fall1 P1 O2 O1 Fall2 P2 B2 P1 B1":       a0 + s1,
		"O1 Fck1 P1 Fall1 O1 O2 Fall2 P2 P1 B2 B1 ": a0 + s1,
	} {
		seq, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := HostBytes(c, seq)
		if err != nil || got != want {
			t.Errorf("%s: %d bytes, %v; want %d", text, got, err, want)
		}
		limits := Limits{Memory: NoLimit, Link: Link{Bandwidth: 1}, Host: want}
		if _, err := Simulate(c, seq, limits); err != nil {
			t.Errorf("%s within %d bytes: %v", text, want, err)
		}
		if limits.Host--; limits.Host > 0 {
			if _, err := Simulate(c, seq, limits); err == nil {
				t.Errorf("%s: %d bytes are enough, too", text, limits.Host)
			}
		}
	}
}
