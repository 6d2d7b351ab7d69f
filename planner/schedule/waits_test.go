package schedule

import (
	"strings"
	"testing"
	"time"

	"plimsoll/planner/chain"
)

// A simulation starts every op as soon as it may: all its idle time is a wait for a transfer or for memory.
func TestWaitsExplainEverySimulation(t *testing.T) {
	t.Parallel()
	forTransfers, forMemory := 0, 0
	eachRandom(t, 1200, func(c *chain.Chain, seq Sequence, limits Limits, r *Result) {
		spans := r.Spans()
		waits, err := Waits(c, seq, limits, spans)
		if err != nil {
			t.Fatal(err)
		}
		last := time.Duration(0)
		for p, w := range waits {
			if seq[p].Kind.Transfer() {
				if w != (Wait{}) {
					t.Fatalf("%s: transfer %d waits %+v", seq, p, w)
				}
				continue
			}
			if sum := w.Transfer + w.Memory + w.Other; sum != spans[p].Start-last || min(w.Transfer, w.Memory, w.Other) < 0 {
				t.Fatalf("%s: op %d waits %+v after %v, and starts at %v", seq, p, w, last, spans[p].Start)
			}
			if w.Other > time.Nanosecond {
				t.Fatalf("%s within %+v: op %d waits %v for nothing (%+v, %v)", seq, limits, p, w.Other, w, spans)
			}
			forTransfers += check(t, w.Transfer, w.By, seq, Prefetch)
			forMemory += check(t, w.Memory, w.Freed, seq, Offload)
			last = spans[p].End
		}
	})
	if forTransfers < 100 || forMemory < 5 {
		t.Errorf("%d waits for transfers, %d for memory", forTransfers, forMemory)
	}
}

// check returns 1 for a wait, of which a transfer of that kind is the end.
func check(t *testing.T, wait time.Duration, by int, seq Sequence, kind Kind) int {
	t.Helper()
	if wait == 0 {
		return 0
	}
	if by < 0 || seq[by].Kind != kind {
		t.Fatalf("%s: a wait of %v for op %d", seq, wait, by)
	}
	return 1
}

// Hand-made spans of one step: Fall2 waits for the memory that O1 frees where the limit is small, B1 for its prefetch and then for nothing.
func TestWaitsOfMeasuredSpans(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Name: "two", InputBytes: 4, Layers: []chain.Layer{
		{Name: "a", OutputBytes: 2, SavedBytes: 2, GradientBytes: 2}, {Name: "b", OutputBytes: 2, SavedBytes: 2, GradientBytes: 2},
	}}
	seq, err := Parse("Fall1 O1 Fall2 B2 P1 B1")
	if err != nil {
		t.Fatal(err)
	}
	spans := []Span{{1, 10}, {10, 20}, {20, 30}, {30, 40}, {40, 47}, {49, 60}}
	for limit, want := range map[int64][]Wait{
		100: {0: {Other: 1, By: none, Freed: none}, 2: {Other: 10, By: none, Freed: none}, 3: {By: none, Freed: none}, 5: {Transfer: 7, Other: 2, By: 4, Freed: none}},
		7:   {0: {Other: 1, By: none, Freed: none}, 2: {Memory: 10, By: none, Freed: 1}, 3: {By: none, Freed: none}, 5: {Transfer: 7, Other: 2, By: 4, Freed: none}},
	} {
		got, err := Waits(c, seq, Limits{Memory: limit, Link: Link{Bandwidth: 1}}, spans)
		if err != nil {
			t.Fatal(err)
		}
		for p := range want {
			if got[p] != want[p] {
				t.Errorf("limit %d, op %d: %+v, want %+v", limit, p, got[p], want[p])
			}
		}
	}
	for _, bad := range [][]Span{spans[:5], {{1, 10}, {10, 20}, {9, 30}, {30, 40}, {40, 47}, {49, 60}}} {
		if _, err := Waits(c, seq, Limits{Memory: 100}, bad); err == nil || !strings.Contains(err.Error(), "op") {
			t.Errorf("spans %v: %v", bad, err)
		}
	}
}
