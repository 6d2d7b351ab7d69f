package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The timers of launched processes may be late; those of whoever launches are as before.
func TestLaunchedTimersMayBeLate(t *testing.T) {
	const file = "/proc/thread-self/timerslack_ns"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	r := launchWith(t, "timers timers")
	want := fmt.Sprintln(lateness.Nanoseconds(), nil)
	for rank, said := range []string{r.out, linesOf(r.err, "[1] ")} {
		if said = strings.Replace(said, "ready\n", "", 1); said != want {
			t.Errorf("the timers of rank %d may be late by %q ns, want %q", rank, said, want)
		}
	}
	for range 10 { // on any thread
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("timers may be late by %s ns (%v), before by %s", after, err, before)
		}
	}
}
