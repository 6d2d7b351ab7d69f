package kernels

import "plimsoll/runtime"

// Guard runs between backward and the updates. It measures the Euclidean norm of all gradients together, in
// float64 and in a fixed order. It scales them down to MaxNorm, as PyTorch's clip_grad_norm_ does. If the norm
// is not finite, the step's updates do nothing, so that one bad batch cannot ruin the weights.
type Guard struct {
	MaxNorm float32 // 0: no clipping
}

// GuardChunk is the number of elements that one partial sum covers.
const GuardChunk = 1 << 14

// GuardPartials returns the number of float64 partial sums of a gradient.
func GuardPartials(elements int64) int64 { return (elements + GuardChunk - 1) / GuardChunk }

// GuardOperands binds a guard to memory. A guard reads the gradients, writes the norm (one float32) and changes
// GradScale and Skip of the scalars; the gradients themselves stay as they are.
//
// Gradients on several devices take two kinds of guards. A guard without a Norm, beside some of the gradients, leaves their partial
// sums. A guard without Grads judges the joined partial sums. In the order of one guard for all gradients the partial sums give
// equal bits. Partial sums of gradients in host memory (library.OpenHost) have the bits of the device's.
type GuardOperands struct {
	Grads    []runtime.Span
	Types    []DType      // Float32 or BFloat16, by gradient; nil: all are Float32
	Partials runtime.Span // a float64 for each of the gradients' GuardPartials; without gradients those to judge
	Norm     runtime.Span
	Scalars  runtime.Span
}

// Judges reports whether the guard writes the norm and changes the scalars.
func (o GuardOperands) Judges() bool { return o.Norm.Bytes > 0 }

// Parts returns the number of partial sums.
func (o GuardOperands) Parts() (n int64) {
	if len(o.Grads) == 0 {
		return o.Partials.Bytes / 8
	}
	for i := range o.Grads {
		n += GuardPartials(o.Elements(i))
	}
	return n
}

// Type returns the type of a gradient.
func (o GuardOperands) Type(i int) DType {
	if i < len(o.Types) {
		return o.Types[i]
	}
	return Float32
}

// Elements returns how many elements a gradient has.
func (o GuardOperands) Elements(i int) int64 { return o.Grads[i].Bytes / o.Type(i).Size() }

// Uses lists the operands: the gradients as DParam, the partial sums as Workspace, the norm as Y.
func (o GuardOperands) Uses() []Use {
	var l uses
	for i, g := range o.Grads {
		l.add(DParam, i, g, g.Bytes, true, false)
	}
	l.add(Workspace, 0, o.Partials, 8*o.Parts(), o.Judges(), len(o.Grads) > 0)
	if o.Judges() {
		l.add(Y, 0, o.Norm, Float32.Size(), false, true)
		l.add(ScalarsRole, 0, o.Scalars, ScalarsBytes, true, true)
	}
	return l
}

// Check refuses, with an *OpError, a guard whose attributes or operands no library can use.
func (o GuardOperands) Check(g Guard) error {
	const kind = "guard"
	if !(g.MaxNorm >= 0) {
		return bad(kind, "MaxNorm", "%v is negative", g.MaxNorm)
	}
	if o.Parts() == 0 || len(o.Grads) == 0 && !o.Judges() {
		return bad(kind, "Grads", "there are none")
	}
	if len(o.Types) > 0 && len(o.Types) != len(o.Grads) {
		return bad(kind, "Types", "there are %d, and %d gradients", len(o.Types), len(o.Grads))
	}
	for i, s := range o.Grads {
		if t := o.Type(i); t != Float32 && t != BFloat16 {
			return bad(kind, "Types", "%v is neither float32 nor bfloat16", t)
		} else if s.Bytes%t.Size() != 0 {
			return bad(kind, "Grads", "%v is no whole number of %v", s, t)
		}
	}
	uses := o.Uses()
	return checkUses(kind, uses[0].Span.Space, uses)
}
