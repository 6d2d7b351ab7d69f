package estimate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/estimate"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/planner/chain"
)

// open returns a device of the program.
func open(t testing.TB, name string) *estimate.Device {
	t.Helper()
	d, err := estimate.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// workload compiles a model for a device.
func workload(t testing.TB, d *estimate.Device, model string, c models.Config, u kernels.Update) *executor.Workload {
	t.Helper()
	m, err := models.New(model, c)
	if err != nil {
		t.Fatal(err)
	}
	target, err := d.Target()
	if err != nil {
		t.Fatal(err)
	}
	w, err := executor.Compile(m, target.Library, u)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func chainOf(t testing.TB, d *estimate.Device, w *executor.Workload) *chain.Chain {
	t.Helper()
	c, err := d.Chain(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil || !c.Estimated || !strings.Contains(c.Name, "estimated for "+d.Name) {
		t.Fatalf("chain %s, estimated %v: %v", c.Name, c.Estimated, err)
	}
	return c
}

// ideal is a device without launches whose ops reach all of its rates.
func ideal(t testing.TB) *estimate.Device {
	d := *open(t, "h100")
	d.Launch, d.Rows = 0, []estimate.Efficiency{{Arithmetic: 1, Memory: 1}}
	return &d
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-9*want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// If memory takes no time, a step of GPT-2 takes the time of its matrix products. For each token, the forward does 2 operations per weight
// of a matrix, and the backward twice as many. Attention under its mask adds its own products. The formula takes no count from the graph.
func TestProductsOfGPT2(t *testing.T) {
	t.Parallel()
	const batch, length, vocabulary, width, blocks = 2, 64, 100, 32, 3
	d := ideal(t)
	d.Bandwidth = 1e60
	c := chainOf(t, d, workload(t, d, "gpt2-3-32", models.Config{Batch: batch, Image: length, Classes: vocabulary}, kernels.AdamW{}))
	var forward, backward float64
	for i := range c.Layers {
		forward, backward = forward+c.Layers[i].ForwardS, backward+c.Layers[i].BackwardS
		near(t, "a forward that saves nothing", *c.Layers[i].DiscardForwardS, c.Layers[i].ForwardS)
		near(t, "both halves", *c.Layers[i].BackwardInputS+*c.Layers[i].BackwardWeightS, c.Layers[i].BackwardS)
	}
	tokens := float64(batch * length)
	matrices := 2 * tokens * (12*width*width*blocks + width*vocabulary)
	attention := tokens * width * (length + 1) * blocks // a product: half of the scores
	near(t, "forward", forward*d.Rates["float32"], matrices+2*attention)
	near(t, "backward", backward*d.Rates["float32"], 2*matrices+5*attention)
}

// AdamW reads a weight, its gradient and two moments, and writes all but the gradient: 28 bytes a parameter, whatever their layers.
func TestUpdates(t *testing.T) {
	t.Parallel()
	d := ideal(t)
	w := workload(t, d, "gpt2", models.Config{Batch: 1, Image: 8, Classes: 100}, kernels.AdamW{})
	c := chainOf(t, d, w)
	var device, host float64
	for i := range c.Layers {
		device += c.Layers[i].Update.DeviceS
		if s := c.Layers[i].Update.HostS; s != nil {
			host += *s
		}
	}
	bytes := 28 * float64(w.Model.ParamCount())
	near(t, "on the device", device*d.Bandwidth, bytes)
	near(t, "on the host", host*d.HostRate, bytes)
	near(t, "of all layers", executor.UpdateSeconds(c), device)
}

// Matrices of Muon have no update on the host. Where memory takes no time, their updates take as much less as the products of the model's
// type are faster.
func TestUpdatesOfMatrices(t *testing.T) {
	t.Parallel()
	d := ideal(t)
	d.Bandwidth = 1e30
	seconds := map[kernels.DType]float64{}
	for _, dtype := range []kernels.DType{kernels.Float32, kernels.TF32, kernels.BFloat16} {
		config := models.Config{Batch: 1, Image: 8, Classes: 100, DType: dtype}
		muon := chainOf(t, d, workload(t, d, "gpt2-1-32", config, kernels.Muon{Momentum: 0.9, Beta1: 0.9, Beta2: 0.9, Epsilon: 1}))
		l := muon.Layer(2)
		if l.Update.HostS != nil {
			t.Errorf("matrices of Muon take %v on the host", l.Update.HostS)
		}
		seconds[dtype] = l.Update.DeviceS * d.Rates[dtype.String()]
	}
	near(t, "in TF32", seconds[kernels.TF32], seconds[kernels.Float32])
	near(t, "in bfloat16", seconds[kernels.BFloat16], seconds[kernels.Float32])
}

// A call takes the longer of its operations and its bytes at their shares, and a launch. Worked out by hand for a layer of 8 to 4 features.
func TestRoofline(t *testing.T) {
	t.Parallel()
	d := ideal(t)
	d.Launch, d.Rates, d.Bandwidth = 1, map[string]float64{"float32": 100}, 1000
	d.Rows = []estimate.Efficiency{{Op: "linear", Pass: "forward", Arithmetic: 0.5, Memory: 0.25, Launch: 2}, {Arithmetic: 1, Memory: 1}}
	w := workload(t, d, "mlp", models.Config{Batch: 2, Image: 4, Channels: 1, Classes: 4}, kernels.SGD{})
	last := w.Layers[len(w.Layers)-2].Save.Steps // before the loss
	c := chainOf(t, d, w)
	call := last[len(last)-1].Call
	in := float64(call.In[0].Shape[1])
	operations, bytes := 2*2*4*in, 4*(2*in+4*in+4+2*4)
	want := 1 + 2 + max(operations/(100*0.5), bytes/(1000*0.25))
	if call.Op.Kind() != "linear" || len(last) != 1 {
		t.Fatalf("the layer before the loss: %+v", last)
	}
	near(t, "forward", c.Layers[len(c.Layers)-2].ForwardS, want)
}

// The committed measurements of an H100 (bench/results/gpu-h100.md): efficiencies are of single calls of GPT-2 and ResNet-50, and these are
// whole steps. ResNet-101 has no part in the calibration.
func TestEstimatesAreNearMeasurements(t *testing.T) {
	t.Parallel()
	adamw := kernels.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	for _, c := range []struct {
		model                 string
		batch, image, classes int
		update                kernels.Update
		measured              float64 // seconds
		arena                 float64 // GiB, measured
	}{
		{"gpt2", 16, 1024, 50257, adamw, 0.0409, 9.648},
		{"resnet101", 8, 1000, 1000, kernels.SGD{Momentum: 0.9}, 0.0785, 10.18},
	} {
		d := open(t, "h100")
		w := workload(t, d, c.model, models.Config{Batch: c.batch, Image: c.image, Classes: c.classes, DType: kernels.BFloat16}, c.update)
		k := chainOf(t, d, w)
		step := executor.UpdateSeconds(k)
		for i := range k.Layers {
			step += k.Layers[i].ForwardS + k.Layers[i].BackwardS
		}
		if off := step/c.measured - 1; math.Abs(off) > 0.05 {
			t.Errorf("%s: estimated %.4f s, measured %.4f s: %+.1f %%", c.model, step, c.measured, 100*off)
		}
		peak, err := w.PeakBytes(w.StoreAll())
		if gib := float64(peak) / (1 << 30); err != nil || math.Abs(gib/c.arena-1) > 0.01 {
			t.Errorf("%s: the peak is %.3f GiB, measured %.3f GiB; %v", c.model, gib, c.arena, err)
		}
	}
}

// Every figure of a device in the program has a source, the file reads as it was written, and types that it has no rate of are refused.
func TestDevices(t *testing.T) {
	t.Parallel()
	if want := []string{"a100", "h100", "h200", "rtx4090"}; !slices.Equal(estimate.Names(), want) {
		t.Errorf("devices %v, want %v", estimate.Names(), want)
	}
	for _, name := range estimate.Names() {
		d := open(t, name)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var figures map[string]json.RawMessage
		again := new(estimate.Device)
		if err := errors.Join(json.Unmarshal(text, &figures), json.Unmarshal(text, again)); err != nil || !reflect.DeepEqual(d, again) {
			t.Errorf("%s: written and read again: %v", name, err)
		}
		for field := range figures {
			if !slices.Contains([]string{"format", "name", "sources"}, field) && d.Sources[field] == "" {
				t.Errorf("%s: %s has no source", name, field)
			}
		}
		delete(d.Rates, "bfloat16")
		target, err := d.Target()
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.New("tiny", models.Config{Batch: 2, Image: 16, Channels: 3, Classes: 10, DType: kernels.BFloat16})
		if err != nil {
			t.Fatal(err)
		}
		lacks := (*kernels.TypeError)(nil)
		if _, err := executor.Compile(m, target.Library, kernels.SGD{}); !errors.As(err, &lacks) || !strings.Contains(err.Error(), "bfloat16") {
			t.Errorf("%s without a rate of bfloat16: %v", name, err)
		}
	}
}

// Every call of every model is of a kind that an efficiency can name.
func TestKinds(t *testing.T) {
	t.Parallel()
	d, seen := open(t, "h100"), map[string]bool{}
	for _, k := range models.All() {
		w := workload(t, d, k.Name, models.Config{Batch: 2, Image: k.Image, Channels: 3, Classes: k.Classes}, kernels.SGD{})
		for _, l := range w.Layers {
			for _, s := range slices.Concat(l.Save.Steps, l.Back.Steps) {
				seen[s.Call.Op.Kind()] = true
			}
		}
	}
	for kind := range seen {
		if !slices.Contains(kernels.Kinds(), kind) {
			t.Errorf("no kind %s", kind)
		}
	}
	if len(seen) < 15 {
		t.Errorf("only %d kinds", len(seen))
	}
}

// The weights of a model of 70 billion parameters are never there.
func TestLargeModelsTakeNoMemory(t *testing.T) {
	// Serial: it counts what is allocated.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := open(t, "h100")
	w := workload(t, d, "llama-80-8192-64-8-28672", models.Config{Batch: 1, Image: 256, Classes: 128256, DType: kernels.BFloat16}, kernels.AdamW{})
	c := chainOf(t, d, w)
	runtime.ReadMemStats(&after)
	if n := w.Model.ParamCount(); n != 70_553_706_496 {
		t.Errorf("%d parameters", n)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 || c.Len() != 163 {
		t.Errorf("%d layers, %d bytes allocated", c.Len(), took)
	}
}

// whole returns the file of a device, with one text of it replaced.
func whole(t testing.TB, was, now string) []byte {
	t.Helper()
	text, err := os.ReadFile("devices/h100.json")
	if err != nil {
		t.Fatal(err)
	}
	if was != "" && bytes.Count(text, []byte(was)) == 0 {
		t.Fatalf("no %q in the file", was)
	}
	return bytes.Replace(text, []byte(was), []byte(now), 1)
}

// A bad file is refused by one line that names the file, the field and its value.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ was, now, want string }{
		{`"memory_bytes": 80000000000,`, ``, `field "memory_bytes" is missing`},
		{`"memory_bytes": 80000000000,`, `"memory_bytes": -8,`, `field "memory_bytes" is -8, which is negative`},
		{`"memory_bytes": 80000000000,`, `"memory_bytes": 0,`, `field "memory_bytes" is 0, which is not above 0`},
		{`"memory_bandwidth_bytes_per_s": 3350000000000.0`, `"memory_bandwidth_bytes_per_s": 0`, `field "memory_bandwidth_bytes_per_s" is 0, which is not above 0`},
		{`"memory_bandwidth_bytes_per_s": 3350000000000.0`, `"memory_bandwidth_bytes_per_s": 1e999`, `field "memory_bandwidth_bytes_per_s" is 1e999, which is too large`},
		{`"to_host_bytes_per_s": 64000000000.0`, `"to_host_bytes_per_s": "64GB/s"`, `field "to_host_bytes_per_s" is "64GB/s", which is not a number`},
		{`"duplex": true`, `"duplex": 2`, `field "duplex" is 2, which is neither true nor false`},
		{`"launch_s": 2e-06`, `"launch_s": -1`, `field "launch_s" is -1, which is negative`},
		{`"float32": 66900000000000.0`, `"float32": -1`, `field "flop_per_s" cannot be used: field "float32" is -1, which is not above 0`},
		{`"float32": 66900000000000.0`, `"float8": 1`, `field "flop_per_s" cannot be used: field "float8" is there, which is not an element type`},
		{`"arithmetic": 0.145`, `"arithmetic": 1.5`, `row 1 of field "efficiencies": field "arithmetic" is 1.5, which is above 1`},
		{`"arithmetic": 0.145, `, ``, `row 1 of field "efficiencies": field "arithmetic" is missing`},
		{`"op": "attention"`, `"op": "atention"`, `row 1 of field "efficiencies": field "op" is "atention", which is not the kind of an op`},
		{`"dtype": "bfloat16"`, `"dtype": "float16"`, `field "dtype" is "float16", which is not one of float32, tf32, bfloat16`},
		{`"pass": "backward"`, `"pas": "backward"`, `field "pas" is there, which is not a field of an efficiency`},
		{`plimsoll.device/v1`, `plimsoll.chain/v1`, `field "format" is "plimsoll.chain/v1", which is not "plimsoll.device/v1"`},
		{`"name": "NVIDIA H100 SXM"`, `"name": ""`, `field "name" is "", which is empty`},
	} {
		path := filepath.Join(t.TempDir(), "device.json")
		if err := os.WriteFile(path, whole(t, c.was, c.now), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := estimate.Open(path)
		if err == nil || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.now, err, c.want)
		}
	}
	if _, err := estimate.Open("h1000"); !errors.Is(err, estimate.ErrUnknown) || !strings.Contains(err.Error(), "known are a100, h100, h200, rtx4090") {
		t.Errorf("an unknown name: %v", err)
	}
}

// Nothing panics, an accepted device is written as it reads, and what it estimates is a chain or is refused as none.
func FuzzDevice(f *testing.F) {
	f.Add(whole(f, "", ""))
	f.Add(whole(f, `"efficiencies": [`, `"efficiencies": [[],`))
	f.Add([]byte(`{"format":"plimsoll.device/v1","efficiencies":"h100"}`))
	w := workload(f, open(f, "h100"), "tiny", models.Config{Batch: 2, Image: 16, Channels: 3, Classes: 10}, kernels.SGD{})
	f.Fuzz(func(t *testing.T, text []byte) {
		d := new(estimate.Device)
		if d.UnmarshalJSON(text) != nil {
			return
		}
		written, err := json.Marshal(d)
		again := new(estimate.Device)
		if err := errors.Join(err, json.Unmarshal(written, again)); err != nil || !reflect.DeepEqual(d, again) {
			t.Fatalf("%s read and written as %s: %v", text, written, err)
		}
		c, err := d.Chain(w)
		if err != nil && !errors.Is(err, chain.ErrFormat) && !errors.Is(err, kernels.ErrType) || err == nil && c.Validate() != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}
