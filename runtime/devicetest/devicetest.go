// Package devicetest is the suite that every device passes. It knows package runtime only; what a launch does, each
// device's own test says in a Suite. Cases that a device cannot show are skipped one by one and counted.
package devicetest

import "testing"

// Report counts the cases.
type Report struct{ Ran, Skipped int }

// Run runs every case that the device can show and returns how many; the device's test asserts the numbers.
func Run(t *testing.T, s Suite) Report {
	t.Helper()
	var r Report
	has := s.has(t)
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			if missing := c.needs &^ has; missing != 0 {
				r.Skipped++
				t.Skipf("the device lacks: %s", missing)
			}
			r.Ran++
			c.check(newKit(t, s, c.devices))
		})
	}
	t.Logf("%d cases run, %d skipped", r.Ran, r.Skipped)
	return r
}

func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{memoryCases, streamCases, eventCases, copyCases, failureCases, loadCases} {
		all = append(all, group...)
	}
	return all
}

func (s Suite) has(t *testing.T) need {
	var has need
	if d := newKit(t, s, 1).devices[0]; !d.Info().Simulated {
		has |= needData
	}
	if s.Gate != nil {
		has |= needGate
	}
	if s.Fail != nil {
		has |= needFail
	}
	return has
}
