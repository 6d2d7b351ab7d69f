//go:build cuda && linux && amd64

package main

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"plimsoll/internal/freeport/freeporttest"
	"plimsoll/kernels/cuda/nvidia/fake"
	"plimsoll/runtime/cuda/cudatest"
	cuda "plimsoll/runtime/cuda/driver"
)

// GPUs of several processes train the bits of one process that has them all, and take the same memory; each process has taken a GPU of
// its own. Where one dies the other one says so.
func TestGPUsOfProcesses(t *testing.T) {
	if status := cuda.Load(); status.Err != nil || status.Devices < 2 {
		t.Skip("needs two GPUs: ", status.Err)
	}
	transports := [][]string{{"--transport", "tcp"}}
	if os.Getenv("PLIMSOLL_NCCL") != "" {
		transports = append(transports, []string{"--transport", "nccl"})
	}
	for _, transport := range transports {
		for _, strategy := range [][]string{{"--strategy", "1f1b-flush", "--microbatches", "4"}, {"--strategy", "contiguous", "--versions", "stash"}} {
			t.Run(transport[1]+"/"+strategy[1], func(t *testing.T) { gpusOfProcesses(t, transport, strategy...) })
		}
	}
}

func gpusOfProcesses(t *testing.T, transport []string, more ...string) {
	args := []string{"-m", "tiny", "--data", "glyphs", "--image", "16", "--batch", "8", "--debug", "threads=1", "--option", "profile.steps=1", "--debug", "device-memory=1GiB"}
	args = append(args, more...)
	want := summaryOf(t, works(t, append([]string{"train", "--json", "--devices", "cuda:0*2", "--steps", "3"}, args...)...).out)
	args = append(args, transport...)
	p := inProcesses(t, 2, append(args, "--devices", "cuda", "--steps", "3")...)
	p.start()
	p.ends(0)
	got := summaryOf(t, p.out.String())
	if got.WeightsSHA256 != want.WeightsSHA256 || got.Loss != want.Loss {
		t.Errorf("two processes: weights %s, loss %v; one: %s, %v", got.WeightsSHA256, got.Loss, want.WeightsSHA256, want.Loss)
	}
	for i, d := range want.Pipe.Devices {
		if x := got.Pipe.Devices[i]; x.PeakBytes != d.PeakBytes || x.MeasuredPeakBytes != d.MeasuredPeakBytes {
			t.Errorf("device %d: %+v, in one process %+v", i, x, d)
		}
	}
	if names := got.Pipe.Devices[0].Name + "; " + got.Pipe.Devices[1].Name; names != "rank 0, cuda:0; rank 1, cuda:1" {
		t.Errorf("devices: %s", names)
	}
	out := filepath.Join(t.TempDir(), "run")
	p = inProcesses(t, 2, append(args, "--devices", "cuda", "--steps", "100000", "--out", out)...)
	p.start()
	p.until(out, 3)
	if err := syscall.Kill(p.second(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p.ends(128 + 9)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if text := p.err.String(); !regexp.MustCompile(`rank 1 on \S+ died: its connection was lost; the last it said: `).MatchString(text) {
		t.Errorf("%s", text)
	}
}

// chooser begins runs on an emulated GPU with fakes of NVIDIA's libraries, which repeat the choices of a file.
type chooser struct {
	t             *testing.T
	libraries     string
	first, other  string   // files whose choices differ wherever there is a choice
	args, devices []string // of every run; of one process
	want          string   // weights with first
}

// newChooser trains once with each file. That their weights differ is what lets a test fail.
func newChooser(t *testing.T) *chooser {
	if status := cuda.Load(); status.Err != nil || !cudatest.Emulated() {
		t.Skip("needs the emulated driver, for which NVIDIA's libraries can be faked: ", status.Err)
	}
	dir := t.TempDir()
	c := &chooser{t: t, libraries: fake.Build(t, fake.CuDNN, fake.CuBLAS), first: filepath.Join(dir, "first.json"), other: filepath.Join(dir, "other.json")}
	c.args = []string{"train", "--json", "-m", "tiny", "--data", "digits", "--image", "8", "--batch", "4", "--debug", "threads=1", "--option", "profile.steps=1",
		"--debug", "device-memory=1GiB", "--strategy", "1f1b-flush", "--microbatches", "2"}
	c.devices = []string{"--devices", "cuda:0*2", "--steps", "2"}
	c.want = c.weights(c.begin(c.first, c.devices...))
	chooseOthers(t, c.first, c.other)
	if c.weights(c.begin(c.other, c.devices...)) == c.want {
		t.Fatal("other algorithms give the same weights, so this test cannot fail")
	}
	return c
}

func (c *chooser) begin(choices string, more ...string) *process {
	p := program(c.t, nil, append(slices.Clone(c.args), more...)...)
	p.Env = append(p.Env, "PLIMSOLL_SECRET=", "PLIMSOLL_CUDA_LIBRARIES="+c.libraries, "PLIMSOLL_CUDA_CHOICES="+choices)
	p.start()
	return p
}

func (c *chooser) weights(p *process) string {
	p.ends(0)
	return summaryOf(c.t, p.out.String()).WeightsSHA256
}

// TestGPUsOfProcessesRepeatChoices: all processes compute with the algorithms that rank 0 has chosen, and so does a run that goes on,
// though each would choose others by its own file. So they train the bits of one process with rank 0's choices. Nothing else runs vendors'
// libraries in several processes.
func TestGPUsOfProcessesRepeatChoices(t *testing.T) {
	t.Parallel()
	c := newChooser(t)
	together := []string{"--world", "2", "--option", "world.master=" + freeporttest.Address(t), "--devices", "cuda:0", "--steps", "2", "--option"}
	rank0, rank1 := c.begin(c.first, append(together, "world.rank=0")...), c.begin(c.other, append(together, "world.rank=1")...)
	rank1.ends(0)
	if got := c.weights(rank0); got != c.want {
		t.Errorf("two processes that would choose different algorithms have weights %s, one process with rank 0's choices %s", got, c.want)
	}
	out := []string{"--out", filepath.Join(t.TempDir(), "run"), "--checkpoint-every", "1"}
	c.begin(c.first, append(out, "--devices", "cuda:0*2", "--steps", "1")...).ends(0)
	if got := c.weights(c.begin(c.other, append(append(out, "--resume"), c.devices...)...)); got != c.want {
		t.Errorf("a run that goes on where other algorithms would be chosen has weights %s, one that was never stopped %s", got, c.want)
	}
}

// chooseOthers writes a file of choices that take another algorithm wherever the first file had several.
func chooseOthers(t *testing.T, first, other string) {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(read(t, first)), &list); err != nil || len(list) == 0 {
		t.Fatalf("%d choices: %v", len(list), err)
	}
	for _, choice := range list {
		ran := slices.Sorted(maps.Keys(choice["microseconds"].(map[string]any)))
		i := slices.Index(ran, choice["algorithm"].(string))
		choice["algorithm"] = ran[(i+1)%len(ran)]
	}
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(other, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// With sums by NCCL, a pair of replicas trains the bits of one process, because two numbers have one sum. More replicas train the same
// weights but for rounding. The run reports the sums by NCCL. Where one process dies, the others report it.
func TestGPUsOfProcessesSumByNCCL(t *testing.T) {
	if status := cuda.Load(); status.Err != nil || os.Getenv("PLIMSOLL_NCCL") == "" || !cudatest.Emulated() && status.Devices < 4 {
		t.Skip("needs four GPUs, and $PLIMSOLL_NCCL: ", status.Err)
	}
	for _, c := range []struct {
		strategy []string
		most     float64 // that weights are off, of their norm
	}{{[]string{"--strategy", "chimera", "--microbatches", "4"}, 0}, {[]string{"--strategy", "pipedream"}, 1e-6}} {
		t.Run(c.strategy[1], func(t *testing.T) { sumByNCCL(t, c.most, c.strategy...) })
	}
}

func sumByNCCL(t *testing.T, most float64, more ...string) {
	args := append([]string{"-m", "tiny", "--data", "digits", "--image", "8", "--batch", "8", "--debug", "threads=1", "--option", "profile.steps=1", "--debug", "device-memory=1GiB"}, more...)
	dir := t.TempDir()
	one, all, dying := filepath.Join(dir, "one"), filepath.Join(dir, "all"), filepath.Join(dir, "dying")
	works(t, append([]string{"train", "--devices", "cuda:0*4", "--steps", "4", "--out", one}, args...)...)
	args = append(args, "--transport", "nccl", "--option", "world.allreduce=nccl", "--devices", "cuda", "--profile", filepath.Join(one, "chain.json"))
	start := func(more ...string) *process {
		p := inProcesses(t, 4, append(more, args...)...)
		p.Env = append(p.Env, "PLIMSOLL_EMULATOR_DEVICES=4")
		p.start()
		return p
	}
	p := start("--steps", "4", "--out", all)
	p.ends(0)
	got := summaryOf(t, p.out.String())
	if got.Pipe.Sums != "ncclAllReduce" {
		t.Errorf("sums by %q", got.Pipe.Sums)
	}
	for i, d := range got.Pipe.Devices {
		if d.MeasuredPeakBytes > 0 && d.MeasuredPeakBytes != d.PeakBytes {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	if off := apartBy(t, filepath.Join(one, "final.safetensors"), filepath.Join(all, "final.safetensors")); off > most {
		t.Errorf("weights differ by %g of their norm", off)
	}
	if most > 0 {
		return
	}
	p = start("--steps", "100000", "--out", dying)
	p.until(dying, 3)
	if err := syscall.Kill(p.second(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.ends(128 + 9)
	if text := p.err.String(); !regexp.MustCompile(`\[0\] .*rank 1 on \S+ died: its connection was lost; the last it said: `).MatchString(text) {
		t.Errorf("%s", text)
	}
}

// apartBy returns the norm of the difference of the float32 numbers in two files of one layout, in that of the first ones'.
func apartBy(t *testing.T, a, b string) float64 {
	x, y := read(t, a), read(t, b)
	n := 8 + int(binary.LittleEndian.Uint64([]byte(x[:8])))
	if len(x) != len(y) || x[:8] != y[:8] || len(x) <= n {
		t.Fatalf("%s has %d bytes, %s %d", a, len(x), b, len(y))
	}
	var off, all float64
	for ; n < len(x); n += 4 {
		number := func(of string) float64 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32([]byte(of[n : n+4]))))
		}
		u, v := number(x), number(y)
		off, all = off+(u-v)*(u-v), all+u*u
	}
	return math.Sqrt(off / all)
}
