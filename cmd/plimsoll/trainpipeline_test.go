package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pipe "plimsoll/executor/pipeline"
	"plimsoll/executor/train"
	"plimsoll/planner"
	"plimsoll/planner/milp"
	"plimsoll/planner/pipeline"
)

// onDevices is a run of a small residual network on several devices, as arguments. Its plan is by measured times: medians, so that a
// stall of the machine does not leave a device without a stage.
func onDevices(devices int, strategy string, steps int, args ...string) []string {
	return append([]string{
		"train", "-m", "tiny", "--batch", "8", "--image", "16", "--devices", fmt.Sprintf("cpu*%d", devices), "--strategy", strategy,
		"--steps", strconv.Itoa(steps), "--lr-schedule", "cosine", "--warmup", "3", "--option", "profile.steps=9", "--json", "-q",
	}, args...)
}

func badTrainPipes(t *testing.T) []badCase {
	train := func(args ...string) []string {
		return append([]string{"train", "-m", "tiny", "--image", "16", "--batch", "8", "--option", "profile.steps=9"}, args...)
	}
	two := write(t, filepath.Join(t.TempDir(), "p.json"), `{"devices":2,"memory_bytes":null,"bandwidth_bytes_per_s":1e9}`)
	hosted := write(t, filepath.Join(t.TempDir(), "p.json"), `{"devices":2,"memory_bytes":null,"host_bandwidth_bytes_per_s":1e9}`)
	on := func(args ...string) []string { return train(append([]string{"--devices", "cpu*2"}, args...)...) }
	return []badCase{
		{"train on devices: strategy of one device", on("--strategy", "rotor"), 2, []string{"rotor plans for one device", "madpipe", "1f1b-flush"}},
		{"train on devices: devices twice", train("--devices", "cpu,cpu"), 2, []string{"cpu is named twice", "cpu*2"}},
		{"train on devices: batch", on("--strategy", "gpipe", "--microbatches", "3"), 2, []string{"--batch is 8", "3 microbatches"}},
		{"train on devices: microbatches", on("--strategy", "gpipe", "--microbatches", "-1"), 2, []string{"--microbatches is -1"}},
		{"train on devices: microbatches without a flush", on("--strategy", "1f1b*", "--microbatches", "2"), 2, []string{"--microbatches", "1f1b* has none", "1f1b-flush"}},
		{"train on devices: microbatches of joint", on("--strategy", "joint", "--microbatches", "2"), 2, []string{"--microbatches", "joint has none", "1f1b-flush"}},
		{"train on devices: microbatches by default", on("--microbatches", "3"), 2, []string{"--batch is 8", "3 microbatches"}},
		{"train on devices: versions", on("--strategy", "1f1b*", "--versions", "old"), 2, []string{`"old"`, "stash"}},
		{"train on devices: vertical sync of a flush", on("--strategy", "gpipe", "--versions", "vertical_sync"), 2, []string{`"vertical_sync"`, `"flush"`}},
		{"train on devices: versions of a flush", on("--strategy", "gpipe", "--versions", "stash"), 2, []string{`"stash"`, `"flush"`}},
		{"train on devices: versions alone", train("--versions", "stash"), 2, []string{"--versions is for pipelines", "cpu*4"}},
		{"train on devices: peers alone", train("--peer-bandwidth", "1GB/s"), 2, []string{"--peer-bandwidth is for pipelines"}},
		{"train on devices: patience", on("--debug", "patience=-3s"), 2, []string{"--debug patience is -3s", "5m"}},
		{"train on devices: pipemare", on("--option", "pipemare.updates=-3"), 2, []string{"--option pipemare.updates is -3"}},
		{"train on devices: pipemare's decay", on("--option", "pipemare.decay=1"), 2, []string{"--option pipemare.decay is 1"}},
		{"train on devices: pipemare of a flush", on("--strategy", "gpipe", "--option", "pipemare.updates=9"), 2, []string{"--option pipemare.updates", "gpipe", "ampnet"}},
		{"train on devices: pipemare of a stash", on("--strategy", "1f1b*", "--versions", "stash", "--option", "pipemare.updates=9"), 2, []string{`PipeMare corrects weight versions "latest"`, `"stash"`}},
		{"train on devices: pipemare alone", train("--option", "pipemare.updates=9"), 2, []string{"--option pipemare.updates is for pipelines"}},
		{"train on devices: deferred without a flush", on("--strategy", "1f1b*", "--option", "batchnorm.deferred"), 2, []string{"--option batchnorm.deferred", "1f1b* has none", "1f1b-flush"}},
		{"train on devices: slots", on("--option", "rotor.slots=9"), 2, []string{"--option rotor.slots is for one device"}},
		{"train on devices: two links", on("--platform", two, "--peer-bandwidth", "1GB/s"), 2, []string{"--peer-bandwidth and --platform"}},
		{"train on devices: two links to the host", on("--platform", hosted, "--bandwidth", "1GB/s"), 2, []string{"--bandwidth and field", "host_bandwidth_bytes_per_s"}},
		{"train on devices: another platform", train("--devices", "cpu*3", "--platform", two), 2, []string{"2 devices", "--devices names 3"}},
		{"train on devices: no platform", on("--platform", "none.json"), 2, []string{"none.json"}},
		{"train on devices: clip", on("--strategy", "joint", "--clip-norm", "1"), 2, []string{"--clip-norm 1", "joint updates each on its own", "--strategy joint-flush", "type flush"}},
		{"train on devices: skip", on("--strategy", "joint", "--on-nan", "skip"), 2, []string{"--on-nan skip", "joint updates each on its own"}},
		{"train on devices: offload", on("--offload-state", "weights"), 2, []string{"--offload-state weights is for one device"}},
		{"train on devices: offload without a flush", on("--strategy", "joint", "--offload-state", "optimizer"), 2, []string{"--offload-state optimizer", "joint has none", "--strategy joint-flush"}},
		{"train on devices: host memory", on("--host-memory", "4GiB"), 2, []string{"--host-memory"}},
		{"train on devices: branches", []string{"train", "-m", "siamese", "--image", "8", "--devices", "cpu*2"}, 2, []string{"siamese has branches"}},
		{"train on devices: too many devices", train("--devices", "cpu*9", "--strategy", "gpipe", "--microbatches", "2"), 3, []string{"gpipe", "has enough for 6 devices"}},
		{"train on devices: memory", on("--strategy", "gpipe", "--memory", "10%"), 3, []string{"gpipe: a limit of", "the smallest found is", "(--memory ", "device"}},
		{"train on devices: memory of a periodic plan", on("--strategy", "1f1b*", "--memory", "1KiB"), 3, []string{"1f1b*: a limit of", "the smallest found is"}},
		{"accumulate: none", train("--accumulate", "0"), 2, []string{"--accumulate is 0", "from 1"}},
		{"accumulate: on devices", on("--accumulate", "2"), 2, []string{"--accumulate is for one device", "--microbatches 2"}},
		{"accumulate: no flush", train("--accumulate", "2", "--strategy", "1f1b*"), 2, []string{"--strategy 1f1b* is neither", "plans for one device"}},
		{"accumulate: the largest batch", train("--accumulate", "2", "--batch", "max"), 2, []string{"--batch max is for one device and whole batches"}},
		{"accumulate: by two names", train("--accumulate", "2", "--microbatches", "2"), 2, []string{"--microbatches and --accumulate are two names"}},
		{"accumulate: batch", train("--accumulate", "3"), 2, []string{"--batch is 8", "3 parts (--accumulate)"}},
		{"accumulate: memory", train("--accumulate", "2", "--memory", "1KiB"), 3, []string{"residency: a limit of 1.000 KiB is too small", "the smallest found is", "--memory"}},
		{"accumulate: strategy", train("--accumulate", "2", "--strategy", "gpip"), 2, []string{`"gpip"`, "rotor-exact"}},
		{"accumulate: slots", train("--accumulate", "2", "--strategy", "gpipe", "--slots", "9"), 2, []string{"--slots is for one device"}},
		{"accumulate: rotor's slots", train("--accumulate", "2", "--strategy", "gpipe", "--option", "rotor.slots=9"), 2, []string{"--option rotor.slots is a setting of rotor", "gpipe"}},
		{"accumulate: branches", []string{"train", "-m", "siamese", "--image", "8", "--accumulate", "2"}, 2, []string{"siamese has branches, and parts of a step", "leave --accumulate and --offload-state out"}},
		{"train on devices: table", on("--strategy", write(t, filepath.Join(t.TempDir(), "late.csv"), "0B0,0F0\n1F0,1B0\n")), 2, []string{"late.csv", "illegal schedule"}},
		{"train on devices: no table", on("--strategy", "none.csv"), 2, []string{"none.csv"}},
	}
}

