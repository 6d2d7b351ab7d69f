package kernels

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func shapes(s ...Shape) []Desc {
	in := make([]Desc, len(s))
	for i := range s {
		in[i] = F32(s[i]...)
	}
	return in
}

// labels describes n int32 labels.
func labels(n int) Desc { return Desc{Shape: Shape{n}, DType: Int32} }

// TestShapes: outputs as PyTorch's documentation gives them (its layouts are channels first; extents are the same).
func TestShapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op   Op
		in   []Desc
		want Shape
	}{
		// torch.nn.Conv2d: floor((H + 2 pad - dilation (kernel-1) - 1) / stride + 1)
		{Conv2D{Out: 64, KernelH: 7, KernelW: 7, StrideH: 2, StrideW: 2, PadH: 3, PadW: 3}, shapes(Shape{8, 224, 224, 3}), Shape{8, 112, 112, 64}},
		{Conv2D{Out: 33, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2}, shapes(Shape{20, 50, 100, 16}), Shape{20, 24, 49, 33}},
		{Conv2D{Out: 33, KernelH: 3, KernelW: 5, StrideH: 2, StrideW: 1, PadH: 4, PadW: 2}, shapes(Shape{20, 50, 100, 16}), Shape{20, 28, 100, 33}},
		{Conv2D{Out: 33, KernelH: 3, KernelW: 5, StrideH: 2, PadH: 4, PadW: 2, DilationH: 3}, shapes(Shape{20, 50, 100, 16}), Shape{20, 26, 100, 33}},
		{Conv2D{Out: 4, KernelH: 3, KernelW: 3, Groups: 2}, shapes(Shape{1, 3, 3, 2}), Shape{1, 1, 1, 4}},
		{Conv2D{Out: 1, KernelH: 1, KernelW: 1, StrideH: 5, StrideW: 5}, shapes(Shape{1, 1, 6, 1}), Shape{1, 1, 2, 1}},
		// torch.nn.MaxPool2d and AvgPool2d, ceil_mode=False
		{MaxPool{KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, shapes(Shape{8, 112, 112, 64}), Shape{8, 56, 56, 64}},
		{MaxPool{KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 1}, shapes(Shape{20, 50, 32, 16}), Shape{20, 24, 31, 16}},
		{MaxPool{KernelH: 2, KernelW: 3}, shapes(Shape{1, 5, 7, 1}), Shape{1, 2, 2, 1}},
		{AvgPool{KernelH: 2, KernelW: 2}, shapes(Shape{2, 14, 14, 5}), Shape{2, 7, 7, 5}},
		{GlobalAvgPool{}, shapes(Shape{2, 7, 7, 2048}), Shape{2, 2048}},
		// torch.nn.AdaptiveAvgPool2d and a flatten
		{AdaptiveAvgPool{OutH: 7, OutW: 7}, shapes(Shape{2, 8, 9, 64}), Shape{2, 64 * 7 * 7}},
		{AdaptiveAvgPool{OutH: 7, OutW: 5}, shapes(Shape{1, 1, 3, 64}), Shape{1, 64 * 7 * 5}},
		{Linear{Out: 30}, shapes(Shape{128, 20}), Shape{128, 30}},
		{Linear{Out: 30}, shapes(Shape{128, 2, 2, 5}), Shape{128, 30}},
		{BatchNorm{}, shapes(Shape{2, 3, 4, 5}), Shape{2, 3, 4, 5}},
		{BatchNorm{Residual: true, ReLU: true}, shapes(Shape{2, 5}, Shape{2, 5}), Shape{2, 5}},
		{ReLU{}, shapes(Shape{7}), Shape{7}},
		{ReLU{Max: 6}, shapes(Shape{7}), Shape{7}},
		{Add{}, shapes(Shape{2, 3}, Shape{2, 3}), Shape{2, 3}},
		{Concat{}, shapes(Shape{2, 4, 4, 64}, Shape{2, 4, 4, 32}, Shape{2, 4, 4, 32}), Shape{2, 4, 4, 128}},
		{Concat{Axis: 1}, shapes(Shape{2, 4, 5}, Shape{2, 1, 5}), Shape{2, 5, 5}},
		{Pack{}, shapes(Shape{2, 4, 4, 3}, Shape{2, 7}, Shape{2, 2, 2, 2}), Shape{2, 1, 1, 48 + 7 + 8}},
		{Slice{From: 48, H: 1, W: 1, C: 7}, shapes(Shape{2, 1, 1, 63}), Shape{2, 1, 1, 7}},
		{Slice{Rows: 16, From: 1, H: 4, W: 4, C: 2}, shapes(Shape{2, 4, 4, 3}), Shape{2, 4, 4, 2}},
		{Slice{Rows: 2, From: 12, H: 2, W: 4, C: 3}, shapes(Shape{2, 4, 4, 3}), Shape{2, 2, 4, 3}},
		// torch.nn.Upsample, mode="nearest"
		{Upsample{Factor: 2}, shapes(Shape{2, 3, 4, 5}), Shape{2, 6, 8, 5}},
		{Dropout{P: 0.5}, shapes(Shape{2, 3}), Shape{2, 3}},
		{SoftmaxCrossEntropy{}, []Desc{F32(8, 10), labels(8)}, Shape{3}},
		{ElementLoss{Of: MSE}, []Desc{F32(8, 10), F32(8, 10)}, Shape{3}},
		{SoftmaxCrossEntropy{}, []Desc{F32(8, 3, 10), {Shape: Shape{8, 3}, DType: Int32}}, Shape{3}},
		{SoftmaxCrossEntropy{}, []Desc{F32(8, 4, 5, 10), {Shape: Shape{8, 4, 5}, DType: Int32}}, Shape{3}},
		{Linear{Out: 30, LastAxis: true}, shapes(Shape{128, 2, 2, 5}), Shape{128, 2, 2, 30}},
		{Embedding{Vocabulary: 7, Width: 5, Positions: 4}, []Desc{{Shape: Shape{2, 3}, DType: Int32}}, Shape{2, 3, 5}},
		{LayerNorm{}, shapes(Shape{2, 3, 5}), Shape{2, 3, 5}},
		{Rotary{Heads: 3, Dim: 4}, shapes(Shape{2, 3, 14}), Shape{2, 3, 14}},
		{Attention{Heads: 4}, shapes(Shape{2, 3, 12 * 5}), Shape{2, 3, 20}},
		{Attention{Heads: 4, KVHeads: 1}, shapes(Shape{2, 3, 6 * 5}), Shape{2, 3, 20}},
		{NewRearrange([]int{2, 15, 4}, 0, []Loop{{2, 60}, {15, 1}, {4, 15}}), shapes(Shape{2, 4, 15}), Shape{2, 15, 4}},
		{NewRearrange([]int{2, 3}, 4, []Loop{{2, 5}, {3, 2}}), shapes(Shape{2, 7}), Shape{2, 3}},
		{Bias{Axes: 2}, shapes(Shape{2, 3, 5}), Shape{2, 3, 5}},
		{Scale{Axes: 1}, shapes(Shape{2, 3, 5}), Shape{2, 3, 5}},
		{Prepend{Rows: 2}, shapes(Shape{2, 3, 5}), Shape{2, 5, 5}},
		{Gate{}, shapes(Shape{2, 4, 3, 5}, Shape{2, 5}), Shape{2, 4, 3, 5}},
		{Pad{Top: 1, Bottom: 2, Left: -1, Right: 3}, shapes(Shape{2, 4, 3, 5}), Shape{2, 7, 5, 5}},
		{Resize{OutH: 7, OutW: 2}, shapes(Shape{2, 4, 3, 5}), Shape{2, 7, 2, 5}},
		{Pointwise{Of: Tanh}, shapes(Shape{7}), Shape{7}},
	} {
		got, err := c.op.Infer(c.in)
		if err != nil || !got.Equal(F32(c.want...)) {
			t.Errorf("%+v of %v is %v, %v; want %v", c.op, c.in, got, err, c.want)
		}
	}
}

