package kernels

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
	if o.GradType != Float32 && o.GradType != BFloat16 {
		return bad(kind, "GradType", "%v is neither float32 nor bfloat16", o.GradType)
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
	if !m.DType.Stored().Float() {
		return bad(u.Kind(), "Matrix", "%v is no type of products", m.DType)
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
	l.add(DParam, 0, o.Grad, o.Elements*o.GradType.Size(), true, false)
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