// A run on several devices: its summary and its folder. An update of 2 devices takes up to 4 minibatches, which divide 12 steps.
func TestTrainOnDevices(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"gpipe", "1f1b-flush", "zb-h1", "1f1b*", "madpipe"} {
		out := filepath.Join(t.TempDir(), "run")
		args := onDevices(2, strategy, 12, "--out", out, "--checkpoint-every", "4", "--eval-every", "6", "--peer-bandwidth", "2GB/s")
		var o train.Summary
		if err := json.Unmarshal([]byte(works(t, args...).out), &o); err != nil {
			t.Fatal(err)
		}
		if o.Steps != 12 || o.Strategy != strategy || o.Pipe == nil || len(o.Pipe.Devices) != 2 || o.PredictedS <= 0 || o.MeasuredS <= 0 || o.TestSamples != 360 || o.ImagesPerS <= 0 {
			t.Fatalf("%s: %+v", strategy, o)
		}
		most := int64(0)
		for i, d := range o.Pipe.Devices {
			if d.Name != fmt.Sprintf("cpu*2/%d", i) || len(d.Stages) == 0 || d.StaticBytes <= 0 || d.PeakBytes > d.ExtentBytes || d.ExtentBytes > o.LimitBytes ||
				d.StaticBytes+d.MessagesBytes+d.WorkingBytes+d.InFlightBytes != d.PeakBytes {
				t.Errorf("%s: %+v", strategy, d)
			}
			most = max(most, d.PeakBytes)
		}
		if flush := o.Pipe.Versions == pipeline.Flush; flush && o.MeasuredPeakBytes != most || !flush && o.MeasuredPeakBytes != 0 {
			t.Errorf("%s: a measured peak of %d, predicted %d", strategy, o.MeasuredPeakBytes, most)
		}
		if most != o.PredictedPeakBytes {
			t.Errorf("%s: peak %d, of the devices %d", strategy, o.PredictedPeakBytes, most)
		}
		plan, err := pipeline.Read(filepath.Join(out, "plan.json"))
		if err != nil || plan.Strategy != strategy || plan.Platform.Beta(0, 1) != 2e9 {
			t.Errorf("%s: %v", strategy, err)
		}
		for _, file := range []string{"chain.json", "final.safetensors", "report.html", "trace.json", "checkpoints/step-12/stage-0.safetensors", "checkpoints/step-12/stage-1.safetensors"} {
			if !slices.Contains(tree(t, out), file) {
				t.Errorf("%s: no %s", strategy, file)
			}
		}
		page := read(t, filepath.Join(out, "report.json"))
		if flush := o.Pipe.Versions == pipeline.Flush; strings.Contains(page, "Norm of the gradients") != flush || !strings.Contains(page, "Learning rate") {
			t.Errorf("%s: the report lacks a curve, or has one of norms that are not known", strategy)
		}
		wantPipeLog(t, out, 12)
	}
}