// TestInferDoesNotShare: the output's shape is the caller's to change.
func TestInferDoesNotShare(t *testing.T) {
	t.Parallel()
	for _, op := range []Op{ReLU{}, BatchNorm{}, Dropout{}, Concat{}, Pack{}, Slice{H: 1, W: 1, C: 3}, LayerNorm{}, GELU{}} {
		in := shapes(Shape{2, 3})
		y, err := op.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		if y.Shape[0] = 9; in[0].Shape[0] != 2 {
			t.Errorf("%s: changing the output's shape changed the input's", op.Kind())
		}
	}
}

// badOp is an op that cannot be inferred, and the field that is to blame.
type badOp struct {
	op    Op
	in    []Desc
	field string
}

// badOps lists ops with attributes or inputs that do not go together.
func badOps() []badOp {
	image := Shape{1, 8, 8, 4}
	good := Conv2D{Out: 4, KernelH: 3, KernelW: 3}
	conv := func(change func(*Conv2D)) Op {
		c := good
		change(&c)
		return c
	}
	huge, tokens := math.MaxInt, Desc{Shape: Shape{2, 3}, DType: Int32}
	return []badOp{
		{good, nil, "X"},
		{good, shapes(Shape{1, 8, 8}), "X"},
		{good, shapes(Shape{1, 0, 8, 4}), "X"},
		{good, shapes(Shape{1, -3, 8, 4}), "X"},
		{good, shapes(Shape{huge, huge, huge, huge}), "X"},
		{good, []Desc{{Shape: image, DType: Int32}}, "X"},
		{conv(func(c *Conv2D) { c.Out = 0 }), shapes(image), "Out"},
		{conv(func(c *Conv2D) { c.Out = huge }), shapes(image), "Out"},
		{conv(func(c *Conv2D) { c.Out = MaxExtent }), shapes(Shape{1, 8, 8, 1 << 20}), "Out"},
		{conv(func(c *Conv2D) { c.Groups = 3 }), shapes(image), "Groups"},
		{conv(func(c *Conv2D) { c.Groups = -1 }), shapes(image), "Groups"},
		{conv(func(c *Conv2D) { c.KernelH = 0 }), shapes(image), "window H"},
		{conv(func(c *Conv2D) { c.KernelW = 9 }), shapes(image), "window W"},
		{conv(func(c *Conv2D) { c.StrideH = -1 }), shapes(image), "window H"},
		{conv(func(c *Conv2D) { c.PadW = -1 }), shapes(image), "window W"},
		{conv(func(c *Conv2D) { c.PadH = huge }), shapes(image), "window H"},
		{conv(func(c *Conv2D) { c.DilationW = huge }), shapes(image), "window W"},
		{conv(func(c *Conv2D) { c.DilationH = 4 }), shapes(image), "window H"},
		{MaxPool{KernelH: 2, KernelW: 2, PadH: 2}, shapes(image), "Pad"},
		{MaxPool{KernelH: 2, KernelW: 2, PadH: huge}, shapes(image), "Pad"},
		{AvgPool{KernelW: 2}, shapes(image), "window H"},
		{MaxPool{KernelH: 1, KernelW: 1}, shapes(Shape{1, 1 << 16, 1 << 16, 1}), "X"},
		{GlobalAvgPool{}, shapes(Shape{3, 4}), "X"},
		{AdaptiveAvgPool{OutH: 2, OutW: 2}, shapes(Shape{3, 4}), "X"},
		{AdaptiveAvgPool{OutH: 2}, shapes(image), "Out"},
		{AdaptiveAvgPool{OutH: -2, OutW: -2}, shapes(image), "Out"},
		{AdaptiveAvgPool{OutH: huge, OutW: huge}, shapes(image), "Out"},
		{AdaptiveAvgPool{OutH: 1 << 24, OutW: 1 << 10}, shapes(image), "Out"},
		{Linear{Out: 0}, shapes(Shape{3, 4}), "Out"},
		{Linear{Out: 3}, shapes(Shape{3}), "X"},
		{Linear{Out: 3}, []Desc{labels(3)}, "X"},
		{Linear{Out: 3}, shapes(Shape{0, 4}), "X"},
		{Linear{Out: MaxExtent}, shapes(Shape{1, 1 << 20}), "Out"},
		{BatchNorm{Epsilon: -1}, shapes(image), "Epsilon"},
		{BatchNorm{Epsilon: float32(math.NaN())}, shapes(image), "Epsilon"},
		{BatchNorm{Momentum: 2}, shapes(image), "Momentum"},
		{BatchNorm{Residual: true}, shapes(image), "X"},
		{BatchNorm{}, shapes(Shape{}), "X"},
		{Add{}, shapes(image, Shape{1, 8, 8, 5}), "X"},
		{ReLU{}, []Desc{labels(3)}, "X"},
		{ReLU{Max: -1}, shapes(image), "Max"},
		{ReLU{Max: float32(math.Inf(1))}, shapes(image), "Max"},
		{ReLU{Max: 0.3}, []Desc{F32(3).As(BFloat16)}, "Max"},
		{Concat{}, nil, "X"},
		{Concat{}, shapes(Shape{}), "X"},
		{Concat{}, shapes(Shape{1, 2}, Shape{2, 2}), "X"},
		{Concat{}, shapes(Shape{1, MaxExtent}, Shape{1, 1}), "X"},
		{Concat{}, []Desc{F32(1, 2), {Shape: Shape{1, 2}, DType: Int32}}, "X"},
		{Pack{}, nil, "X"},
		{Pack{}, shapes(Shape{1, 2}, Shape{2, 2}), "X"},
		{Pack{}, []Desc{F32(1, 2), F32(1, 2).As(BFloat16)}, "X"},
		{Pack{}, shapes(Shape{1, 1 << 20, 1 << 10}, Shape{1, 1 << 20, 1 << 10}), "X"},
		{Slice{H: 1, W: 1, C: 1}, nil, "X"},
		{Slice{H: 1, W: 1}, shapes(image), "Y"},
		{Slice{Rows: -1, H: 1, W: 1, C: 1}, shapes(image), "Rows"},
		{Slice{Rows: huge, H: 1, W: 1, C: 1}, shapes(image), "Rows"},
		{Slice{Rows: 3, H: 1, W: 3, C: 1}, shapes(image), "Rows"},
		{Slice{Rows: 2, H: 1, W: 3, C: 1}, shapes(image), "Rows"},
		{Slice{H: 1, W: 1, C: 1}, shapes(Shape{1, 1 << 20, 1 << 20}), "Rows"},
		{Slice{From: 1, H: 8, W: 8, C: 4}, shapes(image), "From"},
		{Slice{H: 8, W: 8, C: 5}, shapes(image), "From"},
		{Slice{Rows: 64, From: 2, H: 8, W: 8, C: 3}, shapes(image), "From"},
		{Slice{From: -1, H: 1, W: 1, C: 1}, shapes(image), "From"},
		{Slice{From: huge, H: 1, W: 1, C: 1}, shapes(image), "From"},
		{Upsample{}, shapes(image), "Factor"},
		{Pad{Top: huge}, shapes(image), "Top"},
		{Pad{Right: -huge}, shapes(image), "Right"},
		{Pad{Bottom: -8}, shapes(Shape{1, 8, 8, 1}), "Top"},
		{Pad{}, shapes(Shape{1, 8}), "X"},
		{Resize{OutW: 1}, shapes(image), "OutH"},
		{Resize{OutH: 1, OutW: huge}, shapes(image), "OutW"},
		{Resize{OutH: 1, OutW: 1, RatioH: -1}, shapes(image), "RatioH"},
		{Resize{OutH: 1, OutW: 1, RatioW: float32(math.NaN())}, shapes(image), "RatioW"},
		{Resize{OutH: 1, OutW: 1, Nearest: true, AlignCorners: true}, shapes(image), "AlignCorners"},
		{Resize{OutH: 1, OutW: 1}, shapes(Shape{1, 8}), "X"},
		{Upsample{Factor: huge}, shapes(image), "Factor"},
		{Upsample{Factor: 1 << 24}, shapes(image), "Y"},
		{Upsample{Factor: 2}, shapes(Shape{1, 8}), "X"},
		{Dropout{P: 1}, shapes(image), "P"},
		{Dropout{P: -0.1}, shapes(image), "P"},
		{Dropout{P: float32(math.NaN())}, shapes(image), "P"},
		{SoftmaxCrossEntropy{}, shapes(Shape{2, 3}, Shape{2}), "X"},
		{ElementLoss{}, shapes(Shape{2, 3}, Shape{2, 3}), "Of"},
		{ElementLoss{Of: Criteria}, shapes(Shape{2, 3}, Shape{2, 3}), "Of"},
		{ElementLoss{Of: MSE}, shapes(Shape{2, 3}), "X"},
		{ElementLoss{Of: MSE}, shapes(Shape{2, 3}, Shape{3, 2}), "X"},
		{ElementLoss{Of: L1}, []Desc{labels(2), F32(2)}, "X"},
		{ElementLoss{Of: BCE}, []Desc{F32(2), labels(2)}, "X"},
		{SoftmaxCrossEntropy{}, []Desc{F32(2, 3), labels(3)}, "X"},
		{SoftmaxCrossEntropy{}, []Desc{F32(2, 0), labels(2)}, "X"},
		{SoftmaxCrossEntropy{}, []Desc{F32(2, 3, 4), labels(2)}, "X"},
		{Embedding{Vocabulary: 3, Width: 4}, []Desc{labels(3)}, "X"},
		{Embedding{Vocabulary: 3, Width: 4}, shapes(Shape{2, 3}), "X"},
		{Embedding{Vocabulary: 3, Width: 4}, []Desc{{Shape: Shape{2, 0}, DType: Int32}}, "X"},
		{Embedding{Width: 4}, []Desc{tokens}, "Vocabulary"},
		{Embedding{Vocabulary: MaxExtent, Width: MaxExtent}, []Desc{tokens}, "Vocabulary"},
		{Embedding{Vocabulary: 3, Width: -4}, []Desc{tokens}, "Width"},
		{Embedding{Vocabulary: 3, Width: 4, Positions: 2}, []Desc{tokens}, "Positions"},
		{Embedding{Vocabulary: 3, Width: 4, Positions: huge}, []Desc{tokens}, "Positions"},
		{Embedding{Vocabulary: 3, Width: 4, To: Int32}, []Desc{tokens}, "To"},
		{LayerNorm{Epsilon: -1}, shapes(image), "Epsilon"},
		{RMSNorm{Epsilon: float32(math.NaN())}, shapes(image), "Epsilon"},
		{GELU{}, []Desc{labels(3)}, "X"},
		{SiLU{}, nil, "X"},
		{Multiply{}, shapes(image), "X"},
		{Rotary{Heads: 1, Dim: 2}, shapes(image), "X"},
		{Rotary{Heads: 1, Dim: 3}, shapes(Shape{1, 2, 8}), "Dim"},
		{Rotary{Heads: 1, Dim: huge - 1}, shapes(Shape{1, 2, 8}), "Dim"},
		{Rotary{Heads: 3, Dim: 4}, shapes(Shape{1, 2, 8}), "Heads"},
		{Rotary{Heads: 2, Dim: 4, Turned: 3}, shapes(Shape{1, 2, 8}), "Turned"},
		{Rotary{Heads: 2, Dim: 4, Turned: 6}, shapes(Shape{1, 2, 8}), "Turned"},
		{Affine{Factor: float32(math.Inf(1))}, shapes(image), "Factor"},
		{Affine{Plus: float32(math.NaN())}, shapes(image), "Factor"},
		{Embedding{Vocabulary: 3, Width: 4, Positions: 9, Uncounted: 4}, []Desc{tokens}, "Uncounted"},
		{Embedding{Vocabulary: 3, Width: 4, Uncounted: 1}, []Desc{tokens}, "Uncounted"},
		{Embedding{Vocabulary: 3, Width: 4, Positions: tokens.Shape[1] + 1, Uncounted: 2}, []Desc{tokens}, "Positions"},
		{Rotary{Heads: 2, Dim: 4, Base: 1}, shapes(Shape{1, 2, 8}), "Base"},
		{Rotary{Heads: 2, Dim: 4, Base: math.Inf(1)}, shapes(Shape{1, 2, 8}), "Base"},
		{Attention{Heads: 1}, shapes(Shape{2, 6}), "X"},
		{Attention{Heads: 0}, shapes(Shape{1, 2, 6}), "Heads"},
		{Attention{Heads: huge}, shapes(Shape{1, 2, 6}), "Heads"},
		{Attention{Heads: 4}, shapes(Shape{1, 2, 6}), "Heads"},
		{Attention{Heads: 1}, shapes(Shape{1, 2, 3 * 1024}), "Heads"},
		{Attention{Heads: 3, KVHeads: 2}, shapes(Shape{1, 2, 7}), "KVHeads"},
		{Attention{Heads: 1, KVHeads: -1}, shapes(Shape{1, 2, 6}), "KVHeads"},
		{Attention{Heads: 1, Scale: float32(math.NaN())}, shapes(Shape{1, 2, 6}), "Scale"},
		{Attention{Heads: 1, Table: -1}, shapes(Shape{1, 2, 6}), "Table"},
		{Attention{Heads: 1, Masks: -1}, shapes(Shape{1, 2, 6}), "Masks"},
		{Attention{Heads: 1, MaskHeads: true}, shapes(Shape{1, 2, 6}), "Masks"},
		{Attention{Heads: 1, Table: 4}, shapes(Shape{1, 1 << 16, 6}), "Masks"},
		{Pointwise{Of: Tanh, By: 1}, shapes(Shape{7}), "By"},
		{Pointwise{Of: Leaky, By: float32(math.Inf(1))}, shapes(Shape{7}), "By"},
		{GroupNorm{Groups: 2}, shapes(Shape{7}), "X"},
		{GroupNorm{Groups: 2}, shapes(Shape{2, 3}), "Groups"},
		{GroupNorm{Groups: 1, Epsilon: -1}, shapes(Shape{2, 3}), "Epsilon"},
		{ConvTranspose2D{Out: 2, KernelH: -1, KernelW: 1}, shapes(Shape{1, 2, 2, 4}), "window"},
		{ConvTranspose2D{Out: 2, KernelH: 1, KernelW: 1, PadH: 9}, shapes(Shape{1, 2, 2, 4}), "window"},
		{ConvTranspose2D{Out: 3, KernelH: 1, KernelW: 1, Groups: 2}, shapes(Shape{1, 2, 2, 4}), "window"},
		{ConvTranspose2D{Out: 2, KernelH: 2, KernelW: 2, StrideH: 2, ExtraH: 2}, shapes(Shape{1, 2, 2, 4}), "Extra"},
		{MaxPool{KernelH: 2, KernelW: 2, Inside: true}, shapes(Shape{1, 4, 4, 1}), "Inside"},
		{Attention{Heads: 1, Masks: 1 << 30}, shapes(Shape{1, 2, 6}), "Masks"},
	}
}

