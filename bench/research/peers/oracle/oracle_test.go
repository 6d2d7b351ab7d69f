// Package oracle trains through the built program, and in PyTorch float64 beside it, and compares the weights of both:
// bench/research/peers/src/torch_oracle.py.
package oracle

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/bench/research/peers/internal/worker"
	"plimsoll/models/data"
)

var report = flag.String("out", "", "file to write the table of ratios to")

const (
	// mostNoise is the largest ratio of our distance from float64 to that of PyTorch's float32. Both are sums of random roundings, and one
	// run of float32 is one draw of them: in a tensor of few elements it may be a few times luckier. Weights of another version, or a
	// cosine over all steps, give ratios of 7,000 and more. A decay of biases gives 200 and more, and 0.9991 instead of 0.999 as Adam's
	// second decay gives 56.
	mostNoise = 10
	// mostBlunt keeps cases sharp: an activation that float32 moves across ReLU's kink makes other gradients, and Adam and Muon make the most
	// of them.
	mostBlunt = 0.05
	// wantCases is asserted, so that no case is left out in silence.
	wantCases = 135
	steps     = 8
	warmup    = 2
)

// subject is a model and the batches that it trains on.
type subject struct {
	Model   string `json:"model"`
	Classes int    `json:"classes"`
	Shape   []int  `json:"shape"` // of a batch: N,T of tokens, N,H,W,C of images
	set     string
	tied    bool // its weights are shared by layers, which keeps it on one device
}

var subjects = []subject{
	{"gpt2-2-16", 256, []int{8, 16}, "opticks", false},
	{"gpt2-2-16-tied", 256, []int{8, 16}, "opticks", true},
	{"llama-2-16", 256, []int{8, 16}, "opticks", false},
	{"resnet20", 10, []int{8, 8, 8, 3}, "digits", false},
}

// rule is an optimizer with its rate. All else is as the program has it unless told.
type rule struct {
	name  string
	rate  float64
	flags []string
}

var rules = []rule{
	{"sgd", 0.05, []string{"--optimizer", "sgd", "--option", "sgd.momentum=0"}},
	{"momentum", 0.05, []string{"--optimizer", "sgd"}},
	{"adam", 0.01, []string{"--optimizer", "adam"}},
	{"adamw", 0.01, []string{"--optimizer", "adamw"}},
	{"muon", 0.02, []string{"--optimizer", "muon"}},
}

// way is how a model is trained: in how many parts of a step, by gradients of which norm at most, with which weights, and where.
type way struct {
	name     string
	parts    int
	clip     float64
	versions string
	flags    []string
}

var ways = []way{
	{"one device", 1, 0, "", []string{"--strategy", "store-all"}},
	{"rotor, 90 %", 1, 0, "", []string{"--strategy", "rotor", "--memory", "90%"}},
	{"accumulate 4", 4, 0, "", []string{"--strategy", "store-all", "--accumulate", "4"}},
	{"flush", 4, 0, "", []string{"--devices", "cpu*2", "--strategy", "1f1b-flush", "--microbatches", "4"}},
	{"flush, clipped", 4, 0.5, "", []string{"--devices", "cpu*2", "--strategy", "1f1b-flush", "--microbatches", "4", "--clip-norm", "0.5"}},
	{"chimera", 4, 0, "", []string{"--devices", "cpu*2", "--strategy", "chimera", "--microbatches", "4"}},
	{"stash", 1, 0, "stash", []string{"--devices", "cpu*2", "--strategy", "1f1b*", "--versions", "stash"}},
	{"double buffered", 1, 0, "double_buffered", []string{"--devices", "cpu*2", "--strategy", "1f1b*", "--versions", "double_buffered"}},
}

// takes tells whether a model can be trained in a way.
func (w way) takes(s subject) bool { return !s.tied || !slices.Contains(w.flags, "--devices") }