// Accumulated gradients take the memory of a part of the batch, or less along a plan, and are those of a pipeline's flush.
func TestTrainAccumulates(t *testing.T) {
	t.Parallel()
	alone := func(args ...string) (o train.Summary) {
		t.Helper()
		args = append([]string{"train", "-m", "tiny", "--batch", "8", "--image", "16", "--steps", "4", "--option", "profile.steps=3", "--json", "-q"}, args...)
		if err := json.Unmarshal([]byte(works(t, args...).out), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	whole, parts, flush := alone(), alone("--accumulate", "4"), train.Summary{}
	less := alone("--accumulate", "4", "--strategy", "rotor-exact", "--memory", "96%")
	if err := json.Unmarshal([]byte(works(t, onDevices(2, "1f1b-flush", 4, "--microbatches", "4", "--lr-schedule", "constant", "--warmup", "0")...).out), &flush); err != nil {
		t.Fatal(err)
	}
	if parts.MeasuredPeakBytes >= whole.MeasuredPeakBytes || less.MeasuredPeakBytes >= parts.MeasuredPeakBytes || parts.WeightsSHA256 == whole.WeightsSHA256 {
		t.Errorf("in parts %+v, along a plan %+v, whole %+v", parts, less, whole)
	}
	if same := alone("--accumulate", "4", "--strategy", "1f1b-flush"); parts.WeightsSHA256 != flush.WeightsSHA256 || less.WeightsSHA256 != flush.WeightsSHA256 || same.WeightsSHA256 != flush.WeightsSHA256 || same.Pipe == nil {
		t.Errorf("%s, along a plan %s, by a schedule %s, of a flush %s", parts.WeightsSHA256, less.WeightsSHA256, same.WeightsSHA256, flush.WeightsSHA256)
	}
	if text := works(t, "train", "-m", "tiny", "--accumulate", "4", "--batch", "8", "--image", "16", "--steps", "1", "--option", "profile.steps=3", "-q").out; !strings.Contains(text, "steps     1 of 8 images") || !strings.Contains(text, "4 of 2 images a step, each runs the plan") {
		t.Errorf("%s", text)
	}
}

// Runs of all strategies leave a trace that a viewer can show, with measured tracks beside the planned ones. They also leave a page with
// both on one axis and the memory of the devices. Stages that recompute before their gradient arrives are included. Only this test finds a
// strategy of several devices that train cannot run, or leaves without measured tracks.
func TestTrainTracesEveryPipeline(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, s := range planner.Pipelines() {
		out := filepath.Join(t.TempDir(), "run")
		r := plimsoll(t, onDevices(2, s.Name, 3, "--out", out)...)
		if !milp.Built && strings.Contains(r.err, "HiGHS") {
			continue
		}
		if r.code != exitOK {
			t.Errorf("%s: exit code %d\n%s", s.Name, r.code, r.err)
			continue
		}
		ran++
		var trace struct{ TraceEvents []map[string]any }
		if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "trace.json"))), &trace); err != nil || len(trace.TraceEvents) == 0 {
			t.Errorf("%s: %d events, %v", s.Name, len(trace.TraceEvents), err)
		}
		slices := map[string]int{} // by the process
		names := map[any]string{}
		for _, ev := range trace.TraceEvents {
			if ev["name"] == "process_name" {
				names[ev["pid"]] = ev["args"].(map[string]any)["name"].(string)
			}
			if ev["ph"] == "X" {
				slices[names[ev["pid"]]]++
			}
		}
		if slices["device 0 planned"] == 0 || slices["device 0 measured"] <= slices["device 0 planned"]/2 {
			t.Errorf("%s: slices of the processes %v", s.Name, slices)
		}
		page := read(t, filepath.Join(out, reportFile))
		for _, want := range []string{">planned<", ">measured<", "memory of device 0", "as it ran", "<dt>command</dt><dd>plimsoll train"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page has no %q", s.Name, want)
			}
		}
	}
	if want := len(planner.Pipelines()) - 2; ran < want {
		t.Errorf("%d strategies ran, want at least %d", ran, want)
	}
}

