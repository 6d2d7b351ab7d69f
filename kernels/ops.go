package kernels

import "slices"

// Conv2D is a 2-D cross-correlation: X[0] N,H,W,C -> N,OH,OW,Out. Params: weight Out,KH,KW,C/Groups [, bias Out].
// Zero attributes mean 1 for Stride*, Dilation* and Groups.
type Conv2D struct {
	Out                  int
	KernelH, KernelW     int
	StrideH, StrideW     int
	PadH, PadW           int
	DilationH, DilationW int
	Groups               int
	Bias                 bool
	TF32                 bool // see InTF32
}

// ConvTranspose2D is the gradient of a convolution by its image, taken as a layer of its own: X[0] N,H,W,C -> N,OH,OW,Out.
// OH is (H - 1)*Stride - 2*Pad + Dilation*(Kernel - 1) + Extra + 1, and OW is alike. Params: weight C,KH,KW,Out/Groups.
// Zero attributes mean 1 for Stride*, Dilation* and Groups.
type ConvTranspose2D struct {
	Out                  int
	KernelH, KernelW     int
	StrideH, StrideW     int
	PadH, PadW           int
	DilationH, DilationW int
	ExtraH, ExtraW       int // rows and columns at the end, fewer than a stride: PyTorch's output_padding
	Groups               int
	TF32                 bool // see InTF32
}

// BatchNorm normalizes each channel over N, H and W (or N), then scales and shifts. Optionally it adds a residual
// X[1] of the same shape and applies ReLU, in that order: Y = relu(bn(X[0]) + X[1]). Params: weight C, bias C,
// buffers running_mean C, running_var C (unbiased, as PyTorch; they do not move for a batch whose statistics are not
// finite). Saved: mean C, 1/std C.
type BatchNorm struct {
	Epsilon  float32 // 0 means 1e-5
	Momentum float32 // 0 means 0.1: running = (1-Momentum)*running + Momentum*batch
	Residual bool
	ReLU     bool
	Frozen   bool // training, too, computes with the running statistics, which stay as they are
}

// ReLU is max(x, 0), or min(max(x, 0), Max), as ReLU6 is. Backward reads the mask from its output: the gradient passes where the
// output is positive and, with a maximum, below it.
type ReLU struct {
	Max float32 // 0: there is none
}

// Add is X[0] + X[1], same shapes. Its gradient is the identity to both inputs: models pass DY on, no kernel runs.
type Add struct{}

// Concat joins its inputs along an axis.
type Concat struct {
	Axis int // 0 means the last one, the channels
}

// JoinedRow returns the elements of a row of the output of Concat or Pack, in which a row of each input lies.
func JoinedRow(op Op, y Desc) int64 {
	axis := len(y.Shape) - 1
	if c, joins := op.(Concat); joins && c.Axis > 0 {
		axis = c.Axis
	}
	return Desc{Shape: y.Shape[axis:]}.Elements()
}

// MaxPool takes the maximum of each window, padding excluded. Saved: the index of the maximum, int32, shaped as Y.
type MaxPool struct {
	KernelH, KernelW int
	StrideH, StrideW int // 0 means the kernel's extent
	PadH, PadW       int
	Ceil             bool // a last window may reach beyond the image and its padding, if it begins before their end
	Inside           bool // of an AvgPool
}

// AvgPool takes the mean of each window; padding counts as zeros and in the divisor (PyTorch's default). Elements of a window beyond the
// padding count for nothing.
type AvgPool struct {
	KernelH, KernelW int
	StrideH, StrideW int // 0 means the kernel's extent
	PadH, PadW       int
	Ceil             bool // a last window may reach beyond the image and its padding, if it begins before their end
	Inside           bool // padding counts for nothing: PyTorch's count_include_pad=False
}

// reaches returns the elements of window i along an axis: those of the image, and of its padding unless
// these do not count.
func (a AvgPool) reaches(extent, kernel, stride, pad, i int) int {
	from, to := i*stride-pad, min(i*stride-pad+kernel, extent+pad)
	if a.Inside {
		from, to = max(from, 0), min(to, extent)
	}
	return to - from
}

// Area returns the elements that the mean of a window of an image is of: its pixels, and padding unless Inside.
func (a AvgPool) Area(x Desc, row, column int) int {
	return a.reaches(x.Shape[1], a.KernelH, a.StrideH, a.PadH, row) * a.reaches(x.Shape[2], a.KernelW, a.StrideW, a.PadW, column)
}

// Uneven reports whether windows differ in what their means are of.
func (a AvgPool) Uneven() bool { return a.Ceil || a.Inside && a.PadH+a.PadW > 0 }

// GlobalAvgPool takes the mean over H and W: N,H,W,C -> N,C.
type GlobalAvgPool struct{}

