package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/planner/pipeline"
)

// noisy runs check --noise and returns its figures by row and column.
func noisy(t *testing.T, args ...string) (noise map[string]any, row func(name, column string) float64) {
	t.Helper()
	noise = object(t, append([]string{"check"}, args...)...)["noise"].(map[string]any)
	return noise, func(name, column string) float64 { return noise[name].(map[string]any)[column].(float64) }
}

// One device, one microbatch: a run is the sum of two durations with a factor each, whose figures are known.
func TestNoiseOfASum(t *testing.T) {
	t.Parallel()
	table := write(t, filepath.Join(t.TempDir(), "one.csv"), "0F0,0B0\n") // 1 s and 2 s
	noise, row := noisy(t, "-p", table, "--noise", "30%", "--runs", "20000", "--seed", "5")
	if noise["simulated"] != true || noise["of"] != "makespan" || noise["runs"] != 20000.0 || noise["seed"] != 5.0 || noise["noise_fraction"] != 0.3 {
		t.Errorf("%v", noise)
	}
	if row("plan", "seconds") != 3 || row("without_noise", "seconds") != 3 || row("without_noise", "ratio_to_plan") != 1 {
		t.Errorf("%v", noise)
	}
	// A sum of 1 and 2 s, each times a factor even in [0.7, 1.3], has mean and median 3 s and is at most 3.9 s.
	for _, name := range []string{"mean", "median"} {
		if math.Abs(row(name, "seconds")-3) > 0.02 || math.Abs(row(name, "ratio_to_plan")-1) > 0.01 || row(name, "bubble_fraction") != 0 {
			t.Errorf("%s: %v", name, noise[name])
		}
	}
	if w := row("worst", "seconds"); !(w > 3.85 && w <= 3.9) || math.Abs(row("worst", "ratio_to_plan")-w/3) > 1e-12 {
		t.Errorf("worst: %v", noise["worst"])
	}
}

// For plans of every kind, stages with ops among them, the noise figures equal the simulator's for the seeds that --seed draws.
func TestNoiseIsTheSimulators(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.json")
	for _, args := range [][]string{{"1f1b-flush"}, {"gpipe-checkpoint"}, {"1f1b*"}, {"loadline", "--memory", "900", "--accounting", "saved"}} {
		works(t, append([]string{"plan", "-c", five, "--devices", "2", "--bandwidth", "100B/s", "-o", file, "--strategy"}, args...)...)
		noise, row := noisy(t, "-c", five, "-p", file, "--noise", "0.25", "--runs", "9", "--seed", "3")
		if ops := strings.Contains(read(t, file), `"ops"`); ops != (args[0] == "gpipe-checkpoint" || args[0] == "loadline") {
			t.Errorf("%v: stages with ops: %v", args, ops)
		}
		times, bubbles := simulated(t, file, 3, 9)
		own := noise["plan"].(map[string]any)["seconds"].(float64)
		near := func(name, column string, want float64) {
			if math.Abs(row(name, column)-want) > 1e-9*math.Abs(want)+1e-12 {
				t.Errorf("%v: %s %s is %v, want %v", args, name, column, row(name, column), want)
			}
		}
		slowest := bubbles[slices.Index(times, slices.Max(times))]
		near("worst", "bubble_fraction", slowest)
		sum, idle := 0.0, 0.0
		for i := range times {
			sum, idle = sum+times[i], idle+bubbles[i]
		}
		slices.Sort(times)
		slices.Sort(bubbles)
		near("mean", "seconds", sum/9)
		near("mean", "ratio_to_plan", sum/9/own)
		near("mean", "bubble_fraction", idle/9)
		near("median", "seconds", times[4])
		near("median", "ratio_to_plan", times[4]/own)
		near("median", "bubble_fraction", bubbles[4])
		near("worst", "seconds", times[8])
		if row("without_noise", "ratio_to_plan") > 1+1e-9 || times[0] == times[8] {
			t.Errorf("%v: %v", args, noise)
		}
	}
}