// wantPipeLog checks that a log has each step once, in order.
func wantPipeLog(t *testing.T, out string, steps int) {
	t.Helper()
	h, err := train.ReadHistory(strings.NewReader(read(t, filepath.Join(out, logFile))), steps)
	if err != nil || len(h.Steps) != steps || h.Eval(steps) == nil {
		t.Errorf("%d steps, %v", len(h.Steps), err)
		return
	}
	for i, r := range h.Steps {
		if r.Step != i || !(r.Loss > 0) || r.Seconds <= 0 || r.PeakBytes <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// People get what they need: devices with their stages, and the note on updates that take several steps.
func TestTrainOnDevicesForPeople(t *testing.T) {
	t.Parallel()
	args := slices.DeleteFunc(onDevices(2, "madpipe", 7), func(s string) bool { return s == "--json" || s == "-q" })
	r := works(t, args...)
	for _, want := range []string{"pipeline  madpipe, weights double_buffered, 2 devices with at most ", "cpu*2/0   stages [", "an update takes ", "weights   sha256 "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	if !strings.Contains(r.err, "steps in place of 7: an update takes ") {
		t.Errorf("notes: %s", r.err)
	}
	// Without --strategy a plan is found that can be run.
	r = works(t, "train", "-m", "tiny", "--batch", "8", "--image", "16", "--devices", "cpu*2", "--steps", "3", "--option", "profile.steps=9")
	if !strings.Contains(r.out, "pipeline  ") {
		t.Errorf("%s", r.out)
	}
}

// The smallest limit that is said works.
func TestSmallestLimitOfDevices(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"gpipe", "1f1b*", "madpipe"} {
		r := plimsoll(t, onDevices(2, strategy, 3, "--memory", "64KiB")...)
		_, rest, _ := strings.Cut(r.err, "(--memory ")
		smallest, _, _ := strings.Cut(rest, ")")
		if r.code != exitNoFit {
			t.Fatalf("%s: exit code %d: %s", strategy, r.code, r.err)
		}
		var o train.Summary
		if err := json.Unmarshal([]byte(works(t, onDevices(2, strategy, 3, "--memory", smallest)...).out), &o); err != nil || strconv.FormatInt(o.LimitBytes, 10) != smallest {
			t.Errorf("%s: a limit of %d, want %s: %v", strategy, o.LimitBytes, smallest, err)
		}
	}
}

// killedEnv, when set, is the number of kills midway of TestKilledPipelinesEndTheSame: more than everyday tests have time for.
const killedEnv = "PLIMSOLL_KILLS"

// Runs on 4 devices that are killed at any instant and resumed end with the weights of one that was left alone, bit for bit.
// After a SIGKILL of one process with several devices, only this test finds shards that belong to different steps.
func TestKilledPipelinesEndTheSame(t *testing.T) {
	t.Parallel()
	const steps, evaluations = 240, 3
	kills := 4
	if text := os.Getenv(killedEnv); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s is %q: give a number", killedEnv, text)
		}
	}
	r := rand.New(rand.NewPCG(9, 1))
	killed, midway := 0, 0
	for round := 0; midway < kills; round++ {
		strategy := []string{"1f1b-flush", "1f1b*", "gpipe", "madpipe"}[round%4]
		args := onDevices(4, strategy, steps, "--checkpoint-every", "12", "--eval-every", "100")
		alone := filepath.Join(t.TempDir(), "alone")
		want := weights(t, works(t, append(slices.Clone(args), "--out", alone)...).out)
		out := filepath.Join(t.TempDir(), "run")
		copyPlan(t, alone, out) // as measured times would give another
		line := append(slices.Clone(args), "--out", out, "--resume")
		for done := false; !done; {
			p := start(t, line...)
			if at := logged(out) + 1 + r.IntN(steps/4); midway < kills && at < steps {
				p.reaches(out, at)
				time.Sleep(time.Duration(r.IntN(8000)) * time.Microsecond)
				_ = p.Process.Kill() // it may have ended
			}
			switch code := p.end(); code {
			case exitOK:
				done = true
				if got := weights(t, p.out.String()); got != want {
					t.Errorf("%s: weights %s, left alone %s", strategy, got, want)
				}
				wantPipeLog(t, out, logged(alone)-evaluations)
			case -1:
				killed++
				if n := logged(out); n > 0 && n < steps {
					midway++
				}
			default:
				t.Fatalf("%s: exit code %d: %s", strategy, code, p.err.String())
			}
		}
		if a, b := read(t, filepath.Join(out, finalFile)), read(t, filepath.Join(alone, finalFile)); a != b {
			t.Errorf("%s: %s differs", strategy, finalFile)
		}
	}
	t.Logf("%d kills, %d of them between the first step and the last", killed, midway)
}

