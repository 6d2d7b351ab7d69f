package kernels

import (
	"cmp"
	"fmt"
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

// Use is one operand of a call in memory and what the call does with it.
type Use struct {
	Operand
	Span  runtime.Span
	Bytes int64 // that the call touches, from the start of the span
	Read  bool
	Write bool
}

func (u Use) String() string { return fmt.Sprintf("%v at %v", u.Operand, u.Span) }

// touched returns the bytes that the call reads or writes.
func (u Use) touched() runtime.Span {
	return runtime.Span{Space: u.Span.Space, Offset: u.Span.Offset, Bytes: u.Bytes}
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

type uses []Use

func (l *uses) add(r Role, index int, s runtime.Span, bytes int64, read, write bool) {
	*l = append(*l, Use{Operand: Operand{r, index}, Span: s, Bytes: bytes, Read: read, Write: write})
}

func (c Call) forwardUses(l *uses, o Operands) {
	for i, d := range c.In {
		l.add(X, i, at(o.X, i), d.Bytes(), true, false)
	}
	for i, p := range c.Op.Params(c.In) {
		moves := c.Train && c.UpdateStats && !p.Trained
		if p.Trained || !c.Train || moves {
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
	if _, loss := c.Op.(SoftmaxCrossEntropy); !loss {
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
		if inputs && (p.Trained && i == 0 || !p.Trained && !c.Train) {
			l.add(ParamRole, i, at(o.Params, i), c.paramBytes(i, p), true, false)
		}
		if params && p.Trained {
			l.add(DParam, i, at(o.DParams, i), p.Desc.Bytes(), c.AddParams, true)
		}
	}
}

func at(spans []runtime.Span, i int) runtime.Span {
	if i < len(spans) {
		return spans[i]
	}
	return runtime.Span{}
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

// check refuses an operand that is not in a space, too short or misaligned.
func (u Use) check(kind string, space runtime.Space) error {
	switch s := u.Span; {
	case s.Space != space:
		return bad(kind, u.Operand.String(), "%v is not in the space %v", s, space)
	case s.Bytes < u.Bytes:
		return bad(kind, u.Operand.String(), "%v has %d bytes, the call needs %d", s, s.Bytes, u.Bytes)
	case s.Offset < 0 || s.Offset%Alignment != 0:
		return bad(kind, u.Operand.String(), "%v does not start at a multiple of %d", s, Alignment)
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

// Check refuses, with an *OpError, an update whose attributes or operands no library can use.
func (o UpdateOperands) Check(u Update) error {
	if u == nil {
		return bad("update", "Update", "is missing")
	}
	kind := u.Kind()
	if err := checkRule(u); err != nil {
		return err
	}
	if o.Elements < 1 || o.Elements > MaxElements {
		return bad(kind, "Elements", "%d is not from 1 to %d", o.Elements, int64(MaxElements))
	}
	if err := CheckMatrix(u, o.Matrix); err != nil {
		return err
	}
	if m := o.Matrix; m.Is() && m.Rows*m.Columns != o.Elements {
		return bad(kind, "Matrix", "%d rows of %d columns are not the parameter's %d elements", m.Rows, m.Columns, o.Elements)
	}
	if want := StatesOf(u, o.Matrix); len(o.States) != want {
		return bad(kind, "States", "has %d tensors, want %d", len(o.States), want)
	}
	return checkUses(kind, o.Param.Space, o.Uses())
}

// CheckMatrix refuses, with an *OpError, a rule that is none, and a matrix that cannot be.
func CheckMatrix(u Update, m Matrix) error {
	if u == nil {
		return bad("update", "Update", "is missing")
	}
	if m.Is() && (m.Rows < 1 || m.Columns < 1 || m.Rows > MaxElements/m.Columns) {
		return bad(u.Kind(), "Matrix", "%d rows of %d columns are not from 1 to %d elements", m.Rows, m.Columns, int64(MaxElements))
	}
	return nil
}

// CheckUpdateWorkspace refuses, with an *OpError, an update with less workspace than its maker needs.
func CheckUpdateWorkspace(l Updater, u Update, o UpdateOperands) error {
	need, err := l.UpdateWorkspace(u, o.Matrix)
	if err == nil && o.Workspace.Bytes < need {
		err = bad(u.Kind(), Workspace.String(), "%v has %d bytes, the update needs %d", o.Workspace, o.Workspace.Bytes, need)
	}
	return err
}

// CheckUpdates refuses, with an *OpError, what no library can update at once: bad operands, none, with different scalars or
// overlapping.
func CheckUpdates(u Update, all []UpdateOperands) error {
	var apart []Use
	for i, o := range all {
		if err := o.Check(u); err != nil {
			return err
		}
		if o.Scalars != all[0].Scalars {
			return bad(u.Kind(), "Scalars", "those of parameter %d are at %v, of the first at %v", i, o.Scalars, all[0].Scalars)
		}
		if o.Workspace != all[0].Workspace {
			return bad(u.Kind(), "Workspace", "that of parameter %d is at %v, of the first at %v", i, o.Workspace, all[0].Workspace)
		}
		apart = append(apart, o.tensors()...)
	}
	if len(all) == 0 {
		return bad("update", "UpdateOperands", "there are none")
	}
	return checkUses(u.Kind(), all[0].Param.Space, apart)
}

// checkUses refuses operands that are not in a space, too short or misaligned, or that overlap.
func checkUses(kind string, space runtime.Space, uses []Use) error {
	for _, u := range uses {
		if err := u.check(kind, space); err != nil {
			return err
		}
	}
	placed := slices.DeleteFunc(slices.Clone(uses), func(u Use) bool { return u.Bytes == 0 })
	slices.SortStableFunc(placed, func(u, v Use) int { return cmp.Compare(u.Span.Offset, v.Span.Offset) })
	for i := 1; i < len(placed); i++ {
		if u, v := placed[i], placed[i-1]; u.touched().Overlaps(v.touched()) {
			return bad(kind, u.Operand.String(), "%v overlaps %v", u, v)
		}
	}
	return nil
}

// Uses lists the operands: the parameter as ParamRole, its gradient as DParam, the states as Save, and the rounded copy as Y.
func (o UpdateOperands) Uses() []Use {
	l := o.tensors()
	l.add(ScalarsRole, 0, o.Scalars, ScalarsBytes, true, false)
	if o.Workspace.Bytes > 0 {
		l.add(Workspace, 0, o.Workspace, o.Workspace.Bytes, true, true)
	}
	return l
}

// tensors lists the operands that no other update may touch.
func (o UpdateOperands) tensors() (l uses) {
	bytes := o.Elements * Float32.Size()
	l.add(ParamRole, 0, o.Param, bytes, true, true)
	l.add(DParam, 0, o.Grad, bytes, true, false)
	for i, s := range o.States {
		l.add(Save, i, s, bytes, true, true)
	}
	if o.Rounded.Bytes > 0 {
		l.add(Y, 0, o.Rounded, o.Elements*BFloat16.Size(), false, true)
	}
	return l
}

func checkRule(u Update) error {
	switch r := u.(type) {
	case SGD:
		return r.check()
	case Adam:
		return r.check(r.Kind())
	case AdamW:
		return Adam(r).check(r.Kind())
	case Muon:
		if !(r.Momentum >= 0 && r.Momentum < 1) {
			return bad(r.Kind(), "Momentum", "%v is not in [0, 1)", r.Momentum)
		}
		return Adam(r.AdamW()).check(r.Kind())
	}
	return bad(u.Kind(), "Update", "%T is not a known rule", u)
}

func (s SGD) check() error {
	switch {
	case !(s.Momentum >= 0 && s.Momentum <= 1):
		return bad(s.Kind(), "Momentum", "%v is not in [0, 1]", s.Momentum)
	case !(s.Dampening >= 0 && s.Dampening <= 1):
		return bad(s.Kind(), "Dampening", "%v is not in [0, 1]", s.Dampening)
	case !(s.WeightDecay >= 0):
		return bad(s.Kind(), "WeightDecay", "%v is negative", s.WeightDecay)
	case s.Nesterov && (s.Momentum == 0 || s.Dampening != 0):
		return bad(s.Kind(), "Nesterov", "needs a momentum and no dampening, have %v and %v", s.Momentum, s.Dampening)
	}
	return nil
}

func (a Adam) check(kind string) error {
	switch {
	case !(a.Beta1 >= 0 && a.Beta1 < 1):
		return bad(kind, "Beta1", "%v is not in [0, 1)", a.Beta1)
	case !(a.Beta2 >= 0 && a.Beta2 < 1):
		return bad(kind, "Beta2", "%v is not in [0, 1)", a.Beta2)
	case !(a.Epsilon >= 0):
		return bad(kind, "Epsilon", "%v is negative", a.Epsilon)
	case !(a.WeightDecay >= 0):
		return bad(kind, "WeightDecay", "%v is negative", a.WeightDecay)
	}
	return nil
}