// TestBadOps: what cannot be inferred is an *OpError that names the op and the field.
func TestBadOps(t *testing.T) {
	t.Parallel()
	for _, c := range badOps() {
		_, err := c.op.Infer(c.in)
		var e *OpError
		if !errors.As(err, &e) || e.Kind != c.op.Kind() || e.Field != c.field || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v of %v: %v; want an OpError about %s", c.op, c.in, err, c.field)
		}
	}
}

// everyOp is one op of each kind.
var everyOp = []Op{
	Conv2D{Out: 4, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Bias: true}, Linear{Out: 4, Bias: true},
	BatchNorm{Residual: true, ReLU: true}, ReLU{}, Add{}, Concat{}, MaxPool{KernelH: 2, KernelW: 2},
	AvgPool{KernelH: 2, KernelW: 2}, GlobalAvgPool{}, Dropout{P: 0.5}, SoftmaxCrossEntropy{}, Cast{},
	AdaptiveAvgPool{OutH: 3, OutW: 2}, Pack{}, Slice{Rows: 4, From: 6, H: 4, W: 1, C: 12}, Upsample{Factor: 2},
	Embedding{Vocabulary: 5, Width: 4, Positions: 3}, LayerNorm{}, RMSNorm{}, GELU{}, SiLU{}, Multiply{},
	Rotary{Heads: 4, Dim: 4}, Attention{Heads: 4, KVHeads: 2, Table: 3, Masks: 2},
	NewRearrange([]int{2, 3}, 1, []Loop{{2, 12}, {3, 2}}), Bias{Axes: 1}, Scale{Axes: 1}, AddRows{Rows: 9, First: 1, Step: 1}, Prepend{Rows: 2}, Gate{}, Pointwise{Of: HardSwish},
	Affine{Factor: 2, Plus: 1},
	Pad{Top: 1, Bottom: -1, Right: 2}, Resize{OutH: 3, OutW: 7}, GroupNorm{Groups: 2}, ConvTranspose2D{Out: 6, KernelH: 3, KernelW: 2, StrideH: 2, ExtraH: 1, Groups: 2},
	ElementLoss{Of: BCE},
}

