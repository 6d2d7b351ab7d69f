package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/kernels"
	"plimsoll/models"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// memory is a model without an executor: its tensors lie in a map.
type memory struct {
	tensors []executor.Tensor
	values  map[string][]float32
}

func key(t executor.Tensor) string { return t.Role + " of " + t.Name }

func (m *memory) Tensors() []executor.Tensor { return m.tensors }

func (m *memory) Read(t executor.Tensor, dst []float32) error {
	if copy(dst, m.values[key(t)]) != len(dst) {
		return fmt.Errorf("%s has another size", key(t))
	}
	return nil
}

func (m *memory) Write(t executor.Tensor, src []float32) error {
	m.values[key(t)] = slices.Clone(src)
	return nil
}

func (m *memory) add(name, role string, shape ...int) {
	m.tensors = append(m.tensors, executor.Tensor{Name: name, Role: role, Desc: kernels.F32(shape...)})
}

// fill gives every element a value that its place and the seed tell.
func (m *memory) fill(seed uint64) {
	m.values = map[string][]float32{}
	r := rand.New(rand.NewPCG(seed, 0))
	for _, t := range m.tensors {
		v := make([]float32, t.Desc.Elements())
		for i := range v {
			v[i] = r.Float32()
		}
		m.values[key(t)] = v
	}
}

// little is a convolution with BatchNorm and a linear layer, trained with one optimizer state.
func little(seed uint64) *memory {
	m := &memory{}
	for _, role := range []string{"weight", "gradient", "state0"} {
		m.add("conv.weight", role, 3, 2, 2, 4)
		m.add("bn.weight", role, 3)
		m.add("fc.weight", role, 5, 3)
	}
	m.add("bn.running_mean", "buffer", 3)
	m.add("bn.running_var", "buffer", 3)
	m.fill(seed)
	return m
}

// zoo is a model of the zoo as an executor has its tensors, without values.
func zoo(t testing.TB, name string, classes int) *memory {
	built, err := models.New(name, models.Config{Batch: 1, Image: 75, Classes: classes})
	must(t, err)
	m := &memory{}
	for _, p := range built.Params() {
		if !p.Trained {
			m.add(p.Name, "buffer", p.Desc.Shape...)
			continue
		}
		for _, role := range []string{"weight", "gradient", "state0", "state1"} {
			m.add(p.Name, role, p.Desc.Shape...)
		}
	}
	return m
}

// differs names the first kept tensor that two models do not have in common, bit for bit.
func differs(a, b *memory, kept roles) string {
	for _, t := range a.tensors {
		same := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
		if kept(t.Role) && !slices.EqualFunc(a.values[key(t)], b.values[key(t)], same) {
			return key(t)
		}
	}
	return ""
}

func someMeta(step int64) Meta {
	return Meta{
		Step: step, Updates: []int64{step, step / 2}, Seed: math.MaxUint64, Position: step * 64, Model: "little", Plan: "abc", Schedule: "cosine 0.1",
		Update: kernels.SGD{Momentum: 0.9, WeightDecay: 1e-4}, Library: "cpu/avx2", Threads: 2, Extra: map[string]string{"data": "glyphs"},
	}
}

func encode(t testing.TB, from Model, m Meta) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, Encode(&b, from, m))
	return b.Bytes()
}

func save(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "step-3.safetensors")
	must(t, os.WriteFile(path, b, 0o666))
	return path
}