// copyPlan gives a run's folder the chain and the plan of another one.
func copyPlan(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chain.json", "plan.json"} {
		write(t, filepath.Join(to, name), read(t, filepath.Join(from, name)))
	}
}

// A run goes on under a plan whose updates take several steps, wherever it was interrupted.
func TestResumeWhereUpdatesTakeSteps(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	works(t, onDevices(2, "1f1b*", 7, "--versions", "stash", "--lr-schedule", "constant", "--checkpoint-every", "7", "--out", out)...)
	for i, strategy := range []string{"madpipe", "contiguous"} {
		steps := 13 + 27*i
		args := slices.DeleteFunc(onDevices(4, strategy, steps, "--lr-schedule", "constant", "--checkpoint-every", "50", "--out", out, "--resume"), func(s string) bool { return s == "-q" })
		r := works(t, args...)
		var o train.Summary
		if err := json.Unmarshal([]byte(r.out), &o); err != nil || o.ResumedFrom < 7 || o.Steps < steps || (o.Steps-o.ResumedFrom)%o.Pipe.UpdateSteps != 0 || o.HostBytes == 0 {
			t.Errorf("%s: %v\n%s%s", strategy, err, r.err, r.out)
		}
		if o.Steps > steps && !strings.Contains(r.err, fmt.Sprintf("%d steps in place of %d", o.Steps, steps)) {
			t.Errorf("%s: %s", strategy, r.err)
		}
		wantPipeLog(t, out, o.Steps)
	}
}

