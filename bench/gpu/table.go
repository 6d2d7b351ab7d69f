package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Calls of run.sh. A machine is lent for a quarter of an hour, and a call lasts ten minutes at most.
const (
	smokeCall   = "smoke"
	correctness = "correctness"
	measurement = "measurement"
	speed       = "speed"
)

// entry is a part of the suite: the call that it belongs to, and for how long it runs at most.
type entry struct {
	name, call string
	limit      time.Duration
}

// table lists the parts in the order in which run.sh runs them.
var table = []entry{
	{"smoke", smokeCall, 60 * time.Second},
	{"runtime", correctness, 60 * time.Second},
	{"kernels", correctness, 120 * time.Second},
	{"executor", correctness, 90 * time.Second},
	{"steps", correctness, 90 * time.Second},
	{"validate", correctness, 90 * time.Second},
	{"drivers", correctness, 120 * time.Second},
	{"pipelines", correctness, 90 * time.Second},
	{"world", correctness, 90 * time.Second},
	{"memcheck", correctness, 60 * time.Second},
	{"racecheck", correctness, 60 * time.Second},
	{"language", measurement, 70 * time.Second},
	{"residency", measurement, 90 * time.Second},
	{"copies", measurement, 15 * time.Second},
	{"ops", measurement, 60 * time.Second},
	{"rotor", measurement, 50 * time.Second},
	{"throughput", speed, 120 * time.Second},
	{"offload", speed, 40 * time.Second},
	{"vendors", speed, 40 * time.Second},
	{"beyond", speed, 60 * time.Second},
}

// judges reports whether a part of this call can be wrong, and not only slow.
func (e entry) judges() bool { return e.call == smokeCall || e.call == correctness }

// choose returns the parts that names name, each by its own name or by its call's; none: smoke and correctness.
func choose(names []string) (chosen []entry, err error) {
	if len(names) == 0 {
		names = []string{smokeCall, correctness}
	}
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(table), func(e entry) bool { return e.name != name && e.call != name })
		if len(found) == 0 {
			return nil, fmt.Errorf("unknown part %q: known are the calls %s, and the parts %s",
				name, strings.Join([]string{smokeCall, correctness, measurement, speed}, ", "), strings.Join(partNames(), ", "))
		}
		chosen = append(chosen, found...)
	}
	return chosen, nil
}

func partNames() (all []string) {
	for _, e := range table {
		all = append(all, e.name)
	}
	return all
}

// list prints a line for each chosen part, for run.sh: its name, its limit in seconds, and whether it judges.
func (o *options) list(names []string, out io.Writer) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	for _, e := range chosen {
		limit, err := limitOf(o.limits, e.name, e.limit)
		if err != nil {
			return err
		}
		kind := map[bool]string{true: "judges", false: "measures"}[e.judges()]
		fmt.Fprintf(out, "%s %d %s\n", e.name, int(limit.Seconds()), kind)
	}
	return nil
}

// limitOf returns the limit of a part in a text of limits: seconds for all parts ("300") or for some ("throughput=300
// beyond=200").
func limitOf(limits, part string, limit time.Duration) (time.Duration, error) {
	for _, word := range strings.Fields(limits) {
		name, text, one := strings.Cut(word, "=")
		if !one {
			name, text = part, word
		}
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 || !slices.Contains(partNames(), name) {
			return 0, fmt.Errorf("LIMIT has %q: give seconds, as in 300 or throughput=300", word)
		}
		if name == part {
			limit = time.Duration(seconds) * time.Second
		}
	}
	return limit, nil
}