// TestWholeState: weights, buffers and states come back bit for bit, gradients are not there, and so do all fields.
func TestWholeState(t *testing.T) {
	t.Parallel()
	from, into := little(1), little(2)
	from.values["weight of fc.weight"][3] = math.Float32frombits(0xFFC01234) // a NaN keeps its bits
	for _, u := range []kernels.Update{
		kernels.SGD{Momentum: 0.9, Dampening: 0.1, WeightDecay: 1e-4, Nesterov: true},
		kernels.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, kernels.AdamW{Beta1: 0.3, WeightDecay: math.MaxFloat32},
		kernels.Muon{Momentum: 0.95, WeightDecay: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	} {
		m := someMeta(3)
		m.Update = u
		c, err := Open(save(t, encode(t, from, m)))
		must(t, err)
		must(t, c.Restore(into))
		must(t, c.Close())
		if fmt.Sprintf("%#v", c.Meta) != fmt.Sprintf("%#v", m) {
			t.Errorf("saved %#v, loaded %#v", m, c.Meta)
		}
	}
	if name := differs(from, into, training); name != "" {
		t.Errorf("%s differs", name)
	}
	if differs(from, into, func(role string) bool { return role == "gradient" }) == "" {
		t.Error("gradients were loaded")
	}
}

// TestLayout: a convolution's weights and their states lie in a file as O,I,KH,KW, at the places that PyTorch
// expects.
func TestLayout(t *testing.T) {
	t.Parallel()
	m := little(1)
	f, err := safetensors.Open(save(t, encode(t, m, someMeta(3))))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	const o, h, w, i = 3, 2, 2, 4
	for name, key := range map[string]string{"conv.weight": "weight of conv.weight", "optimizer.state0.conv.weight": "state0 of conv.weight"} {
		got := make([]float32, o*i*h*w)
		must(t, f.Float32(name, got))
		if info, _ := f.Tensor(name); !slices.Equal(info.Shape, []int{o, i, h, w}) {
			t.Errorf("%s is %v", name, info.Shape)
		}
		for at, want := range m.values[key] {
			n, y, x, c := at/(h*w*i), at/(w*i)%h, at/i%w, at%i
			if got[((n*i+c)*h+y)*w+x] != want {
				t.Fatalf("%s: element (%d,%d,%d,%d) is elsewhere", name, n, c, y, x)
			}
		}
	}
}

// TestEveryDamage: whatever byte is changed, and wherever a file ends, it is refused.
func TestEveryDamage(t *testing.T) {
	t.Parallel()
	m := &memory{}
	m.add("fc.weight", "weight", 2, 3)
	m.fill(1)
	good := encode(t, m, someMeta(3))
	path := save(t, good)
	refused := func(what string, b []byte) {
		must(t, os.WriteFile(path, b, 0o666))
		c, err := Open(path)
		if err == nil {
			must(t, c.Close())
			t.Errorf("%s passed", what)
		} else if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) && !errors.Is(err, safetensors.ErrFormat) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1 << (i % 8)
		refused(fmt.Sprintf("a flip in byte %d", i), bad)
		refused(fmt.Sprintf("an end at byte %d", i), good[:i])
	}
	must(t, os.WriteFile(path, good, 0o666))
	c, err := Open(path)
	must(t, err)
	must(t, c.Close())
	if len(good) < 500 {
		t.Errorf("only %d bytes were changed", len(good))
	}
}

// TestMetaErrors: a field that is missing or cannot be used is named with its value.
func TestMetaErrors(t *testing.T) {
	t.Parallel()
	m := someMeta(3)
	good, err := m.encode()
	must(t, err)
	cases := []struct{ field, value, want string }{
		{"format", "pt", `"format" is "pt": want "plimsoll.checkpoint/v2"`},
		{"step", "-1", `"step" is "-1": want a whole number from 0`}, {"step", "1.5", `"step" is "1.5"`},
		{"position", "x", `"position" is "x"`}, {"seed", "18446744073709551616", `"seed" is "18446744073709551616"`},
		{"threads", "", `"threads" is ""`},
		{"updates", "", `"updates" is "": want a list of whole numbers from 0, one for each layer`}, {"updates", "3", `"updates" is "3"`},
		{"updates", "null", `"updates" is "null"`}, {"updates", "[1,-1]", `"updates" is "[1,-1]"`}, {"updates", "[1.5]", `"updates" is "[1.5]"`},
		{"optimizer", "lion", `"optimizer" is "lion": known are sgd, adam, adamw, muon`},
		{"optimizer_settings", "{", `"optimizer_settings" is "{"`}, {"optimizer_settings", "null", `"optimizer_settings" is "null"`},
		{"optimizer_settings", `{"Momentum":"x"}`, "Momentum"}, {"optimizer_settings", `{"Beta1":1}`, "Beta1"},
		{"optimizer_settings", `{"Momentum":1e39}`, "1e39"}, {"optimizer_settings", `{"Momentum":1,"Momentum":2}`, "occurs twice"},
	}
	for _, c := range cases {
		bad := map[string]string{}
		for field, value := range good {
			bad[field] = value
		}
		bad[c.field] = c.value
		if _, err := decodeMeta(bad); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v", c.field, c.value, err)
		}
	}
	for field := range good {
		if field == "data" || field == updatesField {
			continue // the caller's, or not in older files
		}
		bad := map[string]string{"data": "glyphs"}
		for other, value := range good {
			if other != field {
				bad[other] = value
			}
		}
		if _, err := decodeMeta(bad); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), fmt.Sprintf("%q is missing", field)) {
			t.Errorf("without %s: %v", field, err)
		}
	}
	if len(cases) != 18 || len(good) != 13 {
		t.Errorf("%d cases, %d fields", len(cases), len(good))
	}
}

