package main

import (
	"os/exec"
	"strings"
	"testing"
)

// onDisk is a command line in a namespace where a folder is a small disk of its own, after a script.
func onDisk(t *testing.T, folder, script string, args ...string) *process {
	t.Helper()
	mount := []string{"unshare", "-rm", "sh", "-c", `mount -t tmpfs -o size=8k none . && cd "$PWD" && ` + script + ` && exec "$@"`, "sh"}
	try := exec.Command(mount[0], append(mount[1:], "true")...)
	try.Dir = folder
	if text, err := try.CombinedOutput(); err != nil {
		t.Skipf("no disk of our own: %v: %s", err, text)
	}
	p := program(t, mount, args...)
	p.Dir = folder
	return p
}

// A run that cannot begin for want of room, or of permission to write, is bad input: started again, it would fail again.
func TestDisksThatTakeNoRun(t *testing.T) {
	t.Parallel()
	train := []string{"train", "-m", "mlp", "--data", "glyphs", "--batch", "8", "--steps", "2", "--option", "profile.no-cache", "--option", "profile.steps=1"}
	for _, c := range []struct {
		script    string
		args      []string
		flag, why string
	}{
		{"true", append(train, "--out", "."), "plimsoll train: --out .: ", "no space left on device"},
		{"mount -o remount,ro .", append(train, "--out", "run"), "--out run: ", "read-only file system"},
		{"mkdir run && mount -o remount,ro .", append(train, "--out", "run"), "--out run: ", "read-only file system"},
		{"mount -o remount,ro .", []string{"profile", "-m", "mlp", "--data", "glyphs", "-o", "c.json"}, "plimsoll profile: --output c.json: ", "read-only file system"},
	} {
		p := onDisk(t, t.TempDir(), c.script, c.args...)
		p.start()
		if code, text := p.end(), p.err.String(); code != exitUsage || !strings.Contains(text, c.flag) || !strings.Contains(text, c.why) {
			t.Errorf("%s: %v: exit code %d: %s", c.script, c.args, code, text)
		}
	}
}