// run is one training: case.json.
type run struct {
	Optimizer string  `json:"optimizer"`
	Rate      float64 `json:"rate"`
	Warmup    int     `json:"warmup"`
	Steps     int     `json:"steps"`
	Parts     int     `json:"parts"`
	Clip      float64 `json:"clip"`
	Versions  string  `json:"versions"`
}

// verdict is PyTorch's answer, by the name of a tensor, or losses.
type verdict map[string]distances

// distances are largest ones, from PyTorch's float64, but for the largest element.
type distances struct{ Ours, Noise, Largest, Went float64 }

// ratio compares ours with that of float32, which counts as an ulp of the largest element at least.
func (d distances) ratio() float64 {
	if d.Ours == 0 {
		return 0
	}
	return d.Ours / max(d.Noise, d.Largest*0x1p-23)
}

// worst returns the tensor with the largest ratio, and the noise as a share of how far the weights went.
func (v verdict) worst() (tensor string, blunt float64) {
	var noise, went float64
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if tensor == "" || !(v[name].ratio() <= v[tensor].ratio()) { // a ratio that is no number is the worst
			tensor = name
		}
		if name != "losses" && !strings.HasSuffix(name, "num_batches_tracked") {
			noise, went = max(noise, v[name].Noise), max(went, v[name].Went)
		}
	}
	return tensor, noise / went
}

