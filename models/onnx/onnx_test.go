package onnx

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
)

// names are those of the files in testdata, which bench/peers/src/torch_onnx.py has written.
var names = []string{"tiny", "branches", "skips"}

func fixture(t testing.TB, name string) (path string, message []byte) {
	t.Helper()
	path = filepath.Join("testdata", name, "model.onnx")
	message, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, message
}

// build returns the model of a file with images as it was exported with, other ones if given.
func build(t *testing.T, name string, batch, image int) *models.Model {
	t.Helper()
	path, _ := fixture(t, name)
	f, is, err := models.Open(path)
	if !is || err != nil || f.Channels != 3 || f.Classes != 10 || f.Text {
		t.Fatalf("%+v, %v, %v", f, is, err)
	}
	if image == 0 {
		image = f.Image
	}
	m, err := models.New(path, models.Config{Batch: batch, Image: image, Classes: 10})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The chain ends a layer where one tensor is alive, and what belongs together stays together.
func TestLayers(t *testing.T) {
	for name, want := range map[string]string{
		"tiny":     "stem conv1 narrow fc.0 fc.3 loss",
		"branches": "convs.0 convs.1 convs.2 convs.3 fc1 fc2 fc3 loss",
	} {
		var layers []string
		for _, l := range build(t, name, 2, 0).Layers {
			layers = append(layers, l.Name)
		}
		if got := strings.Join(layers, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A norm carries the sum and the ReLU behind it; what a DenseNet joins again and again is joined once.
func TestOpsAreFused(t *testing.T) {
	m := build(t, "tiny", 2, 0)
	want := map[string]kernels.Op{
		"stem":  kernels.BatchNorm{Epsilon: 1e-3, Momentum: 0.2, ReLU: true},
		"conv1": kernels.BatchNorm{Epsilon: 1e-5, Momentum: 0.1, ReLU: true, Residual: true},
	}
	for _, l := range m.Layers {
		if op := want[l.Name]; op != nil && l.Nodes[1].Op != op {
			t.Errorf("%s: %+v, want %+v", l.Name, l.Nodes[1].Op, op)
		}
	}
	for i, l := range build(t, "branches", 2, 0).Layers[:4] {
		if last := l.Nodes[len(l.Nodes)-1]; i < 3 && (last.Op != kernels.Concat{} || len(last.In) != 2) {
			t.Errorf("%s ends with %T of %d", l.Name, last.Op, len(last.In))
		}
	}
}

// Skips over many layers are told from what layers make, so that pipelines send them past stages.
func TestSkips(t *testing.T) {
	m := build(t, "skips", 2, 0)
	longest := 0
	for _, s := range m.Skips() {
		longest = max(longest, s.To-s.From)
	}
	if longest < 6 || len(m.Layers) < 10 {
		t.Errorf("%d layers, the longest skip passes %d", len(m.Layers), longest-1)
	}
	lasts := []int{3, 6, 9}
	if p := m.Straight(lasts).Portals; len(p) == 0 {
		t.Errorf("no skips pass stages that end with %v: %v", lasts, m.Skips())
	}
}

// Parameters have the initializers' names, and begin with their elements, whatever the seed.
func TestParameters(t *testing.T) {
	path, message := fixture(t, "tiny")
	g, err := readModel(message)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, p := range build(t, "tiny", 2, 0).Params() {
		from := g.tensors[p.Name]
		got := make([]float32, p.Desc.Elements())
		if models.Init(p, 7, got); from == nil {
			t.Errorf("%s: no initializer is called %s", path, p.Name)
			continue
		}
		s := p.Desc.Shape
		for i := range got {
			at := i
			if len(s) == 4 { // O,KH,KW,I of O,I,KH,KW
				area := s[1] * s[2]
				o, k, c := i/(area*s[3]), i/s[3]%area, i%s[3]
				at = (o*s[3]+c)*area + k
			}
			if got[i] != from.float(at) {
				t.Fatalf("%s[%d] is %v, want %v", p.Name, i, got[i], from.float(at))
			}
			seen++
		}
	}
	if seen != 1076+2*(4+4) {
		t.Errorf("%d elements", seen)
	}
}

// Any batch will do, and other images where no weight depends on their size.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		name         string
		batch, image int
	}{{"tiny", 1, 16}, {"tiny", 5, 16}, {"branches", 3, 21}, {"skips", 7, 16}} {
		if in := build(t, c.name, c.batch, c.image).Input.Shape; in[0] != c.batch || in[1] != c.image {
			t.Errorf("%v: %v", c, in)
		}
	}
	path, _ := fixture(t, "tiny")
	for _, c := range []struct {
		models.Config
		kind error
		text string
	}{
		{models.Config{Batch: 2, Image: 24, Classes: 10}, ErrUnsupported, "images of 24x24: node \"/fc/fc.0/Gemm\" (Gemm): weight \"fc.0.weight\" is float32[8 96], want float32[8 216]"},
		{models.Config{Batch: 2, Image: 16, Classes: 9}, models.ErrConfig, "has 10 classes, not 9: give --classes 10"},
		{models.Config{Batch: 2, Image: 16, Classes: 10, Channels: 1}, models.ErrConfig, "channels, not 1: give --channels 3"},
	} {
		if _, err := models.New(path, c.Config); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), path) {
			t.Errorf("%+v: %v, want %s", c.Config, err, c.text)
		}
	}
}

// replaced returns a file in which one text stands for another, as long, everywhere.
func replaced(t *testing.T, message []byte, old, to string) []byte {
	t.Helper()
	if len(old) != len(to) || !bytes.Contains(message, []byte(old)) {
		t.Fatalf("%q cannot become %q", old, to)
	}
	return bytes.ReplaceAll(message, []byte(old), []byte(to))
}

// What is not supported is named, each node once, with its op and its attribute.
func TestUnsupported(t *testing.T) {
	_, message := fixture(t, "tiny")
	_, skips := fixture(t, "skips")
	for _, c := range []struct {
		message []byte
		want    []string
	}{
		{replaced(t, message, "MaxPool", "LpPooll"), []string{`node "/stem/stem.3/LpPooll" (LpPooll): the op is not supported`}},
		{replaced(t, replaced(t, message, "MaxPool", "LpPooll"), "\"\x04Gemm", "\"\x04Gimm"), []string{"(LpPooll)", `"/fc/fc.3/Gemm" (Gimm)`}},
		{replaced(t, message, "transB", "transX"), []string{`"/fc/fc.0/Gemm" (Gemm): attribute transX is not supported`}},
		{replaced(t, message, "ceil_mode", "ceil_made"), []string{"(MaxPool): attribute ceil_made is not supported"}},
		{replaced(t, skips, "\"\x04Relu", "\"\x04Rulu"), []string{`node "/down.0/down.0.1/Relu" (Rulu): the op is not supported`, "; and 16 more"}},
		{replaced(t, message, "logits", "ligots"), nil},
	} {
		_, err := Read("my.onnx", c.message)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%v, want %q", err, c.want)
			continue
		}
		for _, want := range c.want {
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "my.onnx") || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}