// TestUnsavable: what cannot be read back is not saved.
func TestUnsavable(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Meta){
		"step": func(m *Meta) { m.Step = -1 }, "position": func(m *Meta) { m.Position = -1 },
		"optimizer": func(m *Meta) { m.Update = nil }, "NaN": func(m *Meta) { m.Update = kernels.SGD{Momentum: float32(math.NaN())} },
		"seed": func(m *Meta) { m.Extra = map[string]string{"seed": "1"} }, "UTF-8": func(m *Meta) { m.Model = "\xff" },
	} {
		m := someMeta(3)
		change(&m)
		if err := Encode(&bytes.Buffer{}, little(1), m); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDifferences: what makes two runs different is listed; where they are and what plan they follow does not.
func TestDifferences(t *testing.T) {
	t.Parallel()
	saved, same := someMeta(3), someMeta(9)
	same.Plan, same.Extra = "other", nil
	other := same
	other.Seed, other.Threads, other.Update = 7, 1, kernels.SGD{Momentum: 0.8, WeightDecay: 1e-4}
	other.Extra = map[string]string{"data": "digits"}
	for _, c := range []struct {
		want *Meta
		list string
	}{{&same, "[]"}, {&other, `[data was "glyphs" and is "digits" here ` +
		`optimizer_settings was "{\"Momentum\":0.9,\"Dampening\":0,\"WeightDecay\":0.0001,\"Nesterov\":false}" and is ` +
		`"{\"Momentum\":0.8,\"Dampening\":0,\"WeightDecay\":0.0001,\"Nesterov\":false}" here ` +
		`seed was "18446744073709551615" and is "7" here threads was "2" and is "1" here]`}} {
		list, err := saved.Differences(c.want)
		if got := fmt.Sprint(list); err != nil || got != c.list {
			t.Errorf("%s, %v; want %s", got, err, c.list)
		}
	}
}

// TestForeignFiles: files that are no checkpoints of the model are refused by name, and nothing of them is loaded.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	from := little(1)
	path := filepath.Join(t.TempDir(), "final.safetensors")
	must(t, Export(path, from, Batches{}, nil))
	if _, err := Open(path); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), `"format" is "pt"`) {
		t.Errorf("an exported file as checkpoint: %v", err)
	}
	m := someMeta(3)
	metadata, err := m.encode()
	must(t, err)
	var b bytes.Buffer
	must(t, safetensors.Write(&b, metadata, collect(from, training, Batches{})))
	if _, err := Open(save(t, b.Bytes())); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), sumName) {
		t.Errorf("without a checksum: %v", err)
	}

	into := little(2)
	into.tensors[0].Desc = kernels.F32(3, 3, 3, 4)
	into.tensors = into.tensors[:len(into.tensors)-1]
	into.add("head.bias", "state0", 4)
	c, err := Open(save(t, encode(t, from, someMeta(3))))
	must(t, err)
	err = c.Restore(into)
	must(t, c.Close())
	want := fmt.Sprintf("%s: its tensors are not the model's: 1 missing: optimizer.state0.head.bias; 1 unexpected: bn.running_var; "+
		"1 of another shape: conv.weight is [3 4 2 2], the model's is [3 4 3 3]: remove %[1]s to go on from an earlier checkpoint", c.Name())
	if bad := (*TensorsError)(nil); !errors.As(err, &bad) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if name := differs(little(2), into, training); name != "" && name != "state0 of head.bias" {
		t.Errorf("%s was loaded", name)
	}
}

// FuzzMeta: no metadata makes the reader panic, and what it takes is written as it was read.
func FuzzMeta(f *testing.F) {
	f.Add("plimsoll.checkpoint/v1", "3", "7", "192", "resnet18", "abc", "sgd", `{"Momentum":0.9}`, "cosine", "cpu/avx2", "2", "glyphs", "[3,0]")
	f.Add("plimsoll.checkpoint/v2", "0", "0", "0", "", "", "adamw", `{"Beta1":0.9,"Beta2":0.999}`, "", "", "1", "", "[]")
	f.Add("pt", "x", "-1", "1e9", "", "", "adam", `[]`, "", "", "-2", "", "null")
	f.Fuzz(func(t *testing.T, format, step, seed, position, model, plan, optimizer, settings, schedule, library, threads, data, updates string) {
		in, err := decodeMeta(map[string]string{
			"format": format, "step": step, "seed": seed, "position": position, "model": model, "plan": plan, "optimizer": optimizer,
			"optimizer_settings": settings, "schedule": schedule, "library": library, "threads": threads, "data": data, "updates": updates,
		})
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("an error that is not of the format: %v", err)
			}
			return
		}
		out, err := in.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeMeta(out)
		if err != nil || fmt.Sprintf("%#v", again) != fmt.Sprintf("%#v", in) {
			t.Fatalf("%#v became %#v, %v", in, again, err)
		}
	})
}