// AdaptiveAvgPool cuts an image of any size into OutH x OutW windows and takes the mean of each, as PyTorch's
// AdaptiveAvgPool2d. Window i of an axis goes from floor(i*extent/Out) to ceil((i+1)*extent/Out). Windows overlap if the
// extent is no multiple, and repeat pixels if it is less. X[0]: N,H,W,C -> N,C*OutH*OutW, channel by channel. PyTorch
// flattens an image in this order, so a Linear that reads Y has the columns of PyTorch's weight.
type AdaptiveAvgPool struct{ OutH, OutW int }

// Linear is X[0] W^T + b on N,C -> N,Out (trailing axes are flattened), or, with LastAxis, on each row of the last axis:
// N,T,C -> N,T,Out. Params: weight Out,C [, bias Out].
type Linear struct {
	Out      int
	Bias     bool
	LastAxis bool
	TF32     bool // see InTF32
}

// Features returns the inputs of each output.
func (l Linear) Features(x Desc) int64 {
	if l.LastAxis {
		return int64(channels(x))
	}
	return sample(x)
}

// Dropout zeroes elements with probability P and scales the rest by 1/(1-P); the mask is a function of the
// step's Scalars and the call's Salt, recomputed in backward, never stored.
type Dropout struct{ P float32 }

// SoftmaxCrossEntropy is the mean over N of -log softmax(X[0])[label]. X[0]: N,C logits, X[1]: N int32 labels; N can be
// several axes: of text samples and tokens, of images with a class for each pixel N, H, W. Rows whose label is Ignored count
// for nothing: the mean is over the others, 0 where there are none, and their gradient is 0. Any other label outside 0..C-1
// makes the loss NaN.
//
// Y is float32[3]: the loss, the number of correct predictions, and the number of rows that count, which backward divides by.
// The softmax is never in memory. Saved is N,3, float32: the largest logit m of each row, and the sum of exp(x - m) as two
// numbers. From these backward computes the softmax again. DY is implied to be 1.
type SoftmaxCrossEntropy struct{}

// Ignored is the label of what has no part in the loss, PyTorch's ignore_index.
const Ignored = -100

// Cast is X[0] in the other of Float32 and BFloat16, rounded to the nearest, ties to even; its gradient is cast back.
type Cast struct{ To DType }

func (Conv2D) Kind() string              { return "conv2d" }
func (BatchNorm) Kind() string           { return "batchnorm" }
func (ReLU) Kind() string                { return "relu" }
func (Add) Kind() string                 { return "add" }
func (Concat) Kind() string              { return "concat" }
func (MaxPool) Kind() string             { return "maxpool" }
func (AvgPool) Kind() string             { return "avgpool" }
func (GlobalAvgPool) Kind() string       { return "globalavgpool" }
func (AdaptiveAvgPool) Kind() string     { return "adaptiveavgpool" }
func (Linear) Kind() string              { return "linear" }
func (Dropout) Kind() string             { return "dropout" }
func (SoftmaxCrossEntropy) Kind() string { return "softmax_cross_entropy" }
func (Cast) Kind() string                { return "cast" }

// Needs: what backward reads.

func (Conv2D) Needs() Needs          { return Needs{Inputs: []bool{true}} }
func (b BatchNorm) Needs() Needs     { return Needs{Inputs: []bool{true}, Output: b.ReLU} }
func (ReLU) Needs() Needs            { return Needs{Output: true} }
func (Add) Needs() Needs             { return Needs{} }
func (Concat) Needs() Needs          { return Needs{} }
func (MaxPool) Needs() Needs         { return Needs{} }
func (AvgPool) Needs() Needs         { return Needs{} }
func (GlobalAvgPool) Needs() Needs   { return Needs{} }
func (AdaptiveAvgPool) Needs() Needs { return Needs{} }
func (Linear) Needs() Needs          { return Needs{Inputs: []bool{true}} }
func (Dropout) Needs() Needs         { return Needs{} }
func (Cast) Needs() Needs            { return Needs{} }

func (SoftmaxCrossEntropy) Needs() Needs { return Needs{Inputs: []bool{true, true}, Output: true} }

func (c Conv2D) usesTF32() bool { return c.TF32 }
func (l Linear) usesTF32() bool { return l.TF32 }

func (c Conv2D) inTF32() Op {
	c.TF32 = true
	return c
}

func (l Linear) inTF32() Op {
	l.TF32 = true
	return l
}

// Split: only ops whose weight gradient is a contraction of its own split their backward.

func (Conv2D) Split() bool              { return true }
func (Linear) Split() bool              { return true }
func (BatchNorm) Split() bool           { return false }
func (ReLU) Split() bool                { return false }
func (Add) Split() bool                 { return false }
func (Concat) Split() bool              { return false }
func (MaxPool) Split() bool             { return false }
func (AvgPool) Split() bool             { return false }
func (GlobalAvgPool) Split() bool       { return false }
func (AdaptiveAvgPool) Split() bool     { return false }
func (Dropout) Split() bool             { return false }
func (SoftmaxCrossEntropy) Split() bool { return false }
func (Cast) Split() bool                { return false }

// Alias: which outputs may lie exactly on which inputs.