// simulated returns the times and bubbles of runs of a plan file.
func simulated(t *testing.T, file string, seed uint64, runs int) (times, bubbles []float64) {
	t.Helper()
	plan, err := pipeline.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := readChain(five)
	if err != nil {
		t.Fatal(err)
	}
	seeds := rand.New(rand.NewPCG(seed, 0))
	for range runs {
		o, err := pipeline.Simulate(c, plan.Platform, plan, pipeline.Noise{Fraction: 0.25, Seed: seeds.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		seconds := o.Period
		if plan.IsFlush() {
			seconds = o.Makespan
		}
		times, bubbles = append(times, seconds), append(bubbles, o.Bubble)
	}
	return times, bubbles
}

// The same seed gives the same figures, another one others; a percentage and a fraction mean the same.
func TestNoiseIsSeeded(t *testing.T) {
	t.Parallel()
	table := tables + "interleaved1f1b_4ranks_2stages_8mb.csv"
	run := func(noise, seed string) string {
		return works(t, "check", "-p", table, "--noise", noise, "--seed", seed, "--runs", "20").out
	}
	a := run("10%", "1")
	if a != run("0.1", "1") || a == run("10%", "2") || a == run("11%", "1") {
		t.Errorf("%s", a)
	}
	for _, want := range []string{"noise of 10%, 20 simulated runs, seed 1:", "makespan", "without noise", "worst"} {
		if !strings.Contains(a, want) {
			t.Errorf("no %q in %s", want, a)
		}
	}
	golden(t, "check-noise.txt", a)
}

// The simulator has no link to host memory: a plan whose stages offload is refused, and checked without noise.
func TestNoNoiseOfOffloads(t *testing.T) {
	t.Parallel()
	ops := `"devices":[0],"ops":[{"op":"offload","layer":1},{"op":"forward_all","layer":1},{"op":"forward_all","layer":2},{"op":"prefetch","layer":1},
{"op":"backward","layer":2},{"op":"backward","layer":1}]}`
	periodic := strings.Replace(strings.Replace(twoStages, `"devices":[0]}`, ops, 1), `"flush","microbatches":1`, `"latest","period_s":1000`, 1)
	file := write(t, filepath.Join(t.TempDir(), "p.json"), periodic)
	platform := write(t, filepath.Join(t.TempDir(), "platform.json"), `{"devices":2,"host_bandwidth_bytes_per_s":1e6}`)
	works(t, "check", "-c", five, "-p", file, "--platform", platform)
	r := plimsoll(t, "check", "-c", five, "-p", file, "--platform", platform, "--noise", "10%")
	if r.code != exitUsage || !strings.Contains(r.err, "--noise 10%: stage 0 offloads") || r.out != "" {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}

// Without the flag nothing is simulated, and a plan that breaks a rule is not either.
func TestNoNoise(t *testing.T) {
	t.Parallel()
	if r := works(t, "check", "-p", tables+"gpipe_4ranks_1stages_8mb.csv", "--json"); strings.Contains(r.out, "noise") {
		t.Errorf("%s", r.out)
	}
	r := plimsoll(t, "check", "-p", tables+"1f1b_2ranks_1stages_2mb.csv", "--noise", "10%")
	if r.code != exitUsage || strings.Contains(r.out, "noise") {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
}

// TestNoiseOnOneDevice: --noise runs a plan for one device too, with transfers; the same seed gives the same figures.
func TestNoiseOnOneDevice(t *testing.T) {
	t.Parallel()
	for _, sequence := range []string{"Fall1 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 B1", "O1 Fall1 Fall2 Fall3 Fall4 Fall5 B5 B4 B3 B2 P1 B1"} {
		args := []string{"-c", five, "--bandwidth", "1GB/s", "--text", sequence, "--noise", "10%", "--runs", "20", "--seed", "3"}
		noise, row := noisy(t, args...)
		if noise["of"] != "makespan" || row("without_noise", "ratio_to_plan") != 1 || row("worst", "seconds") <= row("median", "seconds") || row("worst", "ratio_to_plan") > 1.1 || row("median", "ratio_to_plan") < 0.9 {
			t.Errorf("%s: %v", sequence, noise)
		}
		if again, _ := noisy(t, args...); fmt.Sprint(again) != fmt.Sprint(noise) {
			t.Errorf("%s: %v, and again %v", sequence, noise, again)
		}
	}
}
