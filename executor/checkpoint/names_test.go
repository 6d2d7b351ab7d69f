package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
)

// stateDict is the names and shapes of a PyTorch module's tensors in their order, by the rules of torch.nn: what a
// module of each kind registers.
type stateDict []safetensors.Info

func (d *stateDict) put(name string, dtype safetensors.DType, shape ...int) {
	*d = append(*d, safetensors.Info{Name: name, DType: dtype, Shape: shape})
}

func (d *stateDict) conv(name string, out, in, kernel int) {
	d.put(name+".weight", safetensors.F32, out, in, kernel, kernel)
}

func (d *stateDict) norm(name string, channels int) {
	for _, field := range []string{"weight", "bias", "running_mean", "running_var"} {
		d.put(name+"."+field, safetensors.F32, channels)
	}
	d.put(name+".num_batches_tracked", safetensors.I64)
}

func (d *stateDict) linear(name string, out, in int) {
	d.put(name+".weight", safetensors.F32, out, in)
	d.put(name+".bias", safetensors.F32, out)
}

// torchResNet is torchvision's ResNet: conv1, bn1, layer1 to layer4, fc. A basic block has two convolutions of 3x3. A bottleneck has
// convolutions of 1x1, 3x3 and 1x1 with four times the width. Where stride or width change, downsample is a convolution (0) and a norm (1).
func torchResNet(bottleneck bool, classes int, blocks ...int) stateDict {
	var d stateDict
	d.conv("conv1", 64, 3, 7)
	d.norm("bn1", 64)
	in, expansion := 64, 1
	if bottleneck {
		expansion = 4
	}
	for group, n := range blocks {
		width := 64 * (1 << group)
		for block := range n {
			prefix := fmt.Sprintf("layer%d.%d.", group+1, block)
			widths, kernels := []int{width, width}, []int{3, 3}
			if bottleneck {
				widths, kernels = []int{width, width, 4 * width}, []int{1, 3, 1}
			}
			from := in
			for k, w := range widths {
				d.conv(fmt.Sprintf("%sconv%d", prefix, k+1), w, from, kernels[k])
				d.norm(fmt.Sprintf("%sbn%d", prefix, k+1), w)
				from = w
			}
			if block == 0 && (group > 0 || in != width*expansion) {
				d.conv(prefix+"downsample.0", width*expansion, in, 1)
				d.norm(prefix+"downsample.1", width*expansion)
			}
			in = width * expansion
		}
	}
	d.linear("fc", classes, in)
	return d
}

// torchDenseNet is torchvision's DenseNet: everything but the classifier under "features".
func torchDenseNet(growth, width, classes int, blocks ...int) stateDict {
	var d stateDict
	d.conv("features.conv0", width, 3, 7)
	d.norm("features.norm0", width)
	for i, n := range blocks {
		for j := range n {
			prefix := fmt.Sprintf("features.denseblock%d.denselayer%d.", i+1, j+1)
			d.norm(prefix+"norm1", width)
			d.conv(prefix+"conv1", 4*growth, width, 1)
			d.norm(prefix+"norm2", 4*growth)
			d.conv(prefix+"conv2", growth, 4*growth, 3)
			width += growth
		}
		if i < len(blocks)-1 {
			prefix := fmt.Sprintf("features.transition%d.", i+1)
			d.norm(prefix+"norm", width)
			d.conv(prefix+"conv", width/2, width, 1)
			width /= 2
		}
	}
	d.norm("features.norm5", width)
	d.linear("classifier", classes, width)
	return d
}

// torchVGG16 is torchvision's VGG with configuration D: features counts convolutions, norms, ReLUs and pools, classifier
// linear layers, ReLUs and dropouts.
func torchVGG16(norm bool, classes int) stateDict {
	var d stateDict
	in, at := 3, 0
	for _, width := range []int{64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0} {
		if width == 0 { // a pool
			at++
			continue
		}
		d.conv(fmt.Sprintf("features.%d", at), width, in, 3)
		d.put(fmt.Sprintf("features.%d.bias", at), safetensors.F32, width)
		at += 2
		if norm {
			d.norm(fmt.Sprintf("features.%d", at-1), width)
			at++
		}
		in = width
	}
	d.linear("classifier.0", 4096, 512*7*7)
	d.linear("classifier.3", 4096, 4096)
	d.linear("classifier.6", classes, 4096)
	return d
}

