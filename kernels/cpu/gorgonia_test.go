//go:build !cuda

// Gorgonia's own CUDA support, which the tag cuda turns on too, needs NVIDIA's headers.

package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"plimsoll/kernels"
)

// The network of TestGorgonia: 3x3 convolution, ReLU, 2x2 max pooling, linear, softmax with cross entropy.
const (
	netN, netSize, netIn, netMid, netClasses = 3, 8, 2, 5, 4
	netHalf                                  = netSize / 2
	netFeatures                              = netHalf * netHalf * netMid
)

// transposed returns v of extents shape with its axes in the given order.
func transposed(v []float32, shape, order [4]int) []float32 {
	out := make([]float32, 0, len(v))
	stride := [4]int{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}
	for a := range shape[order[0]] {
		for b := range shape[order[1]] {
			for c := range shape[order[2]] {
				for d := range shape[order[3]] {
					out = append(out, v[a*stride[order[0]]+b*stride[order[1]]+c*stride[order[2]]+d*stride[order[3]]])
				}
			}
		}
	}
	return out
}

var (
	toFirst = [4]int{0, 3, 1, 2} // channels last to channels first
	toLast  = [4]int{0, 2, 3, 1}
)

// gorgoniaGradients builds the network in Gorgonia, channels first, and differentiates it. It returns the loss and the gradients of image,
// filter and matrix. The values of onehot are minus the choice of each label over N, so that the loss is a sum of products.
func gorgoniaGradients(t *testing.T, image, filter, matrix, onehot []float32) (loss float32, grads [][]float32) {
	t.Helper()
	g := gorgonia.NewGraph()
	node := func(name string, v []float32, shape ...int) *gorgonia.Node { return gorgoniaNode(g, name, v, shape...) }
	x, f, w := node("x", image, netN, netIn, netSize, netSize), node("f", filter, netMid, netIn, 3, 3), node("w", matrix, netFeatures, netClasses)
	labels := node("labels", onehot, netN, netClasses)
	must := gorgonia.Must
	conv := must(gorgonia.Conv2d(x, f, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	pooled := must(gorgonia.MaxPool2D(must(gorgonia.Rectify(conv)), tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	logits := must(gorgonia.Mul(must(gorgonia.Reshape(pooled, tensor.Shape{netN, netFeatures})), w))
	exp := must(gorgonia.Exp(logits))
	sum := must(gorgonia.Log(must(gorgonia.Sum(exp, 1))))
	picked := must(gorgonia.Sum(must(gorgonia.HadamardProd(logits, labels)), 0, 1))
	cost := must(gorgonia.Add(must(gorgonia.Mean(sum)), picked))
	grads = gorgoniaRun(t, g, cost, x, f, w)
	return cost.Value().Data().(float32), grads
}

// TestGorgonia: loss and gradients of a small network equal those of Gorgonia's automatic differentiation within
// 2e-6 (both are float32; sums have at most 80 terms).
func TestGorgonia(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(12, 1))
	image := random(r, netN*netSize*netSize*netIn)
	filter := random(r, netMid*9*netIn)
	matrix := random(r, netClasses*netFeatures) // classes, then rows, columns, channels
	labels := []int{2, 0, 3}

	onehot := make([]float32, netN*netClasses)
	labelBits := make([]float32, netN)
	for i, l := range labels {
		onehot[i*netClasses+l] = -1.0 / netN
		labelBits[i] = math.Float32frombits(uint32(l))
	}
	first := transposed(matrix, [4]int{netClasses, netHalf, netHalf, netMid}, [4]int{3, 1, 2, 0}) // channels, rows, columns, classes
	wantLoss, want := gorgoniaGradients(t, transposed(image, [4]int{netN, netSize, netSize, netIn}, toFirst),
		transposed(filter, [4]int{netMid, 3, 3, netIn}, toFirst), first, onehot)
	want[0] = transposed(want[0], [4]int{netN, netIn, netSize, netSize}, toLast)
	want[1] = transposed(want[1], [4]int{netMid, netIn, 3, 3}, toLast)
	want[2] = transposed(want[2], [4]int{netMid, netHalf, netHalf, netClasses}, [4]int{3, 1, 2, 0})

	for _, path := range Paths() {
		l := newLibrary(t, path, 2)
		loss, got := ourGradients(t, l, image, filter, matrix, labelBits)
		if !(math.Abs(float64(loss-wantLoss)) <= 2e-6) {
			t.Errorf("%v: loss %v, Gorgonia's is %v", path, loss, wantLoss)
		}
		for i, name := range []string{"image", "filter", "matrix"} {
			near(t, "gradient of the "+name, got[i], want[i], 2e-6)
		}
	}
}

// ourGradients is the same network in our kernels, channels last.
func ourGradients(t *testing.T, l *Library, image, filter, matrix, labels []float32) (loss float32, grads [3][]float32) {
	t.Helper()
	mid := kernels.F32(netN, netSize, netSize, netMid)
	conv := kernels.Call{Op: kernels.Conv2D{Out: netMid, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, In: []kernels.Desc{kernels.F32(netN, netSize, netSize, netIn)}, Train: true}
	relu := kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{mid}, Train: true}
	pool := kernels.Call{Op: kernels.MaxPool{KernelH: 2, KernelW: 2}, In: []kernels.Desc{mid}, Train: true}
	linear := kernels.Call{Op: kernels.Linear{Out: netClasses}, In: []kernels.Desc{kernels.F32(netN, netHalf, netHalf, netMid)}, Train: true}
	ce := kernels.Call{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(netN, netClasses), {Shape: kernels.Shape{netN}, DType: kernels.Int32}}, Train: true}

	y1 := run(t, l, conv, data{opX: image, opW: filter})[opY]
	y2 := run(t, l, relu, data{opX: y1})[opY]
	y3 := run(t, l, pool, data{opX: y2})
	y4 := run(t, l, linear, data{opX: y3[opY], opW: matrix})[opY]
	y5 := run(t, l, ce, data{opX: y4, opX1: labels})

	back := func(c kernels.Call, p kernels.Pass, in data) data {
		c.Pass = p
		return run(t, l, c, in)
	}
	d4 := back(ce, kernels.Backward, data{opX: y4, opX1: labels, opY: y5[opY], opSave: y5[opSave]})[opDX]
	dw := back(linear, kernels.BackwardParams, data{opX: y3[opY], opDY: d4})[opDW]
	d3 := back(linear, kernels.BackwardInput, data{opW: matrix, opDY: d4})[opDX]
	d2 := back(pool, kernels.Backward, data{opDY: d3, opSave: y3[opSave]})[opDX]
	d1 := back(relu, kernels.Backward, data{opDY: d2, opY: y2})[opDX]
	df := back(conv, kernels.BackwardParams, data{opX: image, opDY: d1})[opDW]
	dx := back(conv, kernels.BackwardInput, data{opW: filter, opDY: d1})[opDX]
	return y5[opY][0], [3][]float32{dx, df, dw}
}

// gorgoniaNode is a leaf of g that holds v.
func gorgoniaNode(g *gorgonia.ExprGraph, name string, v []float32, shape ...int) *gorgonia.Node {
	backing := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(slices.Clone(v)))
	return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(backing))
}

