package torchexport

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/importer"
)

// names lists the archives in testdata, which bench/research/peers/src/torch_export.py has written.
var names = []string{"tiny", "branches", "skips", "sdpa", "written", "modules", "transformers", "axes", "encoder", "llama", "mobile", "qwen3", "vision", "windows", "pixels", "unet", "functions", "zeros", "bert_class", "distilbert", "roberta", "gemma", "phi",
	"t5_gated", "bloom", "gpt_neox", "glm", "cohere", "falcon", "nemotron", "gemma3", "squeezebert", "modernbert", "rows", "frames", "positions", "whisper_encoder", "clamps", "turned", "llama_masked"}

func fixture(t testing.TB, name string) (path string, archive []byte) {
	t.Helper()
	path = filepath.Join("testdata", name, "model.pt2")
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, archive
}

// entries returns the files of an archive by their names in the model.
func entries(t testing.TB, archive []byte) map[string][]byte {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, f := range r.File {
		e, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if all[strings.TrimPrefix(f.Name, "model/")], err = io.ReadAll(e); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// packed returns an archive of entries, as torch.export.save stores them.
func packed(t testing.TB, all map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: "model/" + name, Method: zip.Store})
		if err == nil {
			_, err = f.Write(all[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Entries that tests change.
const (
	model   = "models/model.json"
	weights = "data/weights/model_weights_config.json"
)

// changed returns an archive in an entry of which texts stand for others: old, new, old, new.
func changed(t testing.TB, name, entry string, texts ...string) []byte {
	t.Helper()
	_, archive := fixture(t, name)
	all := entries(t, archive)
	for i := 0; i < len(texts); i += 2 {
		if !bytes.Contains(all[entry], []byte(texts[i])) {
			t.Fatalf("%s of %s has no %s", entry, name, texts[i])
		}
		all[entry] = bytes.Replace(all[entry], []byte(texts[i]), []byte(texts[i+1]), 1)
	}
	return packed(t, all)
}

// build returns the model of an archive with samples as it was exported with, other ones if given.
func build(t *testing.T, name string, batch, image int) *models.Model {
	t.Helper()
	path, _ := fixture(t, name)
	f, is, err := models.Open(path)
	if !is || err != nil {
		t.Fatalf("%+v, %v, %v", f, is, err)
	}
	if image == 0 {
		image = f.Image
	}
	m, err := models.New(path, models.Config{Batch: batch, Image: image, Channels: f.Channels, Classes: f.Classes})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Layers are called as the modules whose code they are.
func TestLayers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"tiny":     "stem conv1 narrow fc fc.3 loss",
		"branches": "convs.0 convs.1 convs.2 convs.3 fc1 fc2 fc3 loss",
		"sdpa":     "tokens blocks.0 blocks.0#2 blocks.1 blocks.1#2 head loss",
		"modules":  "tokens layers.0 layers.0#2 layers.1 layers.1#2 head loss",
	} {
		var layers []string
		for _, l := range build(t, name, 3, 0).Layers {
			layers = append(layers, l.Name)
		}
		if got := strings.Join(layers, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// An op has the attributes that PyTorch's has, not defaults.
func TestAttributes(t *testing.T) {
	t.Parallel()
	all := map[kernels.Op]int{}
	for _, name := range []string{"tiny", "written", "modules", "transformers"} {
		for _, l := range build(t, name, 3, 0).Layers {
			for _, n := range l.Nodes {
				all[n.Op]++
			}
		}
	}
	for _, op := range []kernels.Op{
		kernels.BatchNorm{Epsilon: 1e-3, Momentum: 0.2, ReLU: true},
		kernels.BatchNorm{Epsilon: 1e-5, Momentum: 0.1, ReLU: true, Residual: true},
		kernels.AvgPool{KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		kernels.MaxPool{KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2},
		kernels.Embedding{Vocabulary: 40, Width: 16, Positions: 12}, kernels.Attention{Heads: 2}, kernels.Attention{Heads: 3}, kernels.GELU{Tanh: true}, kernels.GELU{},
	} {
		if all[op] == 0 {
			t.Errorf("no %T is %+v", op, op)
		}
	}
}

// Arguments that are left out, or empty, have the defaults of PyTorch's schemas.
func TestDefaults(t *testing.T) {
	t.Parallel()
	window := `"kernel_size", "arg": {"as_ints": [2, 2]}, "kind": 1}`
	for what, c := range map[string]struct{ old, to string }{
		"an empty stride":     {window + `, {"name": "stride", "arg": {"as_ints": [2, 2]}`, window + `, {"name": "stride", "arg": {"as_ints": []}`},
		"no stride":           {window + `, {"name": "stride", "arg": {"as_ints": [2, 2]}, "kind": 1}`, window},
		"one number for both": {window, `"kernel_size", "arg": {"as_ints": [2]}, "kind": 1}`},
	} {
		f, err := Read("my.pt2", changed(t, "tiny", model, c.old, c.to))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		m, err := f.Build("my.pt2", models.Config{Batch: 2, Image: 16, Channels: 3, Classes: 10})
		if err != nil {
			t.Fatal(err)
		}
		pool := kernels.MaxPool{KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2}
		if !slices.ContainsFunc(m.Layers[0].Nodes, func(n models.Node) bool { return n.Op == pool }) {
			t.Errorf("%s: %+v", what, m.Layers[0].Nodes)
		}
	}
}

// Parameters and buffers have PyTorch's names, and begin with the archive's elements, whatever the seed.
func TestParameters(t *testing.T) {
	t.Parallel()
	_, archive := fixture(t, "tiny")
	raw := entries(t, archive)
	p, err := readProgram(archive)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, q := range build(t, "tiny", 2, 0).Params() {
		from := p.weights.byName[q.Name]
		got := make([]float32, q.Desc.Elements())
		if models.Init(q, 7, got); from == nil {
			t.Errorf("no tensor is called %s", q.Name)
			continue
		}
		bytes := raw["data/weights/"+from.Path]
		s := q.Desc.Shape
		for i := range got {
			at := i
			if len(s) == 4 { // O,KH,KW,I of O,I,KH,KW
				area := s[1] * s[2]
				o, k, c := i/(area*s[3]), i/s[3]%area, i%s[3]
				at = (o*s[3]+c)*area + k
			}
			if want := math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*at:])); got[i] != want {
				t.Fatalf("%s[%d] is %v, want %v", q.Name, i, got[i], want)
			}
			seen++
		}
	}
	if seen != 1076+2*(4+4) {
		t.Errorf("%d elements", seen)
	}
}

// A weight that two modules share is one parameter, under its first name.
func TestTiedWeights(t *testing.T) {
	t.Parallel()
	m := build(t, "sdpa", 3, 0)
	if tied := m.Layers[len(m.Layers)-2].Tied(); len(tied) != 1 || tied[0].Of == nil || tied[0].Of.Name != "tokens.weight" {
		t.Errorf("tied: %+v", tied)
	}
	if n := m.ParamCount(); n != 7424 {
		t.Errorf("%d parameters, want 7424", n)
	}
}

// A tied weight can have a bias: in its layer, what is tied lies behind the layer's own parameters.
func TestTiedWeightsWithBias(t *testing.T) {
	t.Parallel()
	m := build(t, "distilbert", 3, 0)
	head := m.Layers[len(m.Layers)-2]
	tied, own := head.Tied(), head.Params()
	if len(tied) != 1 || tied[0].Of.Name != "model.distilbert.embeddings.word_embeddings.weight" || len(own) == 0 || own[len(own)-1].Name != "model.vocab_projector.bias" {
		t.Fatalf("%d tied, own %+v", len(tied), own)
	}
	for _, q := range own {
		if q.Value.Offset+q.Value.Bytes > tied[0].Value.Offset || q.Grad.Offset+q.Grad.Bytes > tied[0].Grad.Offset {
			t.Errorf("%s lies at %v and %v, the tied weight at %v and %v", q.Name, q.Value, q.Grad, tied[0].Value, tied[0].Grad)
		}
	}
}

// A classifier of texts has a label for each sample.
func TestClassifiersOfTexts(t *testing.T) {
	t.Parallel()
	m := build(t, "bert_class", 3, 0)
	if !slices.Equal(m.Labels.Shape, kernels.Shape{3}) || m.Classes != 5 {
		t.Errorf("labels %v of %d classes", m.Labels, m.Classes)
	}
}

// Positions pass over the padding token of the graph, norms count from 1, and a part of each head is turned.
func TestOpsOfTexts(t *testing.T) {
	t.Parallel()
	all := map[kernels.Op]int{}
	for _, name := range []string{"roberta", "gemma", "phi"} {
		for _, l := range build(t, name, 3, 0).Layers {
			for _, n := range l.Nodes {
				all[n.Op]++
			}
		}
	}
	for op, want := range map[kernels.Op]int{
		kernels.Embedding{Vocabulary: 40, Width: 16, Positions: 32, Fixed: 2, Uncounted: 2}: 1, kernels.RMSNorm{Epsilon: 1e-6, FromOne: true}: 5,
		kernels.Affine{Factor: 4}: 1, kernels.Rotary{Heads: 4, Dim: 4, Turned: 2, Base: 10000}: 4,
	} {
		if all[op] != want {
			t.Errorf("%d of %+v, want %d of %v", all[op], op, want, all)
		}
	}
}

// A table of positions whose row for the padding token has a gradient is not RoBERTa's.
func TestPositionsOfOtherTables(t *testing.T) {
	t.Parallel()
	_, archive := fixture(t, "roberta")
	all := entries(t, archive)
	at := bytes.LastIndex(all[model], []byte(`"padding_idx"`))
	text := bytes.Replace(all[model][at:], []byte(`"as_int": 1`), []byte(`"as_int": -1`), 1)
	all[model] = slices.Concat(all[model][:at], text)
	_, err := Read("x", packed(t, all))
	if !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), "positions pass over token 1, and row -1 of their table has no gradient (padding_idx): want the same") {
		t.Error(err)
	}
}

// Parameters with axes of 1 keep them in files.
func TestStoredShapes(t *testing.T) {
	t.Parallel()
	shapes := map[string][]int{}
	for _, q := range build(t, "vision", 2, 0).Params() {
		for _, part := range q.Parts {
			shapes[part.Name] = part.Shape
		}
	}
	if !slices.Equal(shapes["token"], []int{1, 1, 8}) || !slices.Equal(shapes["positions"], []int{1, 5, 8}) || len(shapes) != 2 {
		t.Errorf("%v", shapes)
	}
}

// A trained parameter that has bytes in common with another tensor in another layout is refused: it would be two parameters.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	at := func(v int64) extent { return extent{Int: &v} }
	type part struct {
		path         string
		param, train bool
		from         int64
		sizes        []int64
		strides      []int64
	}
	for what, c := range map[string]struct {
		all  []part
		want int // that is refused; 0: none
		with string
	}{
		"transposed":            {[]part{{"f", true, true, 0, []int64{4, 4}, []int64{4, 1}}, {"f", true, true, 0, []int64{4, 4}, []int64{1, 4}}}, 1, "0"},
		"a part":                {[]part{{"f", true, true, 0, []int64{16}, []int64{1}}, {"f", true, true, 4, []int64{4}, []int64{1}}}, 1, "0"},
		"a buffer's part":       {[]part{{"f", false, false, 0, []int64{16}, []int64{1}}, {"f", true, true, 4, []int64{4}, []int64{1}}}, 1, "0"},
		"a part that is frozen": {[]part{{"f", true, true, 0, []int64{16}, []int64{1}}, {"f", true, false, 4, []int64{4}, []int64{1}}}, 1, "0"},
		"behind a shorter one": {[]part{{"f", true, true, 0, []int64{16}, []int64{1}}, {"f", false, false, 16, []int64{1}, []int64{1}},
			{"f", false, false, 15, []int64{1}, []int64{1}}}, 2, "0"},
		"one behind the other": {[]part{{"f", true, true, 0, []int64{2, 4}, []int64{4, 1}}, {"f", true, true, 8, []int64{8}, []int64{1}}}, 0, ""},
		"none trains":          {[]part{{"f", true, false, 0, []int64{4, 4}, []int64{4, 1}}, {"f", false, false, 0, []int64{4, 4}, []int64{1, 4}}}, 0, ""},
		"two files":            {[]part{{"f", true, true, 0, []int64{4, 4}, []int64{4, 1}}, {"g", true, true, 0, []int64{4, 4}, []int64{1, 4}}}, 0, ""},
	} {
		all := &tensors{}
		for i, p := range c.all {
			s := &stored{Name: fmt.Sprint(i), Path: p.path, Param: p.param, Meta: meta{DType: 7, Requires: p.train, Offset: at(p.from)}}
			s.tensor = &importer.Tensor{Dims: p.sizes, DType: importer.Float32, Raw: make([]byte, 64)}
			for _, stride := range p.strides {
				s.Meta.Strides = append(s.Meta.Strides, at(stride))
			}
			all.all = append(all.all, s)
		}
		all.refuseOverlaps()
		for i, s := range all.all {
			want := ""
			if c.want > 0 && i == c.want {
				want = fmt.Sprintf(`tensor "%d" shares memory with %q in another layout, which is not supported: clone() it before the export`, i, c.with)
			}
			if err := s.tensor.Err; (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("%s: %d: %v, want %s", what, i, err, want)
			}
		}
	}
	// In a whole archive: the bias of a norm is the first numbers of a kernel.
	_, err := Read("my.pt2", changed(t, "tiny", weights, `"stem.1.bias": {"path_name": "weight_2"`, `"stem.1.bias": {"path_name": "weight_3"`))
	if want := `tensor "conv1.weight" shares memory with "stem.1.bias"`; !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A tensor whose strides are not those of its axes is read as PyTorch reads it.
func TestStrides(t *testing.T) {
	t.Parallel()
	raw := make([]byte, 4*13)
	for i := range 13 {
		raw[4*i] = byte(i)
	}
	at := func(v int64) extent { return extent{Int: &v} }
	for _, c := range []struct {
		sizes, strides []int64
		offset         int64
		want           []byte
	}{
		{[]int64{2, 3}, []int64{3, 1}, 0, []byte{0, 1, 2, 3, 4, 5}},
		{[]int64{2, 3}, []int64{3, 1}, 7, []byte{7, 8, 9, 10, 11, 12}},
		{[]int64{2, 3}, []int64{3, 1}, 8, nil},
		{[]int64{2, 3}, []int64{1, 2}, 1, []byte{1, 3, 5, 2, 4, 6}},
		{[]int64{2, 3}, []int64{1, 6}, 0, []byte{0, 6, 12, 1, 7, 13}[:0]},
		{[]int64{1, 3, 2}, []int64{99, 1, 4}, 0, []byte{0, 4, 1, 5, 2, 6}},
		{[]int64{4, 4}, []int64{0, 1}, 0, nil},
		{[]int64{2}, []int64{math.MaxInt64}, 0, nil},
		{[]int64{2}, []int64{1}, math.MaxInt64, nil},
		{[]int64{}, []int64{}, 3, []byte{3}},
	} {
		m, tensor, n := &meta{Offset: at(c.offset)}, &importer.Tensor{DType: importer.Int32, Dims: c.sizes}, int64(1)
		for i, s := range c.strides {
			m.Strides = append(m.Strides, at(s))
			n *= c.sizes[i]
		}
		got, err := (&archive{}).elements(raw, m, tensor, n)
		var low []byte
		for i := 0; i < len(got); i += 4 {
			low = append(low, got[i])
		}
		if (err != nil) != (len(c.want) == 0) || !bytes.Equal(low, c.want) {
			t.Errorf("%v by %v from %d: %v, %v, want %v", c.sizes, c.strides, c.offset, low, err, c.want)
		}
	}
}

// A refused op is named with the user's file and line, and its module.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	buffer := `"is_param": true`
	for _, c := range []struct {
		archive []byte
		want    string
	}{
		{changed(t, "tiny", model, "aten.max_pool2d.default", "aten.lstm.input"), "aten.lstm at torch_export.py:37 (self.stem.3): the op is not supported"},
		{changed(t, "tiny", model, `"groups"`, `"gruops"`), "aten.conv2d at torch_export.py:38 (self.conv1): argument gruops is not supported"},
		{changed(t, "tiny", model, "aten.relu.default", "aten.bernoulli.default"), "(self.stem.2): the op is not supported: switch stochastic depth off"},
		{changed(t, "tiny", model, "aten.relu.default", "aten.celu.default"), "aten.celu at torch_export.py:37 (self.stem.2): the op is not supported"},
		{changed(t, "written", model, `"value", "arg": {"as_float": "-Infinity"}`, `"value", "arg": {"as_float": 0.0}`), "scores are replaced by 0, and only by a number up to -10000"},
		{changed(t, "modules", model, `"dropout_p", "arg": {"as_float": 0.0}`, `"dropout_p", "arg": {"as_float": 0.1}`), "argument dropout_p is 0.1"},
		{changed(t, "tiny", weights, buffer, `"is_param": false`), `aten.conv2d at torch_export.py:37 (self.stem.0): "stem.0.weight" is a buffer`},
		{changed(t, "tiny", weights, `"use_pickle": false`, `"use_pickle": true`), `tensor "stem.0.weight" is a pickle, which is not read because that runs code`},
		{changed(t, "tiny", weights, `"dtype": 7`, `"dtype": 13`), `tensor "stem.0.weight" is of dtype 13`},
		{changed(t, "written", weights, `"blocks.0.seen": {"path_name": "weight_35", "is_param": false`, `"blocks.0.seen": {"path_name": "weight_35", "is_param": true`,
			`"requires_grad": false`, `"requires_grad": true`), `parameter "blocks.0.seen" is read as a constant, which would not train`},
		{changed(t, "tiny", model, "aten.relu.default", "aten.bitwise_not.default"), "aten.bitwise_not at torch_export.py:37 (self.stem.2): argument self is of no bool"},
		{changed(t, "tiny", model, "aten.add.Tensor", "aten.__and__.Tensor"), "argument self is of no bool, and bits of numbers are not supported: want logical_and"},
		{changed(t, "tiny", model, "aten.add.Tensor", "aten.bitwise_or.Tensor"), "argument self is of no bool"},
		{changed(t, "tiny", model, `"user_output"`, `"buffer_mutation"`), "without run_decompositions()"},
	} {
		_, err := Read("my.pt2", c.archive)
		if !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), "my.pt2") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// A tensor that is read under one name after an in-place op has changed it under another is refused; what reads the op's own output is not.
func TestAliases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		steps []string // "v = view x"
		read  string
		stale bool
	}{
		{[]string{"x = conv2d i", "y = relu_ x"}, "y", false},
		{[]string{"x = conv2d i", "y = relu_ x"}, "x", true},
		{[]string{"x = conv2d i", "v = view x", "y = relu_ v"}, "x", true},
		{[]string{"x = conv2d i", "v = view x", "y = relu_ x"}, "v", true},
		{[]string{"x = conv2d i", "v = view x", "y = relu_ v", "w = view y"}, "w", false},
		{[]string{"x = conv2d i", "v = view x", "w = transpose v", "y = add_ w x"}, "v", true},
		{[]string{"x = conv2d i", "v = relu x", "y = add_ v x"}, "x", false},
		{[]string{"x = conv2d i", "y = add_ x i", "z = mul_ y i"}, "y", true},
		{[]string{"x = conv2d i", "y = add_ x i", "z = mul_ y i"}, "z", false},
		{[]string{"x = __and__ i i"}, "i", false},
		{[]string{"x = __iand__ i i"}, "i", true},
	} {
		a := newAliases()
		a.add("i")
		for _, s := range c.steps {
			f := strings.Fields(s)
			a.follow(&node{Target: "torch.ops.aten." + f[2] + ".default", Outputs: output(f[0])}, f[3:])
		}
		if got := a.stale(c.read); got != c.stale {
			t.Errorf("%v: %s is stale: %v", c.steps, c.read, got)
		}
	}
	// In a whole archive: the stem's ReLU changes what the norm made, and the pool reads that under the norm's name.
	pool := `{"target": "torch.ops.aten.max_pool2d.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": `
	archive := changed(t, "tiny", model, "aten.relu.default", "aten.relu_.default", pool+`"relu"`, pool+`"batch_norm"`)
	_, err := Read("my.pt2", archive)
	if want := "(self.stem.3): it reads a tensor that aten.relu_ at torch_export.py:37 (self.stem.2) has changed in place"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := Read("my.pt2", changed(t, "tiny", model, "aten.relu.default", "aten.relu_.default")); err != nil {
		t.Error(err)
	}
}