func never(Pass, Operand, Operand) bool { return false }

// elementwise reports aliases of ops that read each element before they write it.
func elementwise(pass Pass, out, in Operand) bool {
	if pass == Forward {
		return out.Role == Y && in.Role == X
	}
	return out.Role == DX && in.Role == DY
}

func (Conv2D) Alias(p Pass, out, in Operand) bool          { return never(p, out, in) }
func (Linear) Alias(p Pass, out, in Operand) bool          { return never(p, out, in) }
func (Concat) Alias(p Pass, out, in Operand) bool          { return never(p, out, in) }
func (MaxPool) Alias(p Pass, out, in Operand) bool         { return never(p, out, in) }
func (AvgPool) Alias(p Pass, out, in Operand) bool         { return never(p, out, in) }
func (GlobalAvgPool) Alias(p Pass, out, in Operand) bool   { return never(p, out, in) }
func (AdaptiveAvgPool) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }
func (Cast) Alias(p Pass, out, in Operand) bool            { return never(p, out, in) }
func (Add) Alias(p Pass, out, in Operand) bool             { return elementwise(p, out, in) }
func (Dropout) Alias(p Pass, out, in Operand) bool         { return elementwise(p, out, in) }

// Alias of ReLU: as elementwise, and the gradient may lie on the output that it is masked by.
func (ReLU) Alias(p Pass, out, in Operand) bool {
	return elementwise(p, out, in) || p != Forward && out.Role == DX && in.Role == Y
}

// Alias of BatchNorm: forward Y on X[0] or the residual; backward DX[0] on X[0] or, without a residual, on DY; the
// residual's gradient DX[1] on DY.
func (b BatchNorm) Alias(pass Pass, out, in Operand) bool {
	if pass == Forward {
		return out.Role == Y && in.Role == X
	}
	if out.Role != DX {
		return false
	}
	if out.Index == 1 {
		return in.Role == DY
	}
	return in == Operand{X, 0} || (in.Role == DY && !b.Residual)
}

// Alias of the loss: the logits' gradient may lie on the logits.
func (SoftmaxCrossEntropy) Alias(pass Pass, out, in Operand) bool {
	return pass != Forward && out.Role == DX && in == Operand{X, 0}
}

// Params.

// Params implements Op.
func (b BatchNorm) Params(in []Desc) []Param {
	c := F32(channels(in[0]))
	return []Param{
		{Name: "weight", Desc: c, Trained: true}, {Name: "bias", Desc: c, Trained: true},
		{Name: "running_mean", Desc: c, Constant: b.Frozen}, {Name: "running_var", Desc: c, Constant: b.Frozen},
	}
}

// Params implements Op.
func (l Linear) Params(in []Desc) []Param {
	fanIn := int(l.Features(in[0]))
	ps := []Param{{Name: "weight", Desc: F32(l.Out, fanIn), Trained: true, FanIn: fanIn, FanOut: l.Out}}
	if l.Bias {
		ps = append(ps, Param{Name: "bias", Desc: F32(l.Out), Trained: true, FanIn: fanIn, FanOut: l.Out})
	}
	return ps
}

func (ReLU) Params([]Desc) []Param                { return nil }
func (Add) Params([]Desc) []Param                 { return nil }
func (Concat) Params([]Desc) []Param              { return nil }
func (MaxPool) Params([]Desc) []Param             { return nil }
func (AvgPool) Params([]Desc) []Param             { return nil }
func (GlobalAvgPool) Params([]Desc) []Param       { return nil }
func (AdaptiveAvgPool) Params([]Desc) []Param     { return nil }
func (Dropout) Params([]Desc) []Param             { return nil }
func (SoftmaxCrossEntropy) Params([]Desc) []Param { return nil }
func (Cast) Params([]Desc) []Param                { return nil }

// Saved.

// Saved implements Op: batch mean and 1/std, of which there are none where the statistics are the running ones.
func (b BatchNorm) Saved(in []Desc) []Desc {
	if b.Frozen {
		return nil
	}
	c := F32(channels(in[0]))
	return []Desc{c, c}
}

// Saved implements Op: the largest logit of each row, and a sum.
func (SoftmaxCrossEntropy) Saved(in []Desc) []Desc {
	return []Desc{F32(append(slices.Clone(head(in[0])), 3)...)}
}

func (Conv2D) Saved([]Desc) []Desc          { return nil }
func (ReLU) Saved([]Desc) []Desc            { return nil }
func (Add) Saved([]Desc) []Desc             { return nil }
func (Concat) Saved([]Desc) []Desc          { return nil }
func (AvgPool) Saved([]Desc) []Desc         { return nil }
func (GlobalAvgPool) Saved([]Desc) []Desc   { return nil }
func (AdaptiveAvgPool) Saved([]Desc) []Desc { return nil }
func (Linear) Saved([]Desc) []Desc          { return nil }
func (Dropout) Saved([]Desc) []Desc         { return nil }
func (Cast) Saved([]Desc) []Desc            { return nil }
