package models_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/cpu"
	"plimsoll/models"
	"plimsoll/models/modeltest"
)

// hashed returns number i of a name, in [-1, 1): splitmix64 of the name's hash plus i.
func hashed(name uint64, i int64) float32 {
	x := (uint64(i)+1)*0x9E3779B97F4A7C15 + name
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	x = (x ^ x>>31) >> 40
	return float32(x)/(1<<23) - 1
}

func nameHash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// torchValues fills a parameter with the numbers of logits.py, which counts elements in PyTorch's order: o,i,kh,kw
// for our o,kh,kw,i.
func torchValues(p models.Parameter, dst []float32) {
	s, h := p.Desc.Shape, nameHash(p.Name)
	offset, scale := float32(0), float32(0.25)
	switch {
	case len(s) > 1:
		fanIn := p.Desc.Elements() / int64(s[0])
		scale = float32(math.Sqrt(6 / float64(fanIn)))
	case strings.HasSuffix(p.Name, ".running_var"), strings.HasSuffix(p.Name, ".weight"):
		offset = 1
	}
	for i := range dst {
		at := i
		if len(s) == 4 {
			area, depth := s[1]*s[2], s[3]
			at = (i/(area*depth)*depth+i%depth)*area + i/depth%area
		}
		dst[i] = offset + scale*hashed(h, int64(at))
	}
}

// evaluate runs a model's evaluation on hashed images and returns the logits.
func evaluate(t *testing.T, m *models.Model) []float32 {
	t.Helper()
	lib := func(memory modeltest.Memory) kernels.Library {
		l, err := cpu.New(memory, cpu.Options{})
		must(t, err)
		return l
	}
	programs, err := m.Compile(lib(nil))
	must(t, err)
	s := m.Input.Shape
	x, h := make([]float32, m.Input.Elements()), nameHash("image")
	for i := range x {
		c, pixel, n := i%s[3], i/s[3]%(s[1]*s[2]), i/(s[1]*s[2]*s[3])
		x[i] = hashed(h, int64((n*s[3]+c)*s[1]*s[2]+pixel))
	}
	for l := range m.Layers[:len(m.Layers)-1] {
		programs[l].GradBytes, programs[l].Back.Scratch = 0, 0 // no room for what does not run
		f := modeltest.NewFrame(m, programs, l+1, lib)
		modeltest.Put(f.Bytes(models.Input), x)
		for _, p := range f.Layer.Params() {
			v := make([]float32, p.Desc.Elements())
			torchValues(p, v)
			modeltest.Put(f.Slice(p.Value), v)
		}
		must(t, f.Run(&f.Programs.Eval))
		x = f.Output()
	}
	return x
}

// With the same weights by name, the models compute the logits that torchvision's do, and U-Net and AmoebaNet-D those of
// testdata/skips.py: see testdata/logits.py. The tolerance is 1e-4 of the largest logit, for sums of up to 25,088 float32
// through 20 layers and more.
func TestTorchvision(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/logits.txt")
	must(t, err)
	want := map[string][]float32{}
	var cases []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		key := strings.Join(fields[:2], " ")
		if want[key] == nil {
			cases = append(cases, key)
		}
		for _, f := range fields[2:] {
			v, err := strconv.ParseFloat(f, 32)
			must(t, err)
			want[key] = append(want[key], float32(v))
		}
	}
	compared := 0
	for _, key := range cases {
		var name string
		var image int
		_, err := fmt.Sscan(key, &name, &image)
		must(t, err)
		if testing.Short() && strings.HasPrefix(name, "vgg") {
			continue // 138 million parameters
		}
		got := evaluate(t, build(t, name, models.Config{Batch: 2, Image: image, Classes: 5}))
		if len(got) != len(want[key]) {
			t.Fatalf("%s: %d logits, want %d", key, len(got), len(want[key]))
		}
		for i := range got {
			if d := math.Abs(float64(got[i] - want[key][i])); !(d <= 1e-4*largest(want[key])) {
				t.Errorf("%s: logit %d is %v, PyTorch's %v", key, i, got[i], want[key][i])
			}
			compared++
		}
	}
	if compared < 70 {
		t.Errorf("compared %d logits", compared)
	}
}

// The derivatives of layers that are wide: the kinds of blocks of Inception, and VGG's convolutions with a pool.
func TestWidePrograms(t *testing.T) {
	t.Parallel()
	layers := 0
	for _, c := range []struct {
		name   string
		config models.Config
		layers []string
	}{
		{"vgg16", models.Config{Batch: 2, Image: 32, Classes: 5}, []string{"features.0", "features.28"}},
		{"vgg16_bn", models.Config{Batch: 2, Image: 32, Classes: 5}, []string{"features.40"}},
		{"inception_v3", models.Config{Batch: 3, Image: 75, Classes: 5},
			[]string{"Mixed_5b", "Mixed_6b", "Mixed_7a", "Mixed_7b", "fc"}},
	} {
		m := build(t, c.name, c.config)
		programs := compiled(t, m)
		for i, l := range m.Layers {
			if !slices.Contains(c.layers, l.Name) || testing.Short() && l.Name != "Mixed_5b" {
				continue
			}
			layers++
			t.Run(c.name+"/"+l.Name, func(t *testing.T) { checkDerivative(t, m, programs, i+1) })
		}
	}
	if want := 8; layers < want && !testing.Short() || layers < 1 {
		t.Errorf("%d layers ran, want %d", layers, want)
	}
}
