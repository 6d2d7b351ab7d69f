package executor

import (
	"encoding/json"
	"math"
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// Another link changes nothing else of a chain, not even fields of the profile that are unknown here.
func TestWithLink(t *testing.T) {
	t.Parallel()
	c := &chain.Chain{Bandwidth: 5, Extra: map[string]json.RawMessage{
		LinkField: json.RawMessage(`{"to_host_bytes_per_s":7,"lanes":16}`), "other": json.RawMessage(`1`),
	}}
	if got := LinkOf(c); got != (schedule.Link{Bandwidth: 5}) {
		t.Errorf("link %+v", got)
	}
	want := schedule.Link{Bandwidth: 9, Duplex: true}
	d, err := WithLink(c, want)
	must(t, err)
	if LinkOf(d) != want || LinkOf(c).Bandwidth != 5 || string(d.Extra["other"]) != "1" {
		t.Errorf("link %+v, before %+v", LinkOf(d), LinkOf(c))
	}
	if got := string(d.Extra[LinkField]); got != `{"duplex":true,"lanes":16,"to_host_bytes_per_s":7}` {
		t.Errorf("the profile is now %s", got)
	}
	if d, err = WithLink(&chain.Chain{}, want); err != nil || LinkOf(d) != want {
		t.Errorf("of a chain without a profile: %+v, %v", LinkOf(d), err)
	}
	if _, err := WithLink(&chain.Chain{Extra: map[string]json.RawMessage{LinkField: json.RawMessage(`3`)}}, want); err == nil {
		t.Error("a profile that is a number was taken")
	}
}

// By default, a link counts as duplex if both directions together move at least 1.5 times as much as one alone. Plans may then count on the
// rate of the slower direction beside the other.
func TestLinksAreDuplexAsMeasured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile string
		want    schedule.Link
		asked   schedule.Link // with --duplex
	}{
		{`{"to_host_together_bytes_per_s":9,"to_device_together_bytes_per_s":8}`, schedule.Link{Bandwidth: 8, Duplex: true}, schedule.Link{Bandwidth: 8, Duplex: true}},
		{`{"to_host_together_bytes_per_s":12,"to_device_together_bytes_per_s":11}`, schedule.Link{Bandwidth: 10, Duplex: true}, schedule.Link{Bandwidth: 10, Duplex: true}},
		{`{"to_host_together_bytes_per_s":7.5,"to_device_together_bytes_per_s":7.5}`, schedule.Link{Bandwidth: 7.5, Duplex: true}, schedule.Link{Bandwidth: 7.5, Duplex: true}},
		{`{"to_host_together_bytes_per_s":9,"to_device_together_bytes_per_s":5}`, schedule.Link{Bandwidth: 10}, schedule.Link{Bandwidth: 5, Duplex: true}},
		{`{"to_host_together_bytes_per_s":9}`, schedule.Link{Bandwidth: 10}, schedule.Link{Bandwidth: 10, Duplex: true}},
		{`{"duplex":true}`, schedule.Link{Bandwidth: 10, Duplex: true}, schedule.Link{Bandwidth: 10, Duplex: true}},
		{`7`, schedule.Link{Bandwidth: 10}, schedule.Link{Bandwidth: 10, Duplex: true}},
	} {
		of := &chain.Chain{Bandwidth: 10, Extra: map[string]json.RawMessage{LinkField: json.RawMessage(c.profile)}}
		if got := MeasuredLink(of); got != c.want {
			t.Errorf("%s: the link is %+v, want %+v", c.profile, got, c.want)
		}
		if got := DuplexLink(of); got != c.asked {
			t.Errorf("%s: the duplex link is %+v, want %+v", c.profile, got, c.asked)
		}
	}
}

// The contention of copies in one direction is half the share that copies in both directions take from computation. It is zero if the
// slowdown was not measured.
func TestContentionIsThatOfTheLink(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		``: 0, `{"compute_slowdown":1}`: 0, `{"compute_slowdown":0.9}`: 0, `{"compute_slowdown":1.25}`: 0.1, `{"compute_slowdown":2}`: 0.25, `"nonsense"`: 0,
	} {
		c := &chain.Chain{Extra: map[string]json.RawMessage{}}
		if text != "" {
			c.Extra[LinkField] = json.RawMessage(text)
		}
		if got := ContentionOf(c); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
