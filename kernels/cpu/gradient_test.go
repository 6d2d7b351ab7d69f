package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

// gradientCalls are small calls of every differentiable kind.
var gradientCalls = []kernels.Call{
	{Op: kernels.Conv2D{Out: 4, KernelH: 3, KernelW: 2, StrideH: 2, PadH: 1, PadW: 1, DilationW: 2, Bias: true}, In: []kernels.Desc{kernels.F32(2, 5, 6, 3)}},
	{Op: kernels.Conv2D{Out: 4, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 3, DilationH: 2, PadH: 2, Groups: 2}, In: []kernels.Desc{kernels.F32(1, 7, 6, 4)}},
	{Op: kernels.Linear{Out: 5, Bias: true}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.BatchNorm{}, In: []kernels.Desc{kernels.F32(3, 2, 2, 4)}},
	{Op: kernels.BatchNorm{Residual: true, ReLU: true}, In: []kernels.Desc{kernels.F32(3, 2, 2, 4), kernels.F32(3, 2, 2, 4)}},
	{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.ReLU{Max: 0.5}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Add{}, In: []kernels.Desc{kernels.F32(3, 7), kernels.F32(3, 7)}},
	{Op: kernels.Concat{}, In: []kernels.Desc{kernels.F32(3, 2), kernels.F32(3, 3)}},
	{Op: kernels.MaxPool{KernelH: 3, KernelW: 2, StrideH: 2, PadH: 1}, In: []kernels.Desc{kernels.F32(2, 5, 4, 3)}},
	{Op: kernels.AvgPool{KernelH: 3, KernelW: 2, StrideH: 2, PadH: 1, PadW: 1}, In: []kernels.Desc{kernels.F32(2, 5, 4, 3)}},
	{Op: kernels.GlobalAvgPool{}, In: []kernels.Desc{kernels.F32(2, 3, 4, 3)}},
	{Op: kernels.AdaptiveAvgPool{OutH: 2, OutW: 5}, In: []kernels.Desc{kernels.F32(2, 3, 4, 3)}},
	{Op: kernels.Pack{}, In: []kernels.Desc{kernels.F32(2, 2, 3, 2), kernels.F32(2, 5)}},
	{Op: kernels.Slice{Rows: 6, From: 1, H: 3, W: 2, C: 2}, In: []kernels.Desc{kernels.F32(2, 3, 2, 4)}},
	{Op: kernels.Upsample{Factor: 2}, In: []kernels.Desc{kernels.F32(2, 3, 2, 2)}},
	{Op: kernels.Pad{Top: 4, Bottom: -1, Left: -1, Right: 2, Circular: true}, In: []kernels.Desc{kernels.F32(2, 3, 2, 2)}},
	{Op: kernels.Resize{OutH: 5, OutW: 3}, In: []kernels.Desc{kernels.F32(2, 3, 4, 2)}},
	{Op: kernels.Dropout{P: 0.4}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Linear{Out: 3, Bias: true, LastAxis: true}, In: []kernels.Desc{kernels.F32(2, 3, 4)}},
	{Op: kernels.Embedding{Vocabulary: 4, Width: 3, Positions: 6}, In: []kernels.Desc{{Shape: kernels.Shape{2, 5}, DType: kernels.Int32}}},
	{Op: kernels.LayerNorm{}, In: []kernels.Desc{kernels.F32(2, 3, 5)}},
	{Op: kernels.LayerNorm{FromOne: true}, In: []kernels.Desc{kernels.F32(2, 3, 5)}},
	{Op: kernels.RMSNorm{}, In: []kernels.Desc{kernels.F32(2, 3, 5)}},
	{Op: kernels.RMSNorm{FromOne: true}, In: []kernels.Desc{kernels.F32(2, 3, 5)}},
	{Op: kernels.Affine{Factor: -0.5, Plus: 2}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.GELU{}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.GELU{Tanh: true}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.SiLU{}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Multiply{}, In: []kernels.Desc{kernels.F32(3, 7), kernels.F32(3, 7)}},
	{Op: kernels.Rotary{Heads: 2, Dim: 6, Turned: 4}, In: []kernels.Desc{kernels.F32(2, 3, 13)}},
	{Op: kernels.Rotary{Heads: 2, Dim: 4}, In: []kernels.Desc{kernels.F32(2, 3, 10)}},
	{Op: kernels.Attention{Heads: 2}, In: []kernels.Desc{kernels.F32(2, 5, 18)}},
	{Op: kernels.Attention{Heads: 4, KVHeads: 2}, In: []kernels.Desc{kernels.F32(1, 6, 16)}},
	{Op: kernels.Attention{Heads: 2, Bidirectional: true}, In: []kernels.Desc{kernels.F32(2, 5, 18)}},
	{Op: kernels.Attention{Heads: 2, Bidirectional: true, Table: 3, Masks: 2}, In: []kernels.Desc{kernels.F32(4, 4, 12)}},
	{Op: kernels.NewRearrange([]int{2, 3, 2}, 1, []kernels.Loop{{N: 2, Stride: 12}, {N: 3, Stride: 1}, {N: 2, Stride: 8}}), In: []kernels.Desc{kernels.F32(2, 3, 4)}},
	{Op: kernels.Bias{Axes: 2}, In: []kernels.Desc{kernels.F32(3, 2, 4)}},
	{Op: kernels.Scale{Axes: 1}, In: []kernels.Desc{kernels.F32(3, 2, 4)}},
	{Op: kernels.AddRows{Rows: 5, First: 2, Step: 1}, In: []kernels.Desc{kernels.F32(3, 2, 4)}},
	{Op: kernels.Prepend{Rows: 2}, In: []kernels.Desc{kernels.F32(3, 2, 4)}},
	{Op: kernels.Gate{}, In: []kernels.Desc{kernels.F32(2, 3, 2, 4), kernels.F32(2, 4)}},
	{Op: kernels.Pointwise{Of: kernels.Sigmoid}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Tanh}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.HardSigmoid}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.HardSwish}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Leaky, By: 0.25}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.ELU, By: 0.75}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Softplus}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Mish}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Abs}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.AtLeast, By: -0.25}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.AtMost, By: 0.25}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Exp}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Log}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Sqrt}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Reciprocal}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.Pointwise{Of: kernels.Power, By: 1.5}, In: []kernels.Desc{kernels.F32(3, 7)}},
	{Op: kernels.GroupNorm{Groups: 2}, In: []kernels.Desc{kernels.F32(2, 3, 2, 4)}},
	{Op: kernels.GroupNorm{Groups: 3, Plain: true}, In: []kernels.Desc{kernels.F32(2, 3, 3, 3)}},
	{Op: kernels.ConvTranspose2D{Out: 4, KernelH: 3, KernelW: 2, StrideH: 2, PadH: 1, ExtraH: 1, Groups: 2}, In: []kernels.Desc{kernels.F32(2, 3, 2, 4)}},
	{Op: kernels.MaxPool{KernelH: 3, KernelW: 2, StrideH: 3, PadH: 1, Ceil: true}, In: []kernels.Desc{kernels.F32(2, 5, 4, 3)}},
	{Op: kernels.AvgPool{KernelH: 3, KernelW: 2, StrideH: 3, PadH: 1, PadW: 1, Ceil: true, Inside: true}, In: []kernels.Desc{kernels.F32(2, 5, 5, 3)}},
	{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(3, 5), {Shape: kernels.Shape{3}, DType: kernels.Int32}}},
	{Op: kernels.SoftmaxCrossEntropy{}, In: []kernels.Desc{kernels.F32(2, 3, 4, 3), {Shape: kernels.Shape{2, 3, 4}, DType: kernels.Int32}}},
	{Op: kernels.ElementLoss{Of: kernels.MSE}, In: []kernels.Desc{kernels.F32(3, 5), kernels.F32(3, 5)}},
	{Op: kernels.ElementLoss{Of: kernels.L1}, In: []kernels.Desc{kernels.F32(3, 5), kernels.F32(3, 5)}},
	{Op: kernels.ElementLoss{Of: kernels.BCE}, In: []kernels.Desc{kernels.F32(3, 5), kernels.F32(3, 5)}},
}