// torchInception3 is torchvision's Inception v3 without auxiliary classifier: every unit a convolution without bias and
// a norm, written as name, outputs, inputs, height and width.
func torchInception3(classes int) stateDict {
	var d stateDict
	prefix := ""
	units := func(text string) {
		fields := strings.Fields(text)
		for ; len(fields) >= 5; fields = fields[5:] {
			var n [4]int
			for i := range n {
				n[i], _ = strconv.Atoi(fields[i+1])
			}
			d.put(prefix+fields[0]+".conv.weight", safetensors.F32, n[:]...)
			d.norm(prefix+fields[0]+".bn", n[0])
		}
	}
	units(`Conv2d_1a_3x3 32 3 3 3  Conv2d_2a_3x3 32 32 3 3  Conv2d_2b_3x3 64 32 3 3  Conv2d_3b_1x1 80 64 1 1
		Conv2d_4a_3x3 192 80 3 3`)
	for _, a := range []struct {
		block      string
		in, pooled int
	}{{"5b", 192, 32}, {"5c", 256, 64}, {"5d", 288, 64}} {
		prefix = "Mixed_" + a.block + "."
		units(fmt.Sprintf(`branch1x1 64 %[1]d 1 1  branch5x5_1 48 %[1]d 1 1  branch5x5_2 64 48 5 5  branch3x3dbl_1 64 %[1]d 1 1
			branch3x3dbl_2 96 64 3 3  branch3x3dbl_3 96 96 3 3  branch_pool %[2]d %[1]d 1 1`, a.in, a.pooled))
	}
	prefix = "Mixed_6a."
	units(`branch3x3 384 288 3 3  branch3x3dbl_1 64 288 1 1  branch3x3dbl_2 96 64 3 3  branch3x3dbl_3 96 96 3 3`)
	for i, c := range []int{128, 160, 160, 192} {
		prefix = fmt.Sprintf("Mixed_6%c.", 'b'+i)
		units(fmt.Sprintf(`branch1x1 192 768 1 1  branch7x7_1 %[1]d 768 1 1  branch7x7_2 %[1]d %[1]d 1 7  branch7x7_3 192 %[1]d 7 1
			branch7x7dbl_1 %[1]d 768 1 1  branch7x7dbl_2 %[1]d %[1]d 7 1  branch7x7dbl_3 %[1]d %[1]d 1 7
			branch7x7dbl_4 %[1]d %[1]d 7 1  branch7x7dbl_5 192 %[1]d 1 7  branch_pool 192 768 1 1`, c))
	}
	prefix = "Mixed_7a."
	units(`branch3x3_1 192 768 1 1  branch3x3_2 320 192 3 3  branch7x7x3_1 192 768 1 1  branch7x7x3_2 192 192 1 7
		branch7x7x3_3 192 192 7 1  branch7x7x3_4 192 192 3 3`)
	for i, in := range []int{1280, 2048} {
		prefix = fmt.Sprintf("Mixed_7%c.", 'b'+i)
		units(fmt.Sprintf(`branch1x1 320 %[1]d 1 1  branch3x3_1 384 %[1]d 1 1  branch3x3_2a 384 384 1 3  branch3x3_2b 384 384 3 1
			branch3x3dbl_1 448 %[1]d 1 1  branch3x3dbl_2 384 448 3 3  branch3x3dbl_3a 384 384 1 3  branch3x3dbl_3b 384 384 3 1
			branch_pool 192 %[1]d 1 1`, in))
	}
	d.linear("fc", classes, 2048)
	return d
}

// elements counts the trained ones.
func (d stateDict) elements() int {
	sum := 0
	for _, x := range d {
		if !strings.Contains(x.Name, ".running_") && !strings.HasSuffix(x.Name, countSuffix) {
			sum += elementsOf(x)
		}
	}
	return sum
}