// FuzzInfer: no attributes or shapes make Infer panic or overflow; what it accepts has sizes that can be computed.
func FuzzInfer(f *testing.F) {
	f.Add(uint8(0), int64(1), int64(8), int64(8), int64(4), int64(3), int64(1), int64(1), int64(1), int64(1), uint8(1))
	f.Add(uint8(6), int64(1), int64(1<<40), int64(-1), int64(0), int64(1<<62), int64(-1<<63), int64(1<<63-1), int64(0), int64(2), uint8(2))
	f.Add(uint8(5), int64(1<<31), int64(1<<31), int64(1<<31), int64(1<<31-1), int64(1), int64(2), int64(3), int64(4), int64(5), uint8(3))
	f.Fuzz(func(t *testing.T, kind uint8, n, h, w, c, kernel, stride, pad, dilation, groups int64, inputs uint8) {
		i := func(v int64) int { return int(v) }
		ops := []Op{
			Conv2D{Out: i(c), KernelH: i(kernel), KernelW: i(pad), StrideH: i(stride), PadH: i(pad), PadW: i(kernel), DilationW: i(dilation), Groups: i(groups)},
			Linear{Out: i(kernel)}, BatchNorm{Residual: groups%2 == 0}, ReLU{}, Add{}, Concat{Axis: i(kernel)},
			MaxPool{KernelH: i(kernel), KernelW: i(stride), StrideH: i(stride), PadH: i(pad), PadW: i(dilation)},
			AvgPool{KernelH: i(kernel), KernelW: i(groups), StrideW: i(stride), PadW: i(pad)},
			GlobalAvgPool{}, AdaptiveAvgPool{OutH: i(kernel), OutW: i(stride)}, Dropout{P: math.Float32frombits(uint32(kernel))}, SoftmaxCrossEntropy{}, Cast{To: DType(stride)},
			Pack{}, Slice{Rows: i(kernel), From: i(stride), H: i(pad), W: i(dilation), C: i(groups)}, Upsample{Factor: i(kernel)},
			Linear{Out: i(kernel), LastAxis: true}, Embedding{Vocabulary: i(kernel), Width: i(stride), Positions: i(pad), To: DType(dilation)},
			LayerNorm{Epsilon: math.Float32frombits(uint32(kernel))}, RMSNorm{}, GELU{}, SiLU{}, Multiply{},
			Rotary{Heads: i(kernel), Dim: i(stride), Base: math.Float64frombits(uint64(pad))}, Attention{Heads: i(kernel), KVHeads: i(stride), Table: i(pad), Masks: i(dilation), MaskHeads: groups > 0},
			NewRearrange([]int{i(h), i(w)}, i(kernel), []Loop{{i(h), i(stride)}, {i(w), i(pad)}}), Bias{Axes: i(kernel)}, Scale{Axes: i(stride)}, AddRows{Rows: i(kernel), First: i(stride), Step: i(pad)}, Prepend{Rows: i(kernel)}, Gate{},
			Pointwise{Of: Function(kernel)}, Affine{Factor: math.Float32frombits(uint32(kernel)), Plus: math.Float32frombits(uint32(pad))},
			Pad{Top: i(kernel), Bottom: i(stride), Left: i(pad), Right: i(dilation)}, Resize{OutH: i(kernel), OutW: i(stride), RatioH: float32(pad)},
			GroupNorm{Groups: i(kernel)}, MaxPool{KernelH: i(kernel), KernelW: i(stride), StrideH: i(stride), PadH: i(pad), Ceil: true},
			ConvTranspose2D{Out: i(c), KernelH: i(kernel), KernelW: i(pad), StrideH: i(stride), PadH: i(pad), PadW: i(kernel), DilationW: i(dilation), ExtraH: i(kernel), Groups: i(groups)},
			ElementLoss{Of: Criterion(kernel)},
		}
		op := ops[int(kind)%len(ops)]
		all := []Desc{F32(i(n), i(h), i(w), i(c)), F32(i(n), i(h), i(w), i(kernel)), {Shape: Shape{i(n)}, DType: DType(groups)}, F32(), F32(i(n), i(c)), F32(i(n), i(h), i(c)), {Shape: Shape{i(n), i(h)}, DType: Int32}, F32(i(n), i(h), i(w), i(c)).As(BFloat16)}
		in := slices.Concat(all, all)[int(inputs)%len(all):][:int(inputs/16)%4]
		y, err := op.Infer(in)
		if err != nil {
			return
		}
		sizes := append(append([]Desc{y}, in...), op.Saved(in)...)
		for _, p := range op.Params(in) {
			sizes = append(sizes, p.Desc)
		}
		for _, d := range sizes {
			if d.Elements() < 1 || d.Elements() > MaxElements || d.Storage() < d.Bytes() {
				t.Fatalf("%+v of %v: %v has %d elements", op, in, d, d.Elements())
			}
		}
		for pass := Forward; pass <= BackwardParams; pass++ {
			call := Call{Op: op, In: in, Pass: pass, Train: true}
			if call.Check() == nil {
				call.Uses(Operands{}, 0)
			}
		}
	})
}
