package main

import (
	"encoding/json"
	"strings"
	"testing"

	"plimsoll/internal/units"
)

// Where no plan of activations alone fits, auto plans where weights, gradients and state are: with a limit of the user's and with a small
// device, in parts of a step and clipped too. The weights are those of a run without a limit.
// Only this test finds a train that refuses a limit in which such a plan fits.
func TestTrainMovesState(t *testing.T) {
	t.Parallel()
	args := []string{"train", "-m", "gpt2-2-64", "--length", "16", "--batch", "4", "--steps", "2", "--optimizer", "adamw", "--option", "profile.steps=1"}
	for _, parts := range [][]string{nil, {"--accumulate", "2"}, {"--clip-norm", "0.5"}, {"--on-nan", "skip"}} {
		all := append(args[:len(args):len(args)], parts...)
		want := object(t, append(all, "-q")...)
		limit := int64(want["measured_peak_bytes"].(float64)) / 2
		size := units.Size{Bytes: limit}
		for _, small := range [][]string{{"--memory", size.String()}, {"--debug", "device-memory=" + size.String()}} {
			r := works(t, append(append(all[:len(all):len(all)], small...), "--json")...)
			var got map[string]any
			if err := json.Unmarshal([]byte(r.out), &got); err != nil {
				t.Fatal(err)
			}
			if got["weights_sha256"] != want["weights_sha256"] || got["strategy"] != "residency" || got["measured_peak_bytes"] != got["predicted_peak_bytes"] {
				t.Errorf("%v %v: %v, without a limit %v", parts, small, got, want)
			}
			if peak := int64(got["measured_peak_bytes"].(float64)); peak > limit {
				t.Errorf("%v %v: %d B of %d", parts, small, peak, limit)
			}
			if !strings.Contains(r.err, "auto: activations alone need") || !strings.Contains(r.err, "weights, gradients and optimizer state move too (--strategy residency)") {
				t.Errorf("%v %v: no word of it: %s", parts, small, r.err)
			}
		}
	}
	// A strategy of activations that is asked for stays refused, with the figures of its plans.
	if r := plimsoll(t, append(args[:len(args):len(args)], "--memory", "1KiB", "--strategy", "rotor")...); r.code != exitNoFit || strings.Contains(r.err, "residency") {
		t.Errorf("rotor: %+v", r)
	}
	if r := plimsoll(t, append(args[:len(args):len(args)], "--memory", "1KiB")...); r.code != exitNoFit || !strings.Contains(r.err, "residency: a limit of 1.000 KiB is too small: the smallest found is ") {
		t.Errorf("1 KiB: %+v", r)
	}
}