// TestTorchvisionNames: every tensor of an exported file has the name, type and shape of torchvision's, none is
// missing, none is more. The rules themselves are checked by the published numbers of parameters.
func TestTorchvisionNames(t *testing.T) {
	t.Parallel()
	cases := []struct {
		model    string
		want     stateDict
		tensors  int
		elements int
	}{
		{"resnet18", torchResNet(false, 1000, 2, 2, 2, 2), 122, 11_689_512},
		{"resnet34", torchResNet(false, 1000, 3, 4, 6, 3), 218, 21_797_672},
		{"resnet50", torchResNet(true, 1000, 3, 4, 6, 3), 320, 25_557_032},
		{"resnet101", torchResNet(true, 1000, 3, 4, 23, 3), 626, 44_549_160},
		{"resnet152", torchResNet(true, 1000, 3, 8, 36, 3), 932, 60_192_808},
		{"densenet121", torchDenseNet(32, 64, 1000, 6, 12, 24, 16), 727, 7_978_856},
		{"densenet161", torchDenseNet(48, 96, 1000, 6, 12, 36, 24), 967, 28_681_000},
		{"densenet169", torchDenseNet(32, 64, 1000, 6, 12, 32, 32), 1015, 14_149_480},
		{"densenet201", torchDenseNet(32, 64, 1000, 6, 12, 48, 32), 1207, 20_013_928},
		{"vgg16", torchVGG16(false, 1000), 32, 138_357_544},
		{"vgg16_bn", torchVGG16(true, 1000), 97, 138_365_992},
		{"inception_v3", torchInception3(1000), 566, 23_834_568},
	}
	for _, c := range cases {
		if len(c.want) != c.tensors || c.want.elements() != c.elements {
			t.Errorf("%s: the rules give %d tensors with %d trained elements, published are %d with %d",
				c.model, len(c.want), c.want.elements(), c.tensors, c.elements)
		}
		var got stateDict
		for _, x := range collect(zoo(t, c.model, 1000), inference, Batches{}) {
			got = append(got, x.Info)
		}
		byName := func(a, b safetensors.Info) int { return cmp.Compare(a.Name, b.Name) }
		slices.SortFunc(got, byName)
		slices.SortFunc(c.want, byName)
		for i := range min(len(got), len(c.want)) {
			if g, w := fmt.Sprint(got[i]), fmt.Sprint(c.want[i]); g != w {
				t.Fatalf("%s: got %s, want %s", c.model, g, w)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: got %d tensors, want %d", c.model, len(got), len(c.want))
		}
	}
}

// torchFile puts a file together as PyTorch's users have it, with element number i of tensor k being value(k, i), or
// all zero without a value. It does not use the writer under test.
func torchFile(t testing.TB, d stateDict, value func(k, i int) float32) string {
	t.Helper()
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data []byte
	end := 0
	for k, x := range d {
		begin := end
		end += elementsOf(x) * int(x.DType.Size())
		header[x.Name] = map[string]any{"dtype": x.DType, "shape": append([]int{}, x.Shape...), "data_offsets": []int{begin, end}}
		for i, n := 0, elementsOf(x); value != nil && i < n; i++ {
			if x.DType == safetensors.I64 {
				data = binary.LittleEndian.AppendUint64(data, uint64(k))
			} else {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value(k, i)))
			}
		}
	}
	text, err := json.Marshal(header)
	must(t, err)
	path := save(t, append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...))
	must(t, os.Truncate(path, int64(8+len(text)+end)))
	return path
}

// imported is Import where nothing may go wrong.
func imported(t testing.TB, path string, into Model) map[string]int64 {
	t.Helper()
	seen, err := Import(path, into)
	must(t, err)
	return seen
}

func mixed(k, i int) float32 { return float32(k*31+i%8191) + 0.5 }

