package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// A model may read a mask of padding beside its tokens. Data fills samples behind their texts, and such tokens have no labels. Where each position
// sees earlier ones alone, no loss and no gradient depends on the mask then: it is read as one that hides nothing.

// checkMask refuses a mask of padding that logits of labeled tokens may depend on.
func (m *importer) checkMask() error {
	if m.Mask == "" {
		return nil
	}
	if m.perSample() {
		return fmt.Errorf("it reads attention_mask and gives a sample one row of logits, which may depend on padding: only logits of each token, N,T,classes, are supported")
	}
	for _, s := range m.steps {
		if !m.keepsPositions(s) {
			return fmt.Errorf("%s: it reads attention_mask, and positions may see later ones here, which may be padding: only causal attention is supported with it", s.label)
		}
	}
	return nil
}

// keepsPositions reports whether what a step makes of a position follows from this one and earlier ones. Values are rows of each token, in order.
func (m *importer) keepsPositions(s *step) bool {
	rows := int64(extents(m.input.desc.Shape))
	switch op := s.op.(type) {
	case kernels.Attention:
		return !op.Bidirectional && s.desc.Shape[1] == m.input.desc.Shape[1]
	case kernels.Linear:
		return (op.LastAxis || len(s.in[0].desc.Shape) == 2) && m.ofRows(s)
	case kernels.LayerNorm, kernels.RMSNorm, kernels.Bias, kernels.Scale:
		return m.ofRows(s)
	case kernels.Concat:
		axes := len(s.desc.Shape)
		return (op.Axis == 0 || op.Axis == axes-1) && m.ofRows(s)
	case kernels.Embedding, kernels.AddRows, kernels.Rotary:
		return len(s.desc.Shape) == 3 && s.desc.Shape[1] == m.input.desc.Shape[1]
	case kernels.Add, kernels.Multiply, kernels.Affine, kernels.Pointwise, kernels.ReLU, kernels.GELU, kernels.SiLU, kernels.Dropout, kernels.Cast:
		return true
	case kernels.Rearrange:
		in, out := s.in[0].desc.Elements(), s.desc.Elements()
		return in%rows == 0 && out%rows == 0 && keepsRows(op, in/rows, out/rows, rows)
	}
	return false
}

// ofRows reports whether the rows of the last axis of a step's inputs are parts of those of a token.
func (m *importer) ofRows(s *step) bool {
	rows := int64(extents(m.input.desc.Shape))
	for _, in := range s.in {
		if n := in.desc.Elements(); n%rows != 0 || n/rows%int64(last(in.desc.Shape)) != 0 {
			return false
		}
	}
	return true
}

// keepsRows reports whether each of so many rows of a rearranged tensor has elements of the same row of what it is made of alone. The rows have
// so many elements in the one and in the other.
func keepsRows(op kernels.Rearrange, in, out, rows int64) bool {
	loops, within := op.Used(), int64(1)
	reach := int64(op.From)
	for len(loops) > 0 && within < out {
		l := loops[len(loops)-1]
		part := min(int64(l.N), out/within)
		if int64(l.N)%part != 0 || out%(within*part) != 0 {
			return false
		}
		reach += (part - 1) * int64(l.Stride)
		within *= part
		loops = loops[:len(loops)-1]
		if rest := int64(l.N) / part; rest > 1 {
			loops = append(slices.Clone(loops), kernels.Loop{N: int(rest), Stride: l.Stride * int(part)})
		}
	}
	for next := in; len(loops) > 0; loops = loops[:len(loops)-1] {
		l := loops[len(loops)-1]
		if int64(l.Stride) != next {
			return false
		}
		next *= int64(l.N)
		rows /= int64(l.N)
	}
	return reach < in && rows == 1
}