// An asynchronous run goes on along the plan in its folder, whatever was measured since; with other flags it is planned anew
// and says so.
func TestResumedPipelinesKeepTheirPlan(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	args := slices.DeleteFunc(onDevices(3, "1f1b*", 6, "--option", "profile.no-cache", "--out", out, "--checkpoint-every", "3"), func(s string) bool { return s == "-q" })
	works(t, args...)
	plan := read(t, filepath.Join(out, "plan.json"))
	more := slices.Clone(args)
	more[slices.Index(more, "--steps")+1] = "12"
	if r := works(t, append(slices.Clone(more), "--resume")...); strings.Contains(r.err, "measuring") || read(t, filepath.Join(out, "plan.json")) != plan {
		t.Errorf("planned anew: %s", r.err)
	}
	more[slices.Index(more, "--devices")+1] = "cpu*2"
	more[slices.Index(more, "--steps")+1] = "16"
	r := works(t, append(more, "--resume")...)
	if !strings.Contains(r.err, "planned anew") || !strings.Contains(r.out, `"resumed_from": 1`) {
		t.Errorf("%s%s", r.err, r.out)
	}
}

// Ctrl-C finishes a step that has a flush, and lets the pipeline of an asynchronous run empty. Both save where they stopped, say so, and
// go on from there.
func TestInterruptedPipelines(t *testing.T) {
	t.Parallel()
	for i, strategy := range []string{"1f1b-flush", "1f1b*", "madpipe"} {
		out := filepath.Join(t.TempDir(), "run")
		args := slices.DeleteFunc(onDevices(2, strategy, 1_200_000, "--out", out), func(s string) bool { return s == "-q" })
		p := start(t, args...)
		p.until(out, 25)
		if err := p.Process.Signal([]os.Signal{syscall.SIGINT, syscall.SIGTERM}[i%2]); err != nil {
			t.Fatal(err)
		}
		code, text := p.end(), p.err.String()
		done := logged(out)
		if want := fmt.Sprintf("interrupted after %d of 1200000 steps; they are saved: the same command with --resume", done); code != exitFailed || !strings.Contains(text, want) || p.out.Len() > 0 {
			t.Fatalf("%s: exit code %d: %s; want %s", strategy, code, text, want)
		}
		if !strings.Contains(text, "what has begun is finished first; a second signal ends the run at once") {
			t.Errorf("%s: %s", strategy, text)
		}
		args[slices.Index(args, "--steps")+1] = strconv.Itoa(done + 4)
		r := works(t, append(slices.DeleteFunc(args, func(s string) bool { return s == "--lr-schedule" || s == "cosine" }), "--resume")...)
		if !strings.Contains(r.out, fmt.Sprintf(`"resumed_from": %d`, done)) || !strings.Contains(r.err, fmt.Sprintf("%d of %d steps are done", done, done+4)) {
			t.Errorf("%s: %s%s", strategy, r.err, r.out)
		}
	}
}

// The metrics have each device's memory.
func TestMetricsOfDevices(t *testing.T) {
	t.Parallel()
	r := &train.Run{Job: &train.Job{}, Plan: &train.JobPlan{Plan: &pipeline.Plan{}, Needs: []pipe.Memory{{Peak: 10}, {Peak: 20}}}, Steps: 5}
	families, err := newMetrics(r).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		if f.GetName() != "plimsoll_device_peak_bytes" {
			continue
		}
		for i, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == strconv.Itoa(i) && m.GetGauge().GetValue() == float64(10*(i+1)) {
				found++
			}
		}
	}
	if found != 2 {
		t.Errorf("%d devices have their peak", found)
	}
}