// TestTorchvisionFiles: files with torchvision's names load into our models, every element at its place, and what is
// exported again has the same tensors. The names that old DenseNet files and PyTorch's wrappers use are understood.
func TestTorchvisionFiles(t *testing.T) {
	t.Parallel()
	old := strings.NewReplacer("norm1.", "norm.1.", "norm2.", "norm.2.", "conv1.", "conv.1.", "conv2.", "conv.2.")
	for _, c := range []struct {
		model  string
		dict   stateDict
		rename func(string) string
	}{
		{"resnet18", torchResNet(false, 10, 2, 2, 2, 2), func(name string) string { return "module._orig_mod." + name }},
		{"densenet121", torchDenseNet(32, 64, 10, 6, 12, 24, 16), old.Replace},
	} {
		t.Run(c.model, func(t *testing.T) {
			theirs := slices.Clone(c.dict)
			for i := range theirs {
				theirs[i].Name = c.rename(theirs[i].Name)
			}
			m := zoo(t, c.model, 10)
			m.values = map[string][]float32{}
			seen := imported(t, torchFile(t, theirs, mixed), m)
			compareAll(t, m, c.dict)

			path := filepath.Join(t.TempDir(), "final.safetensors")
			must(t, Export(path, m, Batches{Before: seen, Since: 77}, nil))
			f, err := safetensors.Open(path)
			must(t, err)
			defer func() { must(t, f.Close()) }()
			if !maps.Equal(f.Metadata(), map[string]string{"format": "pt"}) || len(f.Tensors()) != len(c.dict) {
				t.Errorf("exported: %v, %d tensors", f.Metadata(), len(f.Tensors()))
			}
			for k, x := range c.dict {
				if info, _ := f.Tensor(x.Name); info.DType != x.DType || !slices.Equal(info.Shape, x.Shape) {
					t.Fatalf("exported: %v, want %v", info, x)
				}
				if x.DType != safetensors.I64 {
					continue
				}
				if n, err := f.Int64(x.Name); n != int64(k)+77 || err != nil { // what torchFile has counted, and 77 more
					t.Fatalf("exported: %s is %d, %v, want %d", x.Name, n, err, k+77)
				}
			}
			again := zoo(t, c.model, 10)
			again.values = map[string][]float32{}
			imported(t, path, again)
			if name := differs(m, again, inference); name != "" {
				t.Errorf("%s changed on its way out and in", name)
			}
		})
	}
}

func elementsOf(x safetensors.Info) int {
	n := 1
	for _, extent := range x.Shape {
		n *= extent
	}
	return n
}

// compareAll checks every element of a model against its place in a state dict: (o,h,w,i) against (o,i,h,w).
func compareAll(t *testing.T, m *memory, d stateDict) {
	t.Helper()
	got := map[string][]float32{}
	for _, x := range m.tensors {
		if inference(x.Role) {
			got[x.Name] = m.values[key(x)]
		} else if m.values[key(x)] != nil {
			t.Fatalf("%s was loaded", key(x))
		}
	}
	for k, x := range d {
		if x.DType == safetensors.I64 {
			continue
		}
		s, values := append(slices.Clone(x.Shape), 1, 1, 1)[:4], got[x.Name]
		for i := range elementsOf(x) {
			at := i
			if len(x.Shape) == 4 {
				o, c, y, w := i/(s[1]*s[2]*s[3]), i/(s[2]*s[3])%s[1], i/s[3]%s[2], i%s[3]
				at = ((o*s[2]+y)*s[3]+w)*s[1] + c
			}
			if values[at] != mixed(k, i) {
				t.Fatalf("%s[%d] is %g, want %g", x.Name, i, values[at], mixed(k, i))
			}
		}
	}
}

// TestImportCheckpoint: the weights of a checkpoint are a file of weights; its states are left.
func TestImportCheckpoint(t *testing.T) {
	t.Parallel()
	from, into := little(1), little(2)
	imported(t, save(t, encode(t, from, someMeta(3))), into)
	if name := differs(from, into, inference); name != "" {
		t.Errorf("%s was not loaded", name)
	}
	if name := differs(little(2), into, func(role string) bool { return !inference(role) }); name != "" {
		t.Errorf("%s was loaded", name)
	}
}