// gorgoniaRun differentiates cost and returns the gradients of the leaves.
func gorgoniaRun(t *testing.T, g *gorgonia.ExprGraph, cost *gorgonia.Node, leaves ...*gorgonia.Node) [][]float32 {
	t.Helper()
	nodes, err := gorgonia.Grad(cost, leaves...)
	if err != nil {
		t.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g)
	defer func() {
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	grads := make([][]float32, len(nodes))
	for i, n := range nodes {
		grads[i] = n.Value().Data().([]float32)
	}
	return grads
}

// near fails unless all elements differ by at most the tolerance.
func near(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, Gorgonia has %d", what, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(float64(got[i]-want[i])) <= tolerance) {
			t.Fatalf("%s[%d] is %v, Gorgonia's is %v", what, i, got[i], want[i])
		}
	}
}

// TestGorgoniaBatchNorm: output and gradients of a training BatchNorm are Gorgonia's. Its scale and bias have an
// element for each element of x, so their gradients are summed over the pixels of a channel to give ours.
func TestGorgoniaBatchNorm(t *testing.T) {
	t.Parallel()
	const n, size, channels = 4, 3, 5
	c := kernels.Call{Op: kernels.BatchNorm{}, In: []kernels.Desc{kernels.F32(n, size, size, channels)}, Train: true}
	in := randomInputs(rand.New(rand.NewPCG(13, 1)), c)
	last, first := [4]int{n, size, size, channels}, [4]int{n, channels, size, size}

	g := gorgonia.NewGraph()
	node := func(name string, v []float32) *gorgonia.Node {
		return gorgoniaNode(g, name, transposed(v, last, toFirst), first[:]...)
	}
	x, dy := node("x", in[opX]), node("dy", in[opDY])
	scale, bias := node("scale", slices.Repeat(in[opW], n*size*size)), node("bias", slices.Repeat(in[opB], n*size*size))
	y, _, _, _, err := gorgonia.BatchNorm(x, scale, bias, 0.1, 1e-5)
	if err != nil {
		t.Fatal(err)
	}
	cost := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(y, dy))))
	want := gorgoniaRun(t, g, cost, x, scale, bias)
	perChannel := func(v []float32) []float32 {
		sums := make([]float32, channels)
		for i, d := range transposed(v, first, toLast) {
			sums[i%channels] += d
		}
		return sums
	}
	for _, path := range Paths() {
		l := newLibrary(t, path, 2)
		near(t, "output", run(t, l, c, in)[opY], transposed(y.Value().Data().([]float32), first, toLast), 2e-6)
		got := gradients(t, l, c, in)
		near(t, "gradient of x", got[opDX], transposed(want[0], first, toLast), 4e-6)
		near(t, "gradient of the weight", got[opDW], perChannel(want[1]), 1e-5)
		near(t, "gradient of the bias", got[opDB], perChannel(want[2]), 1e-5)
	}
}