func output(name string) list[argument] {
	return list[argument]{{"as_tensor", fmt.Appendf(nil, `{"name": %q}`, name)}}
}

// Losses of steps do not tell whether all parameters train: the counts of the program and of the model are compared, and said.
func TestWhatIsReadIsSaid(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"tiny":    "2 batchnorm, 3 conv2d, 2 linear; 13 parameters of 1,076 numbers train, as in PyTorch; 4 of 6 buffers move",
		"sdpa":    "1 embedding, 5 layernorm, 9 linear; 28 parameters of 7,424 numbers train, as in PyTorch; 0 of 2 buffers move",
		"written": "1 embedding, 5 layernorm, 13 linear; 35 parameters of 8,032 numbers train, as in PyTorch; 0 of 2 buffers move",
	} {
		_, archive := fixture(t, name)
		f, err := Read("my.pt2", archive)
		if err != nil || len(f.About) != 1 || f.About[0] != want {
			t.Errorf("%s: %q, %v, want %s", name, f.About, err, want)
		}
	}
}

// Dropouts and norms that were exported in evaluation mode are said.
func TestDropoutsThatAreOffAreSaid(t *testing.T) {
	t.Parallel()
	f, err := Read("my.pt2", changed(t, "modules", model, `"train", "arg": {"as_bool": true}`, `"train", "arg": {"as_bool": false}`))
	if err != nil || len(f.About) != 1 {
		t.Errorf("of a probability of 0: %q, %v", f.About, err)
	}
	f, err = Read("my.pt2", changed(t, "modules", model, `"p", "arg": {"as_float": 0.0}`, `"p", "arg": {"as_float": 0.5}`, `"train", "arg": {"as_bool": true}`, `"train", "arg": {"as_bool": false}`))
	if err != nil || len(f.About) != 2 || !strings.HasPrefix(f.About[1], "in evaluation mode, as exported: 1 dropout; call model.train()") {
		t.Errorf("%q, %v", f.About, err)
	}
	f, err = Read("my.pt2", changed(t, "tiny", model, `"training", "arg": {"as_bool": true}`, `"training", "arg": {"as_bool": false}`))
	if err != nil || len(f.About) != 2 || !strings.HasSuffix(f.About[0], "2 of 6 buffers move") || !strings.HasPrefix(f.About[1], "in evaluation mode, as exported: 1 batch norm with fixed statistics") {
		t.Errorf("%q, %v", f.About, err)
	}
}

