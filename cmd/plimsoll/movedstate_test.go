package main

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"

	"plimsoll/internal/units"
)

// Where no plan of activations alone fits, auto also plans the places of weights, gradients and state. It does so under a user's limit and
// on a small device, also for steps in parts and with clipping. The weights are the weights of a run without a limit.
// Only this test finds a train that refuses a limit in which such a plan fits.
func TestTrainMovesState(t *testing.T) {
	t.Parallel()
	args := []string{"train", "-m", "gpt2-2-64", "--length", "16", "--batch", "4", "--steps", "8", "--optimizer", "adamw", "--option", "profile.steps=1"}
	ways := [][]string{nil, {"--accumulate", "2"}, {"--clip-norm", "0.5"}, {"--on-nan", "skip"}}
	if testing.Short() {
		ways = [][]string{{"--accumulate", "2", "--clip-norm", "0.5"}}
	}
	for _, parts := range ways {
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
			wantCyclicReceipt(t, got)
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

// Where layers alone need more to be measured than a limit that is a share, one note names the limit and the largest need. A plan that is refused
// is refused in the same limit.
func TestMeasuringBeyondTheLimit(t *testing.T) {
	t.Parallel()
	r := plimsoll(t, "train", "-m", "gpt2-2-64", "--length", "32", "--batch", "2", "--strategy", "residency", "--memory", "30%", "--steps", "3",
		"--option", "profile.steps=1", "--option", "profile.no-cache")
	notes := regexp.MustCompile(`(?m)alone needs (\S+ \S+) \([\d,]+ B\) to be measured, and the limit is (\S+ \S+) \(`).FindAllStringSubmatch(r.err, -1)
	if len(notes) != 1 || r.code != exitNoFit || !strings.Contains(r.err, "residency: a limit of "+notes[0][2]+" is too small") {
		t.Errorf("%+v", r)
	}
}

// wantCyclicReceipt wants a run along a cyclic plan to say how far the machine went from its profile, how long each stream did nothing, and
// what the gap comes from. The causes add up to it: to the nanosecond before they are written as seconds.
func wantCyclicReceipt(t *testing.T, run map[string]any) {
	t.Helper()
	drift, _ := run["drift"].(map[string]any)
	idle, _ := run["idle"].(map[string]any)
	receipt, _ := run["receipt"].(map[string]any)
	if drift == nil || idle == nil || receipt == nil {
		t.Errorf("drift %v, idle %v, receipt %v", drift, idle, receipt)
		return
	}
	sum, host := 0.0, false
	for _, c := range receipt["causes"].([]any) {
		sum += c.(map[string]any)["seconds"].(float64)
		host = host || c.(map[string]any)["cause"] == "host updates slower"
	}
	if gap := receipt["gap_s"].(float64); math.Abs(sum-gap) > 1e-11 || !host {
		t.Errorf("causes come to %v s of %v s: %v", sum, gap, receipt)
	}
	if measured := receipt["measured_s"].(float64); receipt["steps"] == 1.0 && measured != run["measured_s_per_step"] {
		t.Errorf("a receipt of %v s, the step took %v s", measured, run["measured_s_per_step"])
	}
	if predicted, measured := run["predicted_s_of_run"].(float64), run["measured_s_of_run"].(float64); !(predicted > 0 && measured > 0) {
		t.Errorf("a run of %v s, predicted %v s", measured, predicted)
	}
	if streams := idle["streams"].([]any); len(streams) < 3 {
		t.Errorf("idle streams %v", streams)
	}
}
