package importer

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/kernels"
)

// openText opens a graph of nodes "y = Op x x axis=1" that reads tokens N,8, and ends with "o". Its parameters are of 8 channels.
func openText(t *testing.T, lines ...string) ([]*step, error) {
	t.Helper()
	g := &Graph{
		Inputs: []Port{{"x", Int64, []int64{2, 8}}}, Outputs: []Port{{Name: "o"}}, Tensors: map[string]*Tensor{},
	}
	for name, dims := range map[string][]int64{"table": {10, 8}, "places": {8, 8}, "w": {8, 8}, "b": {8}, "h": {10, 8}} {
		n := dims[0]
		if len(dims) > 1 {
			n *= dims[1]
		}
		g.Tensors[name] = &Tensor{Name: name, Dims: dims, DType: Float32, Raw: make([]byte, 4*n)}
	}
	at := &Tensor{Dims: []int64{8}, DType: Int64, Raw: make([]byte, 64)}
	for i := range 8 {
		at.Raw[8*i] = byte(i)
	}
	g.Tensors["at"] = at
	for _, line := range lines {
		g.Nodes = append(g.Nodes, nodeOf(t, line))
	}
	_, summary, err := Open("x", g)
	if err != nil {
		return nil, err
	}
	return summary.m.steps, nil
}

// A bias is added to the Linear in place only along its last axis, and only where nothing else reads its output, whatever its names.
func TestBiasesOfSharedLinears(t *testing.T) {
	t.Parallel()
	const refused = `"b" is added to [2 8 8] of a linear layer: only along the layer's last axis, where nothing else reads its output, is supported`
	for what, c := range map[string]struct{ nodes, want string }{
		"alone":                 {"z = Add y b; o = linear z h", ""},
		"its other side":        {"z = Add b y; o = linear z h", ""},
		"behind a name":         {"v = Identity y; z = Add v b; o = linear z h", ""},
		"behind names":          {"v = Identity y; u = Reshape v shape=0,-1,8; z = Add u b; o = linear z h", ""},
		"twice transposed":      {"v = Transpose y perm=0,2,1; u = Transpose v perm=0,2,1; z = Add u b; o = linear z h", ""},
		"rows of heads":         {"v = Reshape y shape=2,2,4,8; z = Add v b; u = Reshape z shape=2,8,8; o = linear u h", ""},
		"rows in another order": {"v = Transpose y perm=1,0,2; z = Add v b; u = Transpose z perm=1,0,2; o = linear u h", ""},
		"read by its name":      {"r = Relu y; z = Add y b; s = Add z r; o = linear s h", refused},
		"read behind a name":    {"v = Identity y; z = Add v b; r = Relu y; s = Add z r; o = linear s h", refused},
		"read before":           {"r = Relu y; v = Identity y; z = Add v b; s = Add z r; o = linear s h", refused},
		"a Reshape":             {"v = Reshape y shape=2,8,8; z = Add v b; r = Relu y; s = Add z r; o = linear s h", refused},
		"a Cast":                {"v = Cast y to=1; z = Add v b; r = Relu y; s = Add z r; o = linear s h", refused},
		"a Dropout of 0":        {"v = Dropout y ratio=0; z = Add v b; r = Relu y; s = Add z r; o = linear s h", refused},
		"read by another name":  {"v = Identity y; u = Identity y; r = Relu u; z = Add v b; s = Add z r; o = linear s h", refused},
		"one of two parts":      {"v, r = Split y axis=1; z = Add v b; s = Add z r; o = linear s h", `"b" is added to [2 4 8] of a linear layer`},
		"along another axis":    {"v = Transpose y perm=0,2,1; z = Add v b; u = Transpose z perm=0,2,1; o = linear u h", refused},
	} {
		steps, err := openText(t, append([]string{"e = Gather table x axis=0", "y = linear e w"}, strings.Split(c.nodes, "; ")...)...)
		if c.want != "" {
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", what, err, c.want)
			}
			continue
		}
		if err != nil || len(steps) != 3 || steps[1].op != (kernels.Linear{Out: 8, Bias: true, LastAxis: true}) {
			t.Errorf("%s: %d steps, %v", what, len(steps), err)
		}
	}
}

// Positions are added to the Embedding in place only where nothing else reads what it makes, whatever its names; elsewhere they are an op.
func TestPositionsOfSharedEmbeddings(t *testing.T) {
	t.Parallel()
	for nodes, fine := range map[string]bool{
		"z = Add e p; o = linear z h":                                          true,
		"v = Identity e; z = Add v p; o = linear z h":                          true,
		"v = Identity e; z = Add v p; r = Relu e; s = Add z r; o = linear s h": false,
	} {
		steps, err := openText(t, append([]string{"e = Gather table x axis=0", "p = Gather places at axis=0"}, strings.Split(nodes, "; ")...)...)
		switch {
		case fine && (err != nil || steps[0].op != (kernels.Embedding{Vocabulary: 10, Width: 8, Positions: 8})):
			t.Errorf("%s: %v", nodes, err)
		case !fine && (err != nil || steps[0].op != (kernels.Embedding{Vocabulary: 10, Width: 8}) || steps[1].op != (kernels.AddRows{Rows: 8, Step: 1})):
			t.Errorf("%s: %v", nodes, err)
		}
	}
}

// Windows and groups of 0 are refused, as PyTorch refuses them, not taken for the default.
func TestCountsOfZero(t *testing.T) {
	t.Parallel()
	for node, want := range map[string]string{
		"Conv x k strides=0,0":                       "attribute strides is [0 0], want 2 numbers from 1",
		"Conv x k dilations=1,0":                     "attribute dilations is [1 0], want 2 numbers from 1",
		"Conv x k group=0":                           "attribute group is 0, want a number from 1",
		"MaxPool x kernel_shape=2,2 strides=0,2":     "attribute strides is [0 2], want 2 numbers from 1",
		"AveragePool x kernel_shape=2,2 strides=0,0": "attribute strides is [0 0], want 2 numbers from 1",
		"AveragePool x kernel_shape=2,2 strides=2,2": "",
		"Conv x k strides=1,1 dilations=1,1 group=1": "",
	} {
		s := &step{desc: kernels.F32(2, 8, 8, 1)}
		given := map[string]*value{
			"x": {step: s, shape: asImage(s.desc)}, "k": {tensor: &Tensor{Name: "k", Dims: []int64{4, 1, 3, 3}, DType: Float32, Raw: make([]byte, 4*36)}},
		}
		if _, err := constantsOf(t, given, "y = "+node); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %s", node, err, want)
		}
	}
}