// Any batch will do, and other images where no weight depends on their size.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		batch, image int
	}{{"tiny", 1, 16}, {"tiny", 5, 16}, {"branches", 3, 21}, {"skips", 7, 16}, {"sdpa", 5, 12}, {"written", 4, 12}, {"modules", 1, 8}, {"modules", 5, 8}, {"transformers", 4, 12}} {
		if in := build(t, c.name, c.batch, c.image).Input.Shape; in[0] != c.batch || in[1] != c.image {
			t.Errorf("%v: %v", c, in)
		}
	}
	path, _ := fixture(t, "sdpa")
	_, err := models.New(path, models.Config{Batch: 2, Image: 8, Classes: 40})
	if want := "samples of 8 tokens: aten.add at torch_export.py:"; !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A mask of padding is read where attention is causal, which is said; elsewhere positions would see padding, which is refused.
func TestMaskOfPadding(t *testing.T) {
	t.Parallel()
	path, archive := fixture(t, "llama_masked")
	f, err := Read(path, archive)
	if err != nil || !f.Text || !slices.ContainsFunc(f.About, func(s string) bool { return strings.HasPrefix(s, "attention_mask hides nothing here") }) {
		t.Errorf("%+v, %v", f, err)
	}
	if in := build(t, "llama_masked", 3, 0).Input.Shape; !slices.Equal(in, kernels.Shape{3, 12}) {
		t.Errorf("%v", in)
	}
	_, encoder := fixture(t, "bert_masked")
	const mask = `"attention_mask": {"dtype": 5, "sizes": [{"as_int": 3}, {"as_int": 12}]`
	for what, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"an encoder":    {encoder, "positions may see later ones here, which may be padding: only causal attention is supported with it"},
		"another shape": {changed(t, "llama_masked", model, mask, strings.Replace(mask, "12", "13", 1)), "want a mask of the tokens N,T"},
		"another name":  {[]byte(nil), "it has 2 inputs and 1 outputs"},
	} {
		if c.archive == nil {
			all := entries(t, archive)
			all[model] = bytes.ReplaceAll(all[model], []byte("attention_mask"), []byte("token_type_ids"))
			c.archive = packed(t, all)
		}
		if _, err := Read("my.pt2", c.archive); !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

// A shape that begins with the number of the export's batch by chance, behind a turn that puts the batch last, does not follow another batch.
func TestBatchBehindOtherAxes(t *testing.T) {
	t.Parallel()
	if in := build(t, "turned", 4, 0).Input.Shape; in[0] != 4 {
		t.Errorf("%v", in)
	}
	path, _ := fixture(t, "turned")
	_, err := models.New(path, models.Config{Batch: 2, Image: 4, Channels: 3, Classes: 10})
	if want := "its ops hold the batch of 4 that it was exported with, and do not run with 2: give --batch 4"; !errors.Is(err, models.ErrConfig) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A norm with training=False computes with its running statistics, which training leaves as they are.
func TestFrozenStatistics(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "frozen.pt2")
	archive := changed(t, "tiny", model, `"training", "arg": {"as_bool": true}`, `"training", "arg": {"as_bool": false}`)
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := models.New(path, models.Config{Batch: 2, Image: 16, Classes: 10})
	if err != nil {
		t.Fatal(err)
	}
	var frozen []bool
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			if norm, is := n.Op.(kernels.BatchNorm); is {
				frozen = append(frozen, norm.Frozen)
			}
		}
	}
	if !slices.Equal(frozen, []bool{true, false}) {
		t.Errorf("%v", frozen)
	}
}

