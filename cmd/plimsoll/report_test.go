package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The report command draws the page of a run again as it was. One page shows two runs and the differences between them. The picture of the
// memory shows the step with a plan and the step without one.
// Only this test finds that report draws a run's page otherwise than train, or hides the differences between two runs.
func TestReport(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	a, b, grid := filepath.Join(folder, "a"), filepath.Join(folder, "b"), filepath.Join(folder, "grid")
	trainTiny(t, "--memory", "85%", "--out", a)
	trainTiny(t, "--memory", "90%", "--out", b)
	works(t, "validate", "-m", "tiny", "--batch", "8", "--steps", "2", "--strategy", "rotor", "--memory", "100%,90%", "--option", "profile.steps=1", "--out", grid)
	again, both, memory := filepath.Join(folder, "again.html"), filepath.Join(folder, "both.html"), filepath.Join(folder, "memory.svg")
	works(t, "report", a, "--out", again, "--svg", memory)
	if read(t, again) != read(t, filepath.Join(a, reportFile)) {
		t.Error("the page that is drawn again is another one")
	}
	if picture := read(t, memory); !strings.HasPrefix(picture, "<svg xmlns=") || !strings.Contains(picture, "store-all, predicted: ") || !strings.Contains(picture, ">measured<") || !strings.Contains(picture, ">limit ") {
		t.Errorf("picture %s", picture)
	}
	text := works(t, "report", a, b, "--out", both).out
	if !strings.Contains(text, "step, measured") || !strings.Contains(text, "same") {
		t.Errorf("%s", text)
	}
	if page := read(t, both); !strings.Contains(page, b+": batch") || !strings.Contains(page, "What differs in the environment") || !strings.Contains(page, "<dt>weights</dt>") {
		t.Error("the page does not compare; the weights under two limits are the same bits")
	}
	if o := object(t, "report", a, b); len(o["reports"].([]any)) != 2 || len(o["reports"].([]any)[1].(map[string]any)["figures"].([]any)) < 10 {
		t.Errorf("%v", o)
	}
	if page := read(t, filepath.Join(grid, "report.json")); !strings.HasPrefix(page, `{"format":"plimsoll.report/v1","title":"tiny on digits`) {
		t.Errorf("%.200s", page)
	}
	if err := os.Mkdir(filepath.Join(folder, "bad"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "bad", "report.json"), "{}")
	for want, args := range map[string][]string{
		"no folder":           {},
		"no such file":        {filepath.Join(folder, "none")},
		"is given twice":      {a, a + "/"},
		`"format" is ""`:      {filepath.Join(folder, "bad")},
		"--svg draws the mem": {filepath.Join(folder, "empty.json"), "--svg", memory},
	} {
		write(t, filepath.Join(folder, "empty.json"), `{"format":"plimsoll.report/v1","title":"nothing"}`)
		if r := plimsoll(t, append([]string{"report"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %s, want %s", args, r.code, r.err, want)
		}
	}
}
