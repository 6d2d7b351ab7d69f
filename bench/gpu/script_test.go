package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// stub stands for gpubench: it unpacks nothing, writes down how it is called, lists the parts that the real one lists, and lets smoke be red.
const stub = `#!/bin/sh
[ "$1" != decompress ] || exec cat
echo "cache=$CUDA_CACHE_PATH $*" >>"$CALLS"
case " $* " in
*" parts "*) cat "$PARTS" ;;
*" -missing "*) ;;
*" -part smoke "*) exit "$SMOKE" ;;
esac
`

// suiteOf makes a folder with run.sh and the stub, which lists the parts of some calls. It returns a function that runs run.sh there and
// returns the calls of the stub and the exit code.
func suiteOf(t *testing.T, calls ...string) func(smoke string, env ...string) (lines []string, code int) {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	script, err := os.ReadFile("run.sh")
	must(t, err)
	var parts bytes.Buffer
	must(t, (&options{}).list(calls, &parts))
	must(t, os.WriteFile(in("parts"), parts.Bytes(), 0o600))
	must(t, os.WriteFile(in("run.sh"), script, 0o700))
	must(t, os.WriteFile(in("compute-sanitizer"), []byte("#!/bin/sh\n"), 0o700))
	programs := []string{"gpubench", "plimsoll", "runtime", "kernels", "executor", "drivers"}
	for _, name := range programs {
		must(t, os.Mkdir(in(name), 0o700))
		must(t, os.WriteFile(filepath.Join(in(name), name), []byte(stub), 0o700))
	}
	must(t, exec.CommandContext(t.Context(), "tar", "-C", dir, "-czf", in("gpubench.tar.gz"), "gpubench").Run())
	must(t, exec.CommandContext(t.Context(), "tar", append([]string{"-C", dir, "-cf", in("programs.tar.zst")}, programs[1:]...)...).Run())
	return func(smoke string, env ...string) ([]string, int) {
		log := in("calls")
		must(t, os.RemoveAll(log))
		c := exec.CommandContext(context.WithoutCancel(t.Context()), in("run.sh"), calls...)
		c.Dir = dir
		c.Env = append([]string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TMPDIR=" + dir, "CALLS=" + log, "PARTS=" + in("parts"), "SMOKE=" + smoke, "PYTHON=false"}, env...)
		text, err := c.CombinedOutput()
		if _, exits := errors.AsType[*exec.ExitError](err); err != nil && !exits {
			t.Fatalf("%v: %s", err, text)
		}
		raw, err := os.ReadFile(log)
		must(t, err)
		return strings.Split(strings.TrimSpace(string(raw)), "\n"), c.ProcessState.ExitCode()
	}
}

// TestRunScript: run.sh runs the parts of the table with their limits and a cache on the machine's own disk. Tools of the sanitizer are
// parts of their own, without vendors' libraries. If smoke is red, no later part runs.
func TestRunScript(t *testing.T) {
	t.Parallel()
	call := suiteOf(t, smokeCall, correctness)
	lines, code := call("0")
	all := strings.Join(lines, "\n")
	if code != 0 || strings.Contains(all, "-missing") {
		t.Errorf("exit code %d:\n%s", code, all)
	}
	for _, want := range []string{
		`cache=/\S+/plimsoll-cuda-cache -part smoke .*-limit 60s .* smoke$`,
		`-part memcheck .*-limit 60s run \S+ --tool memcheck .* -vendor refuse `,
		`-part racecheck .*-limit 60s run \S+ --tool racecheck .* -vendor refuse `,
		`-part executor .* -tests run \./executor -test\.v .*-test\.run GPU$`,
		`-part world .* -program \S+/plimsoll world$`,
		`-out \S+ summary$`,
	} {
		if !regexp.MustCompile("(?m)" + want).MatchString(all) {
			t.Errorf("no call is %s:\n%s", want, all)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if lines, _ := call("0", "CUDA_CACHE_PATH="+elsewhere); !strings.HasPrefix(lines[0], "cache="+elsewhere+" ") {
		t.Errorf("a cache that is named is not taken: %s", lines[0])
	}
	lines, code = call("1")
	skips := 0
	for _, line := range lines {
		if strings.Contains(line, "-missing smoke is red") {
			skips++
		}
	}
	if want := len(table) - len(mustChoose(t, measurement, speed)) - 1; code != 1 || skips != want || len(lines) != want+3 {
		t.Errorf("a red smoke: exit code %d, %d parts skipped of %d, %d calls", code, skips, want, len(lines))
	}
}

func mustChoose(t *testing.T, names ...string) []entry {
	t.Helper()
	chosen, err := choose(names)
	must(t, err)
	return chosen
}

// The program that is carried to a GPU has its kernels.
func TestKernelsAreBuiltIn(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-tags", "cuda", ".").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" && !slices.Contains(strings.Fields(string(out)), "plimsoll/kernels/cuda") {
		t.Error("kernels/cuda is not built in")
	}
}