// Exactly the parameters train that have a gradient in PyTorch; a file without one is refused.
func TestFrozenParameters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "frozen.pt2")
	build := func(archive []byte) (*models.Model, string, error) {
		if err := os.WriteFile(path, archive, 0o600); err != nil {
			t.Fatal(err)
		}
		f, _, err := models.Open(path)
		if err != nil {
			return nil, "", err
		}
		m, err := models.New(path, models.Config{Batch: 2, Image: f.Image, Classes: f.Classes})
		return m, strings.Join(f.About, "; "), err
	}
	m, about, err := build(changed(t, "tiny", weights, `"requires_grad": true`, `"requires_grad": false`))
	if err != nil {
		t.Fatal(err)
	}
	var frozen []string
	for _, p := range m.Params() {
		if p.Frozen {
			frozen = append(frozen, p.Name)
		}
	}
	if !slices.Equal(frozen, []string{"stem.0.weight"}) || !strings.Contains(about, "12 parameters of 968 numbers train") || !strings.Contains(about, "1 parameter frozen") {
		t.Errorf("%v: %s", frozen, about)
	}
	_, archive := fixture(t, "tiny")
	all := entries(t, archive)
	all[weights] = bytes.ReplaceAll(all[weights], []byte(`"requires_grad": true`), []byte(`"requires_grad": false`))
	path = filepath.Join(t.TempDir(), "all.pt2")
	if _, _, err := build(packed(t, all)); !errors.Is(err, models.ErrConfig) || !strings.Contains(err.Error(), "is frozen: leave some to train") {
		t.Errorf("%v", err)
	}
}

