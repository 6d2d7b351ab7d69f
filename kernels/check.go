package kernels

import (
	"slices"

	"plimsoll/runtime"
)

// Check refuses, with an *OpError, a call that no library can run.
func (c Call) Check() error {
	if c.Op == nil {
		return bad("call", "Op", "is missing")
	}
	kind := c.Op.Kind()
	if _, err := c.Op.Infer(c.In); err != nil {
		return err
	}
	if !c.hasPass() {
		return bad(kind, "Pass", "%v is not a pass of this op (Split is %v)", c.Pass, c.Op.Split())
	}
	if len(c.SkipDX) > len(c.In) {
		return bad(kind, "SkipDX", "has %d entries for %d inputs", len(c.SkipDX), len(c.In))
	}
	if len(c.AddDX) > len(c.In) {
		return bad(kind, "AddDX", "has %d entries for %d inputs", len(c.AddDX), len(c.In))
	}
	if c.Weight != Float32 && !(c.Weight == BFloat16 && c.RoundsWeight()) {
		return bad(kind, "Weight", "%v is not a type of its weight: a product of bfloat16 has it in float32 or bfloat16, any other op in float32", c.Weight)
	}
	return c.checkBatch()
}

// paramBytes returns the bytes of parameter i of the call's op, as the call reads it.
func (c Call) paramBytes(i int, p Param) int64 {
	if i == 0 {
		return p.Desc.Elements() * c.Weight.Size()
	}
	return p.Desc.Bytes()
}

// Has reports whether an input or the output of a checked call is of type t.
func (c Call) Has(t DType) bool {
	y, _ := c.Op.Infer(c.In)
	return y.DType == t || slices.ContainsFunc(c.In, func(d Desc) bool { return d.DType == t })
}

func (c Call) hasPass() bool {
	switch c.Pass {
	case Forward:
		return true
	case Backward:
		return !c.Op.Split()
	case BackwardInput, BackwardParams:
		return c.Op.Split()
	}
	return false
}

// checkBatch refuses a batch whose variance is not defined, as PyTorch does.
func (c Call) checkBatch() error {
	b, ok := c.Op.(BatchNorm)
	if ok && c.Train && c.In[0].Elements() == int64(channels(c.In[0])) {
		return bad(b.Kind(), "X", "%v has one value per channel: training needs at least two", c.In[0])
	}
	return nil
}

// Uses lists the operands that a checked call reads and writes; the others are ignored. The workspace is not listed
// when the call needs none.
func (c Call) Uses(o Operands, workspace int64) []Use {
	var l uses
	if c.Pass == Forward {
		c.forwardUses(&l, o)
	} else {
		c.backwardUses(&l, o)
	}
	if workspace > 0 {
		l.add(Workspace, 0, o.Workspace, workspace, false, true)
	}
	if _, ok := c.Op.(Dropout); ok && c.Train {
		l.add(ScalarsRole, 0, o.Scalars, ScalarsBytes, true, false)
	}
	return l
}

func (c Call) forwardUses(l *uses, o Operands) {
	for i, d := range c.In {
		l.add(X, i, at(o.X, i), d.Bytes(), true, false)
	}
	for i, p := range c.Op.Params(c.In) {
		moves := c.Train && c.UpdateStats && !p.Trained && !p.Constant
		if p.Trained || p.Constant || !c.Train || moves {
			l.add(ParamRole, i, at(o.Params, i), c.paramBytes(i, p), true, moves)
		}
	}
	y, _ := c.Op.Infer(c.In)
	l.add(Y, 0, o.Y, y.Bytes(), false, true)
	if !c.Train {
		return
	}
	for i, d := range c.Op.Saved(c.In) {
		if at(o.Saved, i).Bytes > 0 {
			l.add(Save, i, at(o.Saved, i), d.Bytes(), false, true)
		}
	}
}

func (c Call) backwardUses(l *uses, o Operands) {
	inputs, params := c.Pass != BackwardParams, c.Pass != BackwardInput
	needs := c.Op.Needs()
	y, _ := c.Op.Infer(c.In)
	if !IsLoss(c.Op) {
		l.add(DY, 0, o.DY, y.Bytes(), true, false)
	}
	if needs.Output {
		l.add(Y, 0, o.Y, y.Bytes(), true, false)
	}
	for i, d := range c.In {
		if needs.Input(i) && (params || !c.Op.Split()) {
			l.add(X, i, at(o.X, i), d.Bytes(), true, false)
		}
		if inputs && d.DType.Float() && !c.Skips(i) {
			l.add(DX, i, at(o.DX, i), d.Bytes(), c.Adds(i), true)
		}
	}
	c.backwardParamUses(l, o, inputs, params)
	if _, norm := c.Op.(BatchNorm); c.Train || !norm { // in evaluation it has running statistics
		for i, d := range c.Op.Saved(c.In) {
			l.add(Save, i, at(o.Saved, i), d.Bytes(), true, false)
		}
	}
}

// backwardParamUses: an input's gradient reads weights, never biases, and tokens have none; BatchNorm in evaluation reads its
// running statistics in place of the saved ones.
func (c Call) backwardParamUses(l *uses, o Operands, inputs, params bool) {
	inputs = inputs && c.In[0].DType.Float()
	for i, p := range c.Op.Params(c.In) {
		if inputs && (p.Trained && i == 0 || p.Constant || !p.Trained && !c.Train) {
			l.add(ParamRole, i, at(o.Params, i), c.paramBytes(i, p), true, false)
		}
		if params && p.Trained {
			l.add(DParam, i, at(o.DParams, i), p.Desc.Bytes(), c.AddParams, true)
		}
	}
}

// Skips reports whether the gradient of input i is not wanted, or is none: that of a loss's targets.
func (c Call) Skips(i int) bool {
	return i < len(c.SkipDX) && c.SkipDX[i] || i == 1 && IsLoss(c.Op)
}

// Check refuses, with an *OpError, operands that a checked call cannot use: too short, misaligned, not in the
// arena, or overlapping in a way that the op does not allow.
func (o Operands) Check(c Call, workspace int64) error {
	uses := c.Uses(o, workspace)
	for i, u := range uses {
		if err := u.check(c.Op.Kind(), runtime.Arena); err != nil {
			return err
		}
		for _, v := range uses[:i] {
			if !c.mayShare(u, v) {
				return bad(c.Op.Kind(), u.Operand.String(), "%v overlaps %v, which %v does not allow", u, v, c.Pass)
			}
		}
	}
	return nil
}

// mayShare reports whether two operands may lie where they do: apart, both only read, or an output exactly on an
// input where the op declares it. An output that is added to its old contents has none to share.
func (c Call) mayShare(u, v Use) bool {
	if !u.Write && !v.Write || !u.touched().Overlaps(v.touched()) {
		return true
	}
	if v.Write {
		u, v = v, u
	}
	return !v.Write && !u.Read && u.touched() == v.touched() && c.Op.Alias(c.Pass, u.Operand, v.Operand)
}
