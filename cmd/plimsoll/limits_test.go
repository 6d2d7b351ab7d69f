package main

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Every command refuses, at once and by name, links over which nothing would ever arrive. Commands also refuse plans with a message that
// takes longer than a run waits.
func TestLinksThatNeverDeliver(t *testing.T) {
	t.Parallel()
	job := []string{"-m", "tiny", "--batch", "4", "--image", "8", "-q"}
	with := func(command string, more ...string) []string {
		return append(append([]string{command}, job...), append(slices.Clone(more), "--out", filepath.Join(t.TempDir(), "out"))...)
	}
	pipeline := []string{"--devices", "cpu*2", "--strategy", "gpipe", "--steps", "1", "--option", "profile.steps=1"}
	tried := 0
	refused := func(want string, args ...string) {
		t.Helper()
		if r := plimsoll(t, args...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.err)
		}
		tried++
	}
	for _, slow := range []string{"0.1B/s", "0.001B/s", "1e-9B/s", "1e-90B/s"} {
		for _, args := range [][]string{
			with("train", "--steps", "1"), with("train", pipeline...), with("train", "--devices", "cpu*2", "--strategy", "ampnet", "--steps", "2"),
			with("validate", "--steps", "1"), with("validate", pipeline...), with("demo", "--steps", "1"),
			append([]string{"profile"}, job...),
		} {
			refused("to reach the device: give more", append(args, "--bandwidth", slow)...)
		}
		refused("to reach the device: give more", append(with("bench", "--steps", "1"), "--bandwidths", slow)...)
		refused("would take", "devices", "--bandwidth", slow)
		refused("would take", "devices", "--devices", "cpu*2", "--peer-bandwidth", slow)
		refused("a run waits", append(with("train", pipeline...), "--peer-bandwidth", slow)...)
		refused("a run waits", append(with("train", "--devices", "cpu*2", "--strategy", "ampnet", "--steps", "2", "--option", "profile.steps=1"), "--peer-bandwidth", slow)...)
		refused("a run waits", append(with("validate", pipeline...), "--peer-bandwidth", slow)...)
	}
	refused("next to nothing", "plan", "-c", five, "--memory", "80%", "--bandwidth", "5e-324B/s")
	if tried < 28 {
		t.Errorf("%d command lines were tried", tried)
	}
}

// Ctrl-C while something slow is measured ends it at once.
func TestInterruptedMeasurements(t *testing.T) {
	t.Parallel()
	slow := []string{"-m", "tiny", "--batch", "4", "--image", "8", "--option", "profile.no-cache", "--out", filepath.Join(t.TempDir(), "out")}
	for _, args := range [][]string{
		append([]string{"train", "--bandwidth", "1kB/s"}, slow...), append([]string{"validate", "--bandwidth", "1kB/s"}, slow...),
		append([]string{"bench", "--bandwidths", "1kB/s"}, slow...),
	} {
		p := program(t, nil, args...)
		says := p.toFile()
		p.start()
		p.says(says, "measuring tiny")
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := p.end(); code != exitFailed || !strings.Contains(read(t, says), "interrupted") {
			t.Errorf("%s: exit code %d: %s", args[0], code, read(t, says))
		}
	}
}

// Numbers that nobody can mean are refused before anything of their size is made.
func TestAbsurdNumbers(t *testing.T) {
	// Serial: it counts allocations.
	tiny := []string{"-m", "tiny", "--batch", "2", "--image", "8", "-q"}
	for want, args := range map[string][]string{
		"--points is 1000000000":                {"bench", "-c", five, "--points", "1000000000", "--out", t.TempDir()},
		"--points is 1000000001":                {"frontier", "-c", five, "--points", "1000000001"},
		"--classes is 1000000000":               append([]string{"train", "--classes", "1000000000"}, tiny...),
		"profile.steps 9223372036854775807":     append([]string{"profile", "--option", "profile.steps=9223372036854775807"}, tiny...),
		"--option profile.warmup is 1000000000": append([]string{"profile", "--option", "profile.warmup=1000000000"}, tiny...),
	} {
		var r result
		took := allocated(func() { r = plimsoll(t, args...) })
		if r.code != exitUsage || !strings.Contains(r.err, want) || took > 64<<20 {
			t.Errorf("%v: exit code %d, %d bytes: %s", args, r.code, took, r.err)
		}
	}
}