// A model of numbers reads N,F or N,C,T in PyTorch's order. It gives a sample a class, or each of fewer positions.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ input, labels kernels.Shape }{
		"rows": {kernels.Shape{3, 13}, kernels.Shape{3}}, "frames": {kernels.Shape{3, 5, 24}, kernels.Shape{3}},
		"positions": {kernels.Shape{3, 5, 24}, kernels.Shape{3, 6}}, "whisper_encoder": {kernels.Shape{3, 6, 24}, kernels.Shape{3}},
	} {
		m := build(t, name, 3, 0)
		if !slices.Equal(m.Input.Shape, want.input) || m.Input.DType != kernels.Float32 || !slices.Equal(m.Labels.Shape, want.labels) {
			t.Errorf("%s: input %v, labels %v", name, m.Input, m.Labels)
		}
	}
	if in := build(t, "frames", 2, 40).Input.Shape; in[2] != 40 {
		t.Errorf("%v", in)
	}
	const of = `"x": {"dtype": 7, "sizes": [{"as_int": 8}, `
	for what, c := range map[string]struct{ to, want string }{
		"features are open": {`"x": {"dtype": 7, "sizes": [{"as_int": 8}, {"as_name": "f"}], "was": [{"as_int": 8}, `, "is float32[8 0]: want N,F or N,C,T, of which only N and T may be open"},
		"five axes":         {`"x": {"dtype": 7, "sizes": [{"as_int": 8}, {"as_int": 1}, {"as_int": 1}, {"as_int": 1}, `, "want float32, N,C,H,W with as many rows as columns, N,C,T or N,F, or tokens N,T"},
		"float64":           {`"x": {"dtype": 8, "sizes": [{"as_int": 8}, `, "is float64[8 13]"},
	} {
		if _, err := Read("my.pt2", changed(t, "rows", model, of, c.to)); !errors.Is(err, importer.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}