// TestImportErrors: every tensor that does not fit is listed, and nothing is loaded.
func TestImportErrors(t *testing.T) {
	t.Parallel()
	dict := torchResNet(false, 10, 2, 2, 2, 2)
	index := func(name string) int {
		return slices.IndexFunc(dict, func(x safetensors.Info) bool { return x.Name == name })
	}
	for _, c := range []struct {
		change func(d stateDict) stateDict
		want   string
	}{
		{func(d stateDict) stateDict { return d[:len(d)-2] }, "2 missing: fc.weight, fc.bias"},
		{func(d stateDict) stateDict { d.put("fc2.bias", safetensors.F32, 3); return d }, "1 unexpected: fc2.bias"},
		{func(d stateDict) stateDict { d.put("AuxLogits.fc.bias", safetensors.F32, 3); return d }, ""},
		{func(d stateDict) stateDict { d.put("optimizer.x", safetensors.F32, 3); return d }, ""},
		{func(d stateDict) stateDict { d.put("x.num_batches_tracked", safetensors.I64); return d }, ""},
		{func(d stateDict) stateDict { d.put("x.num_batches_tracked", safetensors.F32); return d }, "1 unexpected: x.num_batches_tracked"},
		{func(d stateDict) stateDict {
			d[index("fc.weight")].Shape = []int{512, 10}
			d[index("conv1.weight")].Shape = []int{64, 7, 7, 3}
			return d
		}, "2 of another shape: conv1.weight is [64 7 7 3], the model's is [64 3 7 7], fc.weight is [512 10], the model's is [10 512]"},
		{func(d stateDict) stateDict { d.put("module.fc.bias", safetensors.F32, 10); return d }, `tensor "module.fc.bias": it means "fc.bias", as "fc.bias" does`},
		{func(d stateDict) stateDict { return d[:1] }, "missing: bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var, layer1.0.conv1.weight, " +
			"layer1.0.bn1.weight, layer1.0.bn1.bias, layer1.0.bn1.running_mean and 93 more"},
	} {
		m := zoo(t, "resnet18", 10)
		m.values = map[string][]float32{}
		changed := c.change(slices.Clone(dict))
		path := torchFile(t, changed, nil)
		_, err := Import(path, m)
		auxiliary, unfit := Fits(path, m.tensors)
		left := 0
		for _, x := range changed {
			if strings.HasPrefix(x.Name, auxPrefix) {
				left++
			}
		}
		if fmt.Sprint(unfit) != fmt.Sprint(err) || auxiliary != left && err == nil {
			t.Errorf("it fits with %d auxiliary tensors, %v; want %d, %v", auxiliary, unfit, left, err)
		}
		if c.want == "" {
			if err != nil || len(m.values) != 102 {
				t.Errorf("%d tensors were loaded, %v", len(m.values), err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) || len(m.values) > 0 {
			t.Errorf("%d tensors were loaded;\n got %v\nwant %s", len(m.values), err, c.want)
		}
		if bad := (*TensorsError)(nil); errors.As(err, &bad) == strings.Contains(c.want, "it means") {
			t.Errorf("the error is a %T", err)
		}
	}
}

func binaryOf(data any) func(io.Writer) error {
	return func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, data) }
}

// TestImportConverts: other element types become the same numbers.
func TestImportConverts(t *testing.T) {
	t.Parallel()
	m := &memory{}
	m.add("fc.weight", "weight", 2, 2)
	m.values = map[string][]float32{}
	var b bytes.Buffer
	must(t, safetensors.Write(&b, nil, []safetensors.Tensor{{
		Info: safetensors.Info{Name: "fc.weight", DType: safetensors.F16, Shape: []int{2, 2}},
		Data: binaryOf([]uint16{0x3C00, 0xC000, 0x3555, 0x0001}),
	}}))
	imported(t, save(t, b.Bytes()), m)
	if got := m.values["weight of fc.weight"]; !slices.Equal(got, []float32{1, -2, 0.333251953125, 0x1p-24}) {
		t.Errorf("%v", got)
	}
}
