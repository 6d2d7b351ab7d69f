package receipt

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// three is a chain whose ops take whole milliseconds; a link of 1 MB/s moves 1000 bytes in one.
func three() *chain.Chain {
	c := &chain.Chain{Name: "three", InputBytes: 1000}
	for _, name := range []string{"a", "b", "loss"} {
		c.Layers = append(c.Layers, chain.Layer{
			Name: name, ForwardS: 0.002, BackwardS: 0.004, OutputBytes: 3000, SavedBytes: 3000, GradientBytes: 100,
		})
	}
	return c
}

var link = schedule.Link{Bandwidth: 1e6}

// step is a step of the chain that runs exactly as predicted, but for what change does.
func step(t *testing.T, text string, limits schedule.Limits, change func(spans []schedule.Span)) Step {
	t.Helper()
	seq, err := schedule.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := schedule.Simulate(three(), seq, limits)
	if err != nil {
		t.Fatal(err)
	}
	s := Step{Chain: three(), Ops: seq, Limits: limits, Predicted: r, Spans: r.Spans(), Update: ms(1), UpdatePredicted: ms(1)}
	change(s.Spans)
	for p, op := range seq {
		if !op.Kind.Transfer() {
			s.Whole = s.Spans[p].End + s.Update
		}
	}
	return s
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// later moves the ops from position p on.
func later(spans []schedule.Span, p int, by time.Duration) {
	for i := p; i < len(spans); i++ {
		spans[i].Start += by
		spans[i].End += by
	}
}

// Each cause alone is found, and named.
func TestEachCauseIsNamed(t *testing.T) {
	t.Parallel()
	const plain, moved = "Fall1 Fall2 Fall3 B3 B2 B1", "Fall1 Fall2 O2 Fall3 B3 P2 B2 B1"
	free := schedule.Limits{Memory: schedule.NoLimit, Link: link}
	for name, x := range map[string]struct {
		text   string
		limits schedule.Limits
		change func(s []schedule.Span)
		want   map[Cause]time.Duration
	}{
		"as predicted": {plain, free, func([]schedule.Span) {}, nil},
		"slow op": {plain, free, func(s []schedule.Span) {
			s[1].End += ms(3)
			later(s, 2, ms(3))
		}, map[Cause]time.Duration{Ops: ms(3)}},
		"fast op": {plain, free, func(s []schedule.Span) {
			s[1].End -= ms(1)
			later(s, 2, -ms(1))
		}, map[Cause]time.Duration{Ops: -ms(1)}},
		"launch gap": {plain, free, func(s []schedule.Span) { later(s, 4, ms(2)) }, map[Cause]time.Duration{Launches: ms(2)}},
		"slow prefetch": {moved, free, func(s []schedule.Span) {
			s[5].End += ms(5)
			later(s, 6, ms(5))
		}, map[Cause]time.Duration{Transfers: ms(5)}},
		"late prefetch": {moved, free, func(s []schedule.Span) { later(s, 5, ms(4)) }, map[Cause]time.Duration{TransferWaits: ms(4)}},
		"late and slow": {moved, free, func(s []schedule.Span) {
			later(s, 5, ms(4))
			s[5].End += ms(2)
			later(s, 6, ms(2))
		}, map[Cause]time.Duration{TransferWaits: ms(4), Transfers: ms(2)}},
		"fast prefetch": {moved, free, func(s []schedule.Span) {
			s[5].End -= ms(1)
			later(s, 6, -ms(1))
		}, map[Cause]time.Duration{Transfers: -ms(1)}},
	} {
		s := step(t, x.text, x.limits, x.change)
		r, err := New(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for c, got := range r.By {
			if got != x.want[Cause(c)] {
				t.Errorf("%s: %v is %v, want %v", name, Cause(c), got, x.want[Cause(c)])
			}
		}
		sums(t, name, r)
	}
}

// Fall3 waits for the memory that the offload frees: a slow offload is a slower transfer, a late one a wait for memory.
func TestWaitsForMemory(t *testing.T) {
	t.Parallel()
	const text = "Fall1 Fall2 O2 Fall3 B3 P2 B2 B1"
	seq, _ := schedule.Parse(text)
	limits := schedule.Limits{Memory: schedule.NoLimit, Link: link}
	all, err := schedule.Simulate(three(), seq, limits)
	if err != nil {
		t.Fatal(err)
	}
	for limits.Memory = all.Peak; err == nil; limits.Memory-- {
		_, err = schedule.Simulate(three(), seq, limits)
	}
	limits.Memory += 2 // the least that works
	for cause, change := range map[Cause]func([]schedule.Span){
		Transfers:   func(s []schedule.Span) { s[2].End += ms(2); later(s, 3, ms(2)) },
		MemoryWaits: func(s []schedule.Span) { later(s, 2, ms(2)) },
	} {
		s := step(t, text, limits, change)
		r, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		if r.By[cause] != ms(2) {
			t.Errorf("%v: %v", cause, r.By)
		}
		sums(t, cause.String(), r)
	}
}

// sums checks the invariant.
func sums(t *testing.T, name string, r *Receipt) {
	t.Helper()
	var sum time.Duration
	for _, d := range r.By {
		sum += d
	}
	if sum != r.Gap() {
		t.Errorf("%s: the causes come to %v, the gap is %v", name, sum, r.Gap())
	}
}

// The causes add up to the gap for any spans that keep the order of the compute ops.
func TestCausesAlwaysAddUp(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	seq, _ := schedule.Parse("Fall1 O1 Fck2 O2 F3 P2 Fall2 Fall3 B3 P1 B2 B1")
	seq2, _ := schedule.Parse("Fall1 O1 Fall2 O2 Fall3 B3 P2 B2 P1 B1")
	ran, seen := 0, [causes]int{}
	for k := range 2000 {
		s := Step{
			Chain: three(), Ops: [2]schedule.Sequence{seq2, seq}[k%2], Update: time.Duration(rng.IntN(1e6)), UpdatePredicted: time.Duration(rng.IntN(1e6)),
			Whole: time.Duration(rng.IntN(1e8)), Limits: schedule.Limits{Memory: 7000 + rng.Int64N(5000), Link: schedule.Link{Bandwidth: 1e6, Duplex: k%4 < 2}},
		}
		s.Spans = randomSpans(rng, s.Ops)
		var err error
		if s.Predicted, err = schedule.Simulate(s.Chain, s.Ops, s.Limits); err != nil {
			continue // a limit that is too small, or a sequence that breaks a rule
		}
		r, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		ran++
		sums(t, s.Ops.String(), r)
		for c, d := range r.By {
			if d != 0 {
				seen[c]++
			}
		}
	}
	for c, n := range seen {
		if n < 50 && Cause(c) != HostUpdates && Cause(c) != Messages {
			t.Errorf("%v in %d of %d cases only", Cause(c), n, ran)
		}
	}
}

func randomSpans(rng *rand.Rand, seq schedule.Sequence) []schedule.Span {
	spans := make([]schedule.Span, len(seq))
	var compute, moved time.Duration
	for p, op := range seq {
		at := &compute
		if op.Kind.Transfer() {
			at = &moved
		}
		start := max(*at, compute) + time.Duration(rng.IntN(3)*rng.IntN(1e6))
		spans[p] = schedule.Span{Start: start, End: start + time.Duration(rng.IntN(8e6))}
		*at = spans[p].End
	}
	return spans
}

func TestJSONAndTable(t *testing.T) {
	t.Parallel()
	r, err := New(step(t, "Fall1 Fall2 Fall3 B3 B2 B1", schedule.Limits{Memory: schedule.NoLimit}, func(s []schedule.Span) {
		s[4].End += ms(3)
		later(s, 5, ms(3))
	}))
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Gap    float64 `json:"gap_s"`
		Causes []struct {
			Cause   string
			Seconds float64
		}
		Worst []struct{ Op, Layer string } `json:"worst_ops"`
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil || o.Gap != 0.003 || len(o.Causes) != int(causes)-2 || o.Causes[0].Seconds != 0.003 || o.Worst[0].Op != "B2" || o.Worst[0].Layer != "b" {
		t.Errorf("%s, %v", b, err)
	}
	var text strings.Builder
	table := Table([]string{"plan"}, []*Receipt{r}, func(int) []string { return []string{"mine"} })
	if err := table.Text(&text); err != nil || !strings.Contains(text.String(), "+3.000 ms") || strings.Count(text.String(), "\n") != 3 {
		t.Errorf("%v\n%s", err, text.String())
	}
}