// TestTrainingIsPyTorchs finds errors of properties that hold in each part alone, but not from the command line on. Such properties are the
// defaults of flags, the rate of a step, the weight of a microbatch, and the version of the weights that a stage sees.
func TestTrainingIsPyTorchs(t *testing.T) {
	torch := worker.Start(t, "../src/torch_oracle.py")
	folder := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(folder, "cache"))
	program := build(t, folder)
	cases := map[string]figures{}
	var version struct{ Torch string }
	for _, s := range subjects {
		home := filepath.Join(folder, s.Model)
		s.write(t, home)
		answer(t, torch, "draw", home, &version)
		for _, r := range rules {
			for _, w := range ways {
				if !w.takes(s) {
					continue
				}
				name := strings.Join([]string{s.Model, r.name, w.name}, "/")
				t.Run(name, func(t *testing.T) { cases[name] = compare(t, torch, program, home, s, r, w) })
			}
		}
	}
	if part := flag.Lookup("test.run").Value.String(); len(cases) != wantCases && !strings.Contains(part, "/") {
		t.Errorf("%d cases ran to their end, want %d", len(cases), wantCases)
	}
	text := table(version.Torch, cases)
	t.Log("\n" + text)
	if *report != "" && !t.Failed() {
		if err := os.WriteFile(*report, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// build returns the program, that of PLIMSOLL_PROGRAM if it is set.
func build(t *testing.T, folder string) string {
	t.Helper()
	if given := os.Getenv("PLIMSOLL_PROGRAM"); given != "" {
		return given
	}
	to := filepath.Join(folder, "plimsoll")
	if out, err := exec.Command("go", "build", "-o", to, "plimsoll/cmd/plimsoll").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// answer asks PyTorch about a folder.
func answer(t *testing.T, torch *worker.Worker, what, folder string, to any) {
	t.Helper()
	if err := json.Unmarshal(torch.Ask(t, what+" "+folder), to); err != nil {
		t.Fatal(err)
	}
}

// write makes the folder of a model, with the batches of all steps.
func (s subject) write(t *testing.T, home string) {
	t.Helper()
	o := data.Options{Seed: 1, Length: s.Shape[1]}
	if len(s.Shape) == 4 {
		o = data.Options{Seed: 1, Image: s.Shape[1], Channels: s.Shape[3]}
	}
	set, err := data.Open(s.set, o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := data.NewBatcher(set, data.Train, s.Shape[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	size := 1
	for _, n := range s.Shape {
		size *= n
	}
	samples, labels := make([]float32, size), make([]int32, s.Shape[0]*data.Labels(set))
	var allSamples, allLabels []byte // tokens are the bits of floats
	for step := range int64(steps) {
		if _, err := b.Fill(step, samples, labels); err != nil {
			t.Fatal(err)
		}
		allSamples, _ = binary.Append(allSamples, binary.LittleEndian, samples)
		allLabels, _ = binary.Append(allLabels, binary.LittleEndian, labels)
	}
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	writeJSON(t, filepath.Join(home, "model.json"), s)
	write(t, filepath.Join(home, "samples.bin"), allSamples)
	write(t, filepath.Join(home, "labels.bin"), allLabels)
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// figures are the largest ratio of a case, and its noise as a share of how far the weights went.
type figures struct{ ratio, blunt float64 }

// compare trains on both sides.
func compare(t *testing.T, torch *worker.Worker, program, home string, s subject, r rule, w way) figures {
	folder := filepath.Join(home, fmt.Sprintf("%s, %s", r.name, w.name))
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	writeJSON(t, filepath.Join(folder, "case.json"), run{r.name, r.rate, warmup, steps, w.parts, w.clip, w.versions})
	args := slices.Concat([]string{
		"train", "-m", s.Model, "--data", s.set, "--batch", strconv.Itoa(s.Shape[0]), "--steps", strconv.Itoa(steps), "--debug", "threads=1",
		"--lr", fmt.Sprint(r.rate), "--lr-schedule", "cosine", "--warmup", strconv.Itoa(warmup), "--quiet", "--json",
		"--init", filepath.Join(home, "first.safetensors"), "--out", filepath.Join(folder, "run"), s.size(), strconv.Itoa(s.Shape[1]),
	}, r.flags, w.flags)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	var v verdict
	answer(t, torch, "judge", folder, &v)
	tensor, blunt := v.worst()
	d := v[tensor]
	if len(v) < 20 || !(d.ratio() <= mostNoise) {
		t.Errorf("%s (of %d tensors) is %.3g away from PyTorch's float64, whose largest element is %.3g; PyTorch's float32 is %.3g away: %s",
			tensor, len(v), d.Ours, d.Largest, d.Noise, strings.Join(args, " "))
	}
	if !(blunt <= mostBlunt) {
		t.Errorf("the noise is %.3g of how far the weights went: nothing is compared", blunt)
	}
	return figures{d.ratio(), blunt}
}

// size is the flag of the extent of samples.
func (s subject) size() string {
	if len(s.Shape) == 4 {
		return "--image"
	}
	return "--length"
}

// table shows the ratio of each case.
func table(torch string, cases map[string]figures) string {
	var b strings.Builder
	blunt := 0.0
	for _, f := range cases {
		blunt = max(blunt, f.blunt)
	}
	fmt.Fprintf(&b, `# Training beside PyTorch in float64

Question: is `+"`plimsoll train`"+` as near to float64 as PyTorch's float32?

    make test-oracle

PyTorch %s, on an Intel Xeon with 2 cores and AVX-512. A case is a run of %d steps with a warm-up and a cosine, from weights that PyTorch
drew. PyTorch trains on the same batches in float64 and float32, with the versions of weights that each stage of plan.json has
(bench/research/peers/src/torch_oracle.py). A ratio is our largest distance from float64 over the larger one of PyTorch's float32 and an ulp
of the largest element. Float32's distance is the most of three draws, two with weights moved by up to half an ulp. The table has the
largest ratio of a case; at most %d is wanted. Float32's noise is at most %.2g of the largest distance that weights go; at most %v is wanted.
The %d cases:

| model | optimizer |`, torch, steps, mostNoise, blunt, mostBlunt, len(cases))
	for _, w := range ways {
		fmt.Fprintf(&b, " %s |", w.name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(ways)) + "\n")
	for _, s := range subjects {
		for _, r := range rules {
			fmt.Fprintf(&b, "| %s | %s |", s.Model, r.name)
			for _, w := range ways {
				cell := " "
				if f, ran := cases[strings.Join([]string{s.Model, r.name, w.name}, "/")]; ran {
					cell = fmt.Sprintf(" %.2f ", f.ratio)
				}
				b.WriteString(cell + "|")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