// A run on several devices resumes from the newest checkpoint that has the files of all stages, also on other devices. It names the
// checkpoints that it skips. If no checkpoint is complete, a run that has ended begins anew only with --force.
func TestResumedFromShards(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	args := slices.DeleteFunc(onDevices(2, "gpipe", 8, "--out", out, "--checkpoint-every", "4", "--microbatches", "4"), func(s string) bool { return s == "-q" })
	want := weights(t, works(t, args...).out)
	shard := func(step int) string {
		return filepath.Join(out, checkpoints, fmt.Sprintf("step-%d", step), "stage-1.safetensors")
	}
	unfinish(t, out)
	if err := os.Remove(shard(8)); err != nil {
		t.Fatal(err)
	}
	on4 := append(slices.Clone(args), "--resume")
	on4[slices.Index(on4, "--devices")+1] = "cpu*4"
	r := works(t, on4...)
	if weights(t, r.out) != want || !strings.Contains(r.out, `"resumed_from": 4`) || !strings.Contains(r.err, "step-8: the checkpoint is incomplete: of 2 shards it has not stage-1.safetensors") {
		t.Errorf("%s%s", r.err, r.out)
	}
	unfinish(t, out)
	for _, step := range []int{4, 8} {
		if err := os.Remove(shard(step)); err != nil {
			t.Fatal(err)
		}
	}
	if r := plimsoll(t, append(slices.Clone(args), "--resume")...); r.code != exitUsage || !strings.Contains(r.err, "left no checkpoint to go on from") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	r = works(t, append(args, "--force")...)
	if weights(t, r.out) != want || !strings.Contains(r.out, `"resumed_from": 0`) {
		t.Errorf("%s%s", r.err, r.out)
	}
}

// --zero divides the optimizer's state, and the sums of gradients, among the replicas of a stage. Devices need less, as predicted, and no bit
// changes where each replica has one microbatch. Where nothing
// can be divided it is refused. The devices run an op each at once, so that replicas are worth it.
func TestZero(t *testing.T) {
	t.Parallel()
	line := []string{"train", "--json", "-q", "-m", "mlp", "--image", "32", "--batch", "32", "--microbatches", "2", "--devices", "cpu*2", "--strategy", "joint-flush",
		"--optimizer", "adam", "--lr", "0.001", "--steps", "3", "--option", "profile.steps=1", "--option", "platform.ops-at-once=2", "--debug", "threads=1"}
	all := summaryOf(t, works(t, line...).out)
	divided := summaryOf(t, works(t, append(line, "--zero", "1")...).out)
	if divided.WeightsSHA256 != all.WeightsSHA256 || divided.MeasuredPeakBytes >= all.MeasuredPeakBytes || divided.MeasuredPeakBytes != divided.PredictedPeakBytes {
		t.Errorf("weights %s, peak %d of %d predicted; undivided %s, %d", divided.WeightsSHA256, divided.MeasuredPeakBytes, divided.PredictedPeakBytes,
			all.WeightsSHA256, all.MeasuredPeakBytes)
	}
	blocks := slices.Concat(line, []string{"-m", "gpt2-4-256-untied", "--image", "64", "--batch", "2", "--data", "text:../../README.md"}) // stages that can be divided
	divided = summaryOf(t, works(t, append(blocks, "--zero", "1")...).out)
	passing := summaryOf(t, works(t, append(blocks, "--zero", "2")...).out)
	if passing.WeightsSHA256 != divided.WeightsSHA256 || passing.MeasuredPeakBytes >= divided.MeasuredPeakBytes || passing.MeasuredPeakBytes != passing.PredictedPeakBytes {
		t.Errorf("with --zero 2: weights %s, peak %d of %d predicted; with --zero 1 %s, %d", passing.WeightsSHA256, passing.MeasuredPeakBytes, passing.PredictedPeakBytes,
			divided.WeightsSHA256, divided.MeasuredPeakBytes)
	}
	fetching := summaryOf(t, works(t, append(blocks, "--zero", "3")...).out)
	if fetching.WeightsSHA256 != passing.WeightsSHA256 || fetching.MeasuredPeakBytes >= passing.MeasuredPeakBytes || fetching.MeasuredPeakBytes != fetching.PredictedPeakBytes {
		t.Errorf("with --zero 3: weights %s, peak %d of %d predicted; with --zero 2 %s, %d", fetching.WeightsSHA256, fetching.MeasuredPeakBytes, fetching.PredictedPeakBytes,
			passing.WeightsSHA256, passing.MeasuredPeakBytes)
	}
	for _, bad := range [][]string{append(line, "--zero", "4"), {"train", "-m", "mlp", "--devices", "cpu*2", "--strategy", "pipedream", "--zero", "1"}} {
		if r := plimsoll(t, bad...); r.code != exitUsage || !strings.Contains(r.err, "--zero") {
			t.Errorf("%v: exit code %d: %s", bad, r.code, r.err)
		}
	}
}