// TestFiniteDifferences: gradients are the central differences of sum(dy * y), y being the float64 reference. The step is 2^-12 (exact in
// float32). Its own error is about step^2 times the third derivative, 1e-6 here for BatchNorm and the loss. The gradients' float32
// arithmetic adds about 1e-6.
func TestFiniteDifferences(t *testing.T) {
	t.Parallel()
	const step, tolerance = 1.0 / 4096, 2e-5
	compared := 0
	for i, c := range gradientCalls {
		c.Train = true
		in := randomInputs(rand.New(rand.NewPCG(2, uint64(i))), c)
		for _, path := range Paths() {
			for o, got := range gradients(t, newLibrary(t, path, 2), c, in) {
				for k, g := range got {
					want := (objective(c, in, o, k, step) - objective(c, in, o, k, -step)) / (2 * step)
					if !(math.Abs(float64(g)-want) <= tolerance*(1+math.Abs(want))) {
						t.Errorf("%v of %+v: gradient %v[%d] = %v, difference quotient %v", path, c, o, k, g, want)
					}
					compared++
				}
			}
		}
	}
	if least := 1300 * len(Paths()); compared < least {
		t.Errorf("compared %d gradients, want at least %d", compared, least)
	}
}

// gradients runs forward and every backward pass and returns DX and DParam.
func gradients(t *testing.T, l *Library, c kernels.Call, in data) data {
	t.Helper()
	in = in.clone()
	for o, v := range run(t, l, c, in) {
		in[o] = v
	}
	passes := []kernels.Pass{kernels.Backward}
	if c.Op.Split() {
		passes = []kernels.Pass{kernels.BackwardInput, kernels.BackwardParams}
	}
	out := data{}
	for _, c.Pass = range passes {
		for o, v := range run(t, l, c, in) {
			out[o] = v
		}
	}
	return out
}

// objective is sum(dy*y) with the k-th element of what gradient o belongs to moved by step; the loss is its own.
func objective(c kernels.Call, in data, o kernels.Operand, k int, step float32) float64 {
	source := operand(kernels.X, o.Index)
	if o.Role == kernels.DParam {
		source = operand(kernels.ParamRole, o.Index)
	}
	in = in.clone()
	in[source][k] += step
	y := reference(c, in)[opY].value
	if kernels.IsLoss(c.Op) {
		return y[0]
	}
	sum := 0.0
	for i, v := range y {
		sum += v * float64(in[opDY][i])
	}
	return sum
}
