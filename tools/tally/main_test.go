package main

import (
	"strings"
	"testing"
)

const passing = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":0.1}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":7}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: no GPU\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t7.1s\n"}
{"Action":"pass","Package":"p","Elapsed":7.1}
`

// A run prints its packages, why tests are skipped, which are slow, and how many passed.
func TestTally(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := tally(strings.NewReader(passing), &out, 1, 5); err != nil {
		t.Fatal(err)
	}
	want := "ok  \tp\t7.1s\nskipped   1  no GPU\nslow     7.0 s  p.TestA\n1 passed, 0 failed, 1 skipped\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// A run fails when a test or a package does, and when tests are missing.
func TestTallyFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events string
		least  int
		says   string
	}{
		"too few":    {passing, 2, "fewer than the 2"},
		"nothing":    {"", 1, "0 tests passed"},
		"a test":     {passing + `{"Action":"output","Package":"p","Test":"TestC","Output":"it broke\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestC"}`, 1, "tests failed"},
		"a package":  {passing + `{"Action":"fail","Package":"q"}`, 1, "tests failed"},
		"a compiler": {passing + `{"Action":"build-fail","ImportPath":"q"}`, 1, "tests failed"},
	} {
		var out strings.Builder
		err := tally(strings.NewReader(c.events), &out, c.least, 5)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if name == "a test" && !strings.Contains(out.String(), "it broke") {
			t.Errorf("the output of a failed test is missing:\n%s", out.String())
		}
	}
}

// Every tier has a number; an unknown one is refused.
func TestCounts(t *testing.T) {
	t.Parallel()
	for _, tier := range []string{"test", "nightly"} {
		if n, err := leastOf(counts, tier); err != nil || n < 1000 {
			t.Errorf("%s: %d, %v", tier, n, err)
		}
	}
	if _, err := leastOf(counts, "weekly"); err == nil {
		t.Error("an unknown tier has a number")
	}
}