// --offload-state optimizer lets the host have the state of all devices: they need less, as predicted, and no bit changes, also from a plan
// file. A plan that leaves the state on the devices is refused.
func TestStateOnTheHost(t *testing.T) {
	t.Parallel()
	line := []string{"train", "--json", "-q", "-m", "mlp", "--image", "32", "--batch", "32", "--microbatches", "2", "--devices", "cpu*2", "--strategy", "1f1b-flush",
		"--optimizer", "adam", "--lr", "0.001", "--steps", "3", "--option", "profile.steps=1", "--debug", "threads=1"}
	on := summaryOf(t, works(t, line...).out)
	host := summaryOf(t, works(t, append(line, "--offload-state", "optimizer")...).out)
	if host.WeightsSHA256 != on.WeightsSHA256 || host.MeasuredPeakBytes >= on.MeasuredPeakBytes || host.MeasuredPeakBytes != host.PredictedPeakBytes {
		t.Errorf("weights %s, peak %d of %d predicted; on devices %s, %d", host.WeightsSHA256, host.MeasuredPeakBytes, host.PredictedPeakBytes, on.WeightsSHA256, on.MeasuredPeakBytes)
	}
	dir := t.TempDir()
	c, p := filepath.Join(dir, "c.json"), filepath.Join(dir, "p.json")
	works(t, "profile", "-m", "mlp", "--image", "32", "--batch", "16", "--optimizer", "adam", "--option", "profile.steps=1", "--debug", "threads=1", "-q", "-o", c)
	plan := []string{"plan", "-c", c, "--devices", "2", "--strategy", "1f1b-flush", "--microbatches", "2", "--accounting", "saved", "-o", p}
	if r := works(t, append(plan, "--offload-state", "optimizer")...); !strings.Contains(r.out, "the host has the optimizer's state and updates") {
		t.Errorf("%s", r.out)
	}
	i := slices.Index(line, "--microbatches")
	line = slices.Delete(line, i, i+2)
	line[slices.Index(line, "--strategy")], line[slices.Index(line, "1f1b-flush")] = "--plan", p
	line = append(line, "--profile", c) // by whose times the plan keeps the rules
	if got := summaryOf(t, works(t, line...).out); got.WeightsSHA256 != on.WeightsSHA256 || got.MeasuredPeakBytes != got.PredictedPeakBytes {
		t.Errorf("of a plan file: weights %s, peak %d of %d predicted", got.WeightsSHA256, got.MeasuredPeakBytes, got.PredictedPeakBytes)
	}
	again := append(slices.Clone(line[:i]), line[slices.Index(line, "--optimizer"):]...)
	again = append(again, "--devices", "cpu*2", "--strategy", "1f1b-flush", "--microbatches", "2", "--out", filepath.Join(dir, "run"))
	works(t, append(again, "--checkpoint-every", "1")...)
	if got := summaryOf(t, works(t, append(again, "--resume", "--steps", "4", "--offload-state", "optimizer")...).out); got.MeasuredPeakBytes >= on.MeasuredPeakBytes {
		t.Errorf("a run that goes on takes %d bytes, before %d", got.MeasuredPeakBytes, on.MeasuredPeakBytes)
	}
	works(t, plan...)
	if r := plimsoll(t, append(line, "--offload-state", "optimizer")...); r.code != exitUsage || !strings.Contains(r.err, "plan again with it") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

// Without --microbatches a step has as many as divide the batch, at most two a device.
func TestMicrobatchesDivideTheBatch(t *testing.T) {
	t.Parallel()
	for batch, want := range map[string]float64{"8": 4, "12": 6, "7": 1} {
		o := object(t, "train", "-m", "tiny", "--image", "16", "--batch", batch, "--steps", "1", "--devices", "cpu*3", "--strategy", "gpipe", "--option", "profile.steps=1")
		if got := o["pipeline"].(map[string]any)["microbatches"]; got != want {
			t.Errorf("batch %s: %v microbatches, want %v", batch, got, want)
		}
	}
}

// Default strategies divide no updates where a run could not save them: in several processes that save checkpoints.
func TestUpdatesThatAreNotDivided(t *testing.T) {
	t.Parallel()
	c := &trainCommand{}
	for _, step := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"one process", func() {}, false},
		{"one process with --out", func() { c.keep.out.path = "run" }, false},
		{"several processes with --out", func() { c.processes = &train.World{} }, true},
		{"several processes without --out", func() { c.keep.out.path = "" }, false},
		{"Muon", func() { c.job.optimizer = "muon" }, true},
	} {
		if step.change(); c.wholeUpdates() != step.want {
			t.Errorf("%s: want whole updates %t", step.name, step.want)
		}
	}
}
