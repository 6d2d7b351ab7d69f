package onnx

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/importer"
)

// names lists the files in testdata, which bench/research/peers/src/torch_export.py has written.
var names = []string{"tiny", "branches", "skips", "sdpa", "written", "modules"}

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
	if !is || err != nil || f.Text == (f.Channels == 3) || f.Text == (f.Classes == 10) {
		t.Fatalf("%+v, %v, %v", f, is, err)
	}
	if image == 0 {
		image = f.Image
	}
	m, err := models.New(path, models.Config{Batch: batch, Image: image, Classes: f.Classes})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The chain ends a layer where one tensor is alive, and what belongs together stays together.
func TestLayers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"tiny":     "stem conv1 narrow fc.0 fc.3 loss",
		"branches": "convs.0 convs.1 convs.2 convs.3 fc1 fc2 fc3 loss",
		"sdpa":     "tokens blocks.0 blocks.0#2 blocks.1 blocks.1#2 tokens#2 loss",
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
	t.Parallel()
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

// opsOf returns the ops of a model, in order, with how often each is there.
func opsOf(m *models.Model) map[kernels.Op]int {
	all := map[kernels.Op]int{}
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			all[n.Op]++
		}
	}
	return all
}

// A transformer, however it was written and exported, is made of the ops that our own ones have.
func TestTransformers(t *testing.T) {
	t.Parallel()
	dense := func(out int) kernels.Op { return kernels.Linear{Out: out, Bias: true, LastAxis: true} }
	common := map[kernels.Op]int{kernels.LayerNorm{Epsilon: 1e-5}: 5, kernels.Add{}: 4, kernels.SoftmaxCrossEntropy{}: 1}
	for name, want := range map[string]map[kernels.Op]int{
		"sdpa": {
			kernels.Embedding{Vocabulary: 40, Width: 16, Positions: 12}: 1, dense(48): 2, kernels.Attention{Heads: 2}: 2, dense(16): 4, dense(64): 2,
			kernels.GELU{}: 2, kernels.Linear{Out: 40, LastAxis: true}: 1,
		},
		"written": {
			kernels.Embedding{Vocabulary: 40, Width: 16, Positions: 12}: 1, kernels.Linear{Out: 16, LastAxis: true}: 2, dense(16): 8, kernels.Concat{}: 2,
			kernels.Attention{Heads: 2}: 2, dense(64): 2, kernels.GELU{Tanh: true}: 2, kernels.Linear{Out: 40, LastAxis: true}: 1,
		},
		"modules": {
			kernels.Embedding{Vocabulary: 30, Width: 12}: 1, dense(36): 2, kernels.Attention{Heads: 3}: 2, dense(12): 4, dense(20): 2, kernels.GELU{}: 2,
			dense(30): 1, kernels.LayerNorm{Epsilon: 1e-5}: 4,
		},
	} {
		for op, n := range common {
			if want[op] == 0 {
				want[op] = n
			}
		}
		if got := opsOf(build(t, name, 3, 0)); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A classifier whose weight is the embedding's is one parameter; its gradients are added.
func TestTiedWeights(t *testing.T) {
	t.Parallel()
	m := build(t, "sdpa", 3, 0)
	tied := m.Layers[len(m.Layers)-2].Tied()
	if len(tied) != 1 || tied[0].Of == nil || tied[0].Of.Name != "tokens.weight" {
		t.Errorf("tied: %+v", tied)
	}
	if n := m.ParamCount(); n != 7424 {
		t.Errorf("%d parameters, want 7424", n)
	}
}

// Skips over many layers are told from what layers make, so that pipelines send them past stages.
func TestSkips(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	path, message := fixture(t, "tiny")
	g, err := readModel(message)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, p := range build(t, "tiny", 2, 0).Params() {
		from := g.Tensors[p.Name]
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
			if got[i] != from.Float(at) {
				t.Fatalf("%s[%d] is %v, want %v", p.Name, i, got[i], from.Float(at))
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
	t.Parallel()
	for _, c := range []struct {
		name         string
		batch, image int
	}{{"tiny", 1, 16}, {"tiny", 5, 16}, {"branches", 3, 21}, {"skips", 7, 16}, {"sdpa", 5, 12}, {"written", 1, 7}, {"written", 4, 12}} {
		if in := build(t, c.name, c.batch, c.image).Input.Shape; in[0] != c.batch || in[1] != c.image {
			t.Errorf("%v: %v", c, in)
		}
	}
	for _, c := range []struct {
		name string
		models.Config
		kind error
		text string
	}{
		{"sdpa", models.Config{Batch: 3, Image: 8, Classes: 40}, importer.ErrUnsupported, "samples of 8 tokens: node \"/Add\" (Add): 12 rows of \"positions.weight\" are added to [3 8 16]"},
		{"written", models.Config{Batch: 3, Image: 13, Classes: 40}, importer.ErrUnsupported, "a sequence of 13 has more than 12 positions"},
		{"modules", models.Config{Batch: 2, Image: 8, Classes: 30}, models.ErrConfig, "its ops hold the batch of 3 that it was exported with, and do not run with 2: give --batch 3"},
		{"tiny", models.Config{Batch: 2, Image: 24, Classes: 10}, importer.ErrUnsupported, "images of 24x24: node \"/fc/fc.0/Gemm\" (Gemm): weight \"fc.0.weight\" is float32[8 96], want float32[8 216]"},
		{"tiny", models.Config{Batch: 2, Image: 16, Classes: 9}, models.ErrConfig, "has 10 classes, not 9: give --classes 10"},
		{"tiny", models.Config{Batch: 2, Image: 16, Classes: 10, Channels: 1}, models.ErrConfig, "channels, not 1: give --option data.channels=3"},
	} {
		path, _ := fixture(t, c.name)
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

// Every unsupported node is named once, with its op and its attribute.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	_, message := fixture(t, "tiny")
	_, skips := fixture(t, "skips")
	_, sdpa := fixture(t, "sdpa")
	_, modules := fixture(t, "modules")
	for _, c := range []struct {
		message []byte
		want    []string
	}{
		{replaced(t, message, "MaxPool", "LpPooll"), []string{`node "/stem/stem.3/LpPooll" (LpPooll): the op is not supported`}},
		{replaced(t, replaced(t, message, "MaxPool", "LpPooll"), "\"\x04Gemm", "\"\x04Gimm"), []string{"(LpPooll): the op", `"/fc/fc.0/Gemm" (Gimm) and 1 more: the op`}},
		{replaced(t, message, "transB", "transX"), []string{`"/fc/fc.0/Gemm" (Gemm): attribute transX is not supported`}},
		{replaced(t, message, "ceil_mode", "ceil_made"), []string{"(MaxPool): attribute ceil_made is not supported"}},
		{replaced(t, skips, "\"\x04Relu", "\"\x04Rulu"), []string{`node "/down.0/down.0.1/Relu" (Rulu) and 23 more: the op is not supported`}},
		{replaced(t, message, "logits", "ligots"), nil},
		{replaced(t, sdpa, "\x00\x00\x80\xff", "\x00\x00\x00\x00"), nil}, // nothing is masked
		{replaced(t, sdpa, "\x00\x00\x80\xff", "\x00\x00\x80\xbf"), []string{`node "/blocks.0/Add" (Add): a mask that adds 0 to what comes before a position, and -1 to what comes after`}},
		{replaced(t, sdpa, "\"\x04Sqrt", "\"\x04Relu"), []string{`node "/blocks.0/Sqrt" (Relu): input 0 is no tensor that follows`}},
		{replaced(t, sdpa, "\"\x03Erf", "\"\x03Sin"), []string{`(MatMul): input 0 is a function of a tensor by node "/blocks.0/Mul_3" (Mul), and it is no activation that is supported`}},
		{replaced(t, sdpa, "Softmax", "Hardmax"), []string{`node "/blocks.0/Hardmax" (Hardmax) and 1 more: the op is not supported`}},
		{replaced(t, modules, "\"\x05Trilu", "\"\x05Trila"), []string{`(Trila) and 1 more: the op is not supported`}},
	} {
		_, err := Read("my.onnx", c.message)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%v, want %q", err, c.want)
			continue
		}
		for _, want := range c.want {
			if !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), "my.onnx") || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

// A BatchNormalization that computes with its running statistics is refused.
func TestFrozenNormsAreRefused(t *testing.T) {
	t.Parallel()
	_, message := fixture(t, "tiny")
	mode := []byte("training_mode\x18\x01")
	if n := bytes.Count(message, mode); n != 2 {
		t.Fatalf("%d norms are trained", n)
	}
	_, err := Read("my.onnx", bytes.Replace(message, mode, []byte("training_mode\x18\x00"), 1))
	want := `node "/stem/stem.1/BatchNormalization" (BatchNormalization): training_mode is 0, so it computes with its running statistics`
	if !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "training=torch.onnx.TrainingMode.TRAINING") {
		t.Errorf("%v, want %s", err, want)
	}
}

// The error of a node names the first true reason, and is the same every time.
func TestReasonsAreTrue(t *testing.T) {
	t.Parallel()
	ints := func(name string, v ...uint64) []byte {
		all := [][]byte{text(1, name)}
		for _, n := range v {
			all = append(all, number(8, n))
		}
		return nested(5, append(all, number(20, 7))...)
	}
	size := func(n uint64) []byte { return nested(1, number(1, n)) }
	images := nested(11, text(1, "x"), nested(2, nested(1, number(1, 1), nested(2, size(2), size(3), size(8), size(8)))))
	pool := nested(1, text(1, "x"), text(2, "p"), text(4, "GlobalAveragePool"))
	conv := func(more ...[]byte) []byte {
		attributes := [][]byte{ints("dilations", 1, 1), ints("kernel_shape", 1, 1), ints("pads", 0, 0, 0, 0), ints("strides", 1, 1)}
		node := [][]byte{text(1, "p"), text(1, "w"), text(2, "y"), text(4, "Conv")}
		return nested(1, slices.Concat(node, attributes, more)...)
	}
	weight := nested(5, number(1, 5), number(1, 3), number(1, 1), number(1, 1), number(2, 1), text(8, "w"), text(9, strings.Repeat("\x00", 60)))
	for _, c := range []struct {
		node []byte
		want string
	}{
		{conv(), `output "y" is no logits, N,classes or N,classes,H,W of images or N,T,classes of tokens or frames, that follow from the input`},
		{conv(ints("zebra", 1), ints("aardvark", 1)), `node "y" (Conv): attribute aardvark is not supported`},
	} {
		for range 20 { // attributes are a map
			_, err := Read("my.onnx", nested(7, pool, c.node, images, nested(12, text(1, "y")), weight))
			if err == nil || !strings.HasSuffix(cutOff(err.Error()), c.want) {
				t.Fatalf("%v, want %s", err, c.want)
			}
		}
	}
}

// cutOff returns a message up to its advice.
func cutOff(message string) string {
	message, _, _ = strings.Cut(message, ": a linear layer is")
	return message
}

// Parameters that an exporter has folded, left out or kept without use are counted and named.
func TestWhatIsReadIsSaid(t *testing.T) {
	t.Parallel()
	_, tiny := fixture(t, "tiny")
	_, branches := fixture(t, "branches")
	_, sdpa := fixture(t, "sdpa")
	for _, c := range []struct {
		message []byte
		want    []string
	}{
		{tiny, []string{"2 batchnorm, 3 conv2d, 2 linear; 17 tensors of 1,092 numbers"}},
		{replaced(t, tiny, "conv1.weight", "onnx::Conv_1"), []string{"1,092", `1 parameter is of the exporter's making (onnx::Conv_1 of node "/conv1/Conv")`}},
		{branches, []string{"4 conv2d, 3 linear", "1 convolution or linear layer has no bias and no norm behind (fc1.weight)"}},
		{sdpa, []string{"1 embedding, 5 layernorm, 9 linear", "1 convolution or linear layer has no bias"}},
	} {
		f, err := Read("my.onnx", c.message)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.About) != len(c.want) {
			t.Errorf("%q, want %q", f.About, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(f.About[i], want) {
				t.Errorf("%q, want %q", f.About[i], want)
			}
		}
	}
}
