package shared

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// Judge lets an independent judge of the shared folder, as check.py, judge cases, all through one python3, and returns its verdict on each.
// The driver is a Python program, whose first argument is the judge's folder. It reads a case a line in JSON, and prints a verdict a line.
// A test is skipped where the judge or python3 is missing.
func Judge[Case, Verdict any](t testing.TB, judge, driver string, cases []Case) (verdicts []Verdict) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	var in, failure bytes.Buffer
	enc := json.NewEncoder(&in)
	for _, c := range cases {
		if err := enc.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "-B", "-c", driver, filepath.Dir(Path(t, "oracle", judge)))
	cmd.Stdin, cmd.Stderr = &in, &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", judge, err, &failure)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var v Verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		verdicts = append(verdicts, v)
	}
	if len(verdicts) != len(cases) {
		t.Fatalf("%s judged %d of %d cases", judge, len(verdicts), len(cases))
	}
	return verdicts
}
