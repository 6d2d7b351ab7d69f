// Package ref is the reference kernel library: every op as its definition reads, in plain Go, sums in float64, one
// thread, no workspace. It is the oracle of the fast libraries and of everything that compiles or runs programs; it
// is slow and meant for tests.
package ref

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// Memory gives the bytes of a device's spans; runtime/host's Device is one.
type Memory interface {
	Bytes(s runtime.Span) ([]byte, error)
}

// Library implements kernels.Library. Its launches have a method Run() error, so the host device accepts them.
type Library struct {
	memory Memory
}

var _ kernels.Library = (*Library)(nil)

// New returns the library for memory; nil will do for Workspace.
func New(memory Memory) *Library { return &Library{memory} }

// Name implements kernels.Library.
func (*Library) Name() string { return "ref" }

// Workspace implements kernels.Library: no op needs any.
func (*Library) Workspace(c kernels.Call) (int64, error) {
	return 0, c.Check()
}

// Prepare implements kernels.Library.
func (l *Library) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	if err := o.Check(c, 0); err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	t, err := l.bind(c, o)
	if err != nil {
		return nil, fmt.Errorf("ref: %s: %w", c.Op.Kind(), err)
	}
	run, err := kernel(c.Op, t)
	if err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	return launch{fmt.Sprintf("%s %v", c.Op.Kind(), c.Pass), t.staged(run)}, nil
}

type launch struct {
	name string
	run  func() error
}

// Kernel implements runtime.Launch.
func (l launch) Kernel() string { return l.name }

// Run computes.
func (l launch) Run() error { return l.run() }

// kernel returns the function that computes the call.
func kernel(op kernels.Op, t *tensors) (func() error, error) {
	switch op := op.(type) {
	case kernels.Conv2D:
		return func() error { return conv(op.Defaults(), t) }, nil
	case kernels.BatchNorm:
		return func() error { return batchNorm(op, t) }, nil
	case kernels.ReLU:
		return func() error { return relu(op, t) }, nil
	case kernels.Add:
		return func() error { return add(t) }, nil
	case kernels.Concat, kernels.Pack:
		return func() error { return concat(t) }, nil
	case kernels.Slice:
		return func() error { return slice(op.Defaults(), t) }, nil
	case kernels.Upsample:
		return func() error { return upsample(op, t) }, nil
	case kernels.Resize:
		return func() error { return resize(op, t) }, nil
	case kernels.Pad:
		return func() error { return pad(op, t) }, nil
	case kernels.MaxPool:
		return func() error { return maxPool(op.Defaults(), t) }, nil
	case kernels.AvgPool:
		return func() error { return avgPool(op.Defaults(), t) }, nil
	case kernels.GlobalAvgPool:
		return func() error { return globalAvgPool(t) }, nil
	case kernels.AdaptiveAvgPool:
		return func() error { return adaptiveAvgPool(op, t) }, nil
	case kernels.Linear:
		return func() error { return linear(t) }, nil
	case kernels.Dropout:
		return func() error { return dropout(op, t) }, nil
	case kernels.SoftmaxCrossEntropy:
		return func() error { return loss(t) }, nil
	case kernels.ElementLoss:
		return func() error { return elementLoss(op.Of, t) }, nil
	case kernels.Cast:
		return func() error { return cast(t) }, nil
	case kernels.Embedding:
		return func() error { return embedding(op, t) }, nil
	case kernels.LayerNorm:
		return func() error { return rowNorm(op.Defaults().Epsilon, op.Offset(), true, t) }, nil
	case kernels.RMSNorm:
		return func() error { return rowNorm(op.Defaults().Epsilon, op.Offset(), false, t) }, nil
	case kernels.GELU:
		return func() error { return gelu(op, t) }, nil
	case kernels.SiLU:
		return func() error { return silu(t) }, nil
	case kernels.Multiply:
		return func() error { return multiply(t) }, nil
	case kernels.Rotary:
		return func() error { return rotary(op.Defaults(), t) }, nil
	case kernels.Attention:
		return func() error { return attention(op.Defaults(), t) }, nil
	}
	return arrangement(op, t)
}

// bind views the operands that a checked call uses.
func (l *Library) bind(c kernels.Call, o kernels.Operands) (*tensors, error) {
	params, saved := len(c.Op.Params(c.In)), len(c.Op.Saved(c.In))
	t := &tensors{
		call: c, in: c.In,
		x: make([][]float32, len(c.In)), dx: make([][]float32, len(c.In)),
		saved: make([][]float32, saved), params: make([][]float32, params), dparams: make([][]float32, params),
	}
	t.out, _ = c.Op.Infer(c.In)
	for _, u := range c.Uses(o, 0) {
		u.Span.Bytes = u.Bytes
		b, err := l.memory.Bytes(u.Span)
		if err != nil {
			return nil, err
		}
		t.view(u, b)
	}
	return t, nil
}

// view makes an operand a slice, or notes how to make it one when the call runs.
func (t *tensors) view(u kernels.Use, b []byte) {
	switch at := t.operand(u.Operand); {
	case at == nil:
		t.scalars = b
	case t.dtype(u.Operand) == kernels.BFloat16:
		t.stages = append(t.stages, stage{at: at, brain: halves(b), read: u.Read, write: u.Write})
	default:
		*at = floats(b)
		if round := t.rounding(u.Operand); round != nil {
			t.stages = append(t.stages, stage{at: at, factor: *at, round: round})
			if u.Role == kernels.DY {
				t.exact = *at
			}
		}
	}
}