// allocated returns how many bytes something allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Devices that never end, pipes and files of absurd sizes are read up to a bound, or not at all, wherever a file is named.
func TestEndlessInputs(t *testing.T) {
	// Serial: it counts allocations.
	dir := t.TempDir()
	sparse := write(t, filepath.Join(dir, "sparse"), "")
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Fatal(err)
	}
	plan := filepath.Join(dir, "p.json")
	works(t, "plan", "-c", five, "--memory", "80%", "-o", plan)
	tiny := []string{"-m", "tiny", "--batch", "2", "--image", "8", "-q", "--steps", "1"}
	for _, endless := range []string{"/dev/zero", sparse} {
		if _, err := os.Stat(endless); err != nil {
			t.Logf("%s: %v", endless, err)
			continue
		}
		for _, args := range [][]string{
			{"plan", "-c", endless, "--memory", "80%"}, {"check", "-c", endless, "-p", plan}, {"check", "-c", five, "-p", endless},
			{"trace", "-c", five, "-p", endless, "-o", filepath.Join(dir, "t.json")}, {"frontier", "-c", endless},
			{"report", endless}, {"import", endless}, {"convert", "-c", five, "-p", endless}, {"bench", "-c", five, "-p", endless},
			{"bench", "-c", endless, "--out", filepath.Join(dir, "bench")}, {"plan", "-c", five, "--platform", endless},
			append([]string{"train", "--profile", endless}, tiny...), append([]string{"train", "--init", endless}, tiny...),
			append([]string{"train", "--devices", "cpu*2", "--plan", endless}, tiny...),
			append([]string{"train", "--data", "folder:" + endless}, tiny...), append([]string{"train", "--data", "idx:" + endless}, tiny...),
		} {
			var r result
			took := allocated(func() { r = plimsoll(t, args...) })
			if r.code != exitUsage || took > 1<<28 {
				t.Errorf("%v: exit code %d, %d MB: %s", args, r.code, took>>20, r.err)
			}
		}
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	if r := plimsoll(t, append([]string{"train", "--init", fifo}, tiny...)...); r.code != exitUsage || !strings.Contains(r.err, "regular file") {
		t.Errorf("--init of a pipe: exit code %d: %s", r.code, r.err)
	}
	if r := plimsoll(t, "plan", "-c", fifo, "--memory", "80%"); r.code != exitUsage || !strings.Contains(r.err, "nothing is written") {
		t.Errorf("a pipe without a writer: exit code %d: %s", r.code, r.err)
	}
	hold, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0) // what is written stays until it is read
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fifo, []byte(read(t, five)), 0o600); err != nil {
		t.Fatal(err)
	}
	works(t, "plan", "-c", fifo, "--memory", "80%")
	if err := hold.Close(); err != nil {
		t.Error(err)
	}
}

// Times of centuries are planned, simulated and drawn like others; a timeline that no viewer has room for is refused and leaves
// nothing.
func TestTimesOfCenturies(t *testing.T) {
	t.Parallel()
	if got := share(1e308, 1e308); got != "100.0%" {
		t.Errorf("all of it is %s", got)
	}
	for _, seconds := range []string{"1e10", "1e300"} {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		chain := regexp.MustCompile(`("forward_s"|"backward_s"): ?[0-9.e-]+`).ReplaceAllString(read(t, five), "$1:"+seconds)
		write(t, at("c.json"), chain)
		for _, args := range [][]string{
			{"plan", "-c", at("c.json"), "--memory", "80%", "-o", at("p.json")}, {"check", "-c", at("c.json"), "-p", at("p.json")},
			{"plan", "-c", at("c.json"), "--devices", "2", "--svg", at("p.svg"), "-o", at("pp.json")}, {"check", "-c", at("c.json"), "-p", at("pp.json")},
			{"frontier", "-c", at("c.json"), "--points", "3"},
			{"bench", "-c", at("c.json"), "--points", "3", "--strategy", "rotor,pofo", "--out", at("bench")},
		} {
			r := works(t, args...)
			if bad := regexp.MustCompile(`NaN|Inf|-[0-9]{6}`).FindString(r.out + r.err); bad != "" {
				t.Errorf("%v says %s: %s", args, bad, r.out)
			}
		}
		for _, args := range [][]string{
			{"trace", "-c", at("c.json"), "-p", at("p.json"), "-o", at("t.json")},
			{"plan", "-c", at("c.json"), "--devices", "2", "--svg", at("new.svg"), "-o", at("new.json"), "--trace", at("t.json")},
		} {
			if r := plimsoll(t, args...); r.code != exitUsage || !strings.Contains(r.err, "a timeline shows at most") {
				t.Errorf("%v: exit code %d: %s", args, r.code, r.err)
			}
		}
		for _, name := range []string{"t.json", "new.json", "new.svg"} {
			if _, err := os.Stat(at(name)); err == nil {
				t.Errorf("%s was written", name)
			}
		}
	}
}
