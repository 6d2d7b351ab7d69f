package models

import (
	"fmt"

	"plimsoll/kernels"
)

// buffer is memory that a routine works on: a tensor, or a workspace.
type buffer struct {
	bytes   int64
	ref     Ref  // where it lies; the layout decides unless it is fixed
	fixed   bool // it lies at ref
	liveIn  bool // it holds something before the first step
	liveOut bool // somebody reads it after the last step

	// kept: the other half of the backward reads it, so it is neither overwritten nor anywhere but where that finds it.
	kept bool

	first, last int // the steps between which, both included, it holds something
}

func fixed(r Ref, liveIn, liveOut bool) *buffer {
	return &buffer{bytes: r.Bytes, ref: r, fixed: true, liveIn: liveIn, liveOut: liveOut}
}

func temporary(d kernels.Desc) *buffer { return &buffer{bytes: d.Bytes()} }

// arg binds one operand of a call to a buffer.
type arg struct {
	operand kernels.Operand
	buf     *buffer
}

// routine is a program whose temporaries have no place yet.
type routine struct {
	steps []instruction
	// spared are fixed buffers to be left alone throughout, whether a step uses them or not.
	spared []*buffer
}

type instruction struct {
	name string
	call kernels.Call
	args []arg
}

// bind adds an operand; a nil buffer is an operand that the call does not use.
func (s *instruction) bind(role kernels.Role, index int, b *buffer) {
	if b != nil {
		s.args = append(s.args, arg{kernels.Operand{Role: role, Index: index}, b})
	}
}

// keep marks the forward values and the gradient that the call reads.
func (s *instruction) keep() {
	for _, a := range s.args {
		if a.operand.Role == kernels.X || a.operand.Role == kernels.DY {
			a.buf.kept, a.buf.liveOut = true, true
		}
	}
}

func (r *routine) add(s instruction) { r.steps = append(r.steps, s) }

// workspaces gives every call the workspace that the library wants for it.
func (r *routine) workspaces(lib kernels.Library) error {
	for i := range r.steps {
		s := &r.steps[i]
		n, err := lib.Workspace(s.call)
		if err != nil {
			return fmt.Errorf("op %q, %v: %w", s.name, s.call.Pass, err)
		}
		if n > 0 {
			s.bind(kernels.Workspace, 0, &buffer{bytes: n})
		}
	}
	return nil
}

// lifetimes fills in first and last of every buffer and returns the buffers in order of first use.
func (r *routine) lifetimes() []*buffer {
	var all []*buffer
	seen := map[*buffer]bool{}
	for t, s := range r.steps {
		for _, a := range s.args {
			if !seen[a.buf] {
				seen[a.buf] = true
				a.buf.first = t
				all = append(all, a.buf)
			}
			a.buf.last = t
		}
	}
	for _, b := range r.spared {
		if !seen[b] {
			seen[b] = true
			all = append(all, b)
		}
	}
	for _, b := range all {
		if b.liveIn {
			b.first = -1
		}
		if b.liveOut {
			b.last = len(r.steps)
		}
	}
	return all
}

// program writes the routine down with every buffer in its place.
func (r *routine) program(scratch int64) Program {
	p := Program{Steps: make([]Step, len(r.steps)), Scratch: scratch}
	for i := range r.steps {
		s := &r.steps[i]
		p.Steps[i] = Step{Name: s.name, Call: s.call, Refs: s.refs()}
	}
	return p
}

func (s *instruction) refs() Refs {
	inputs, params := len(s.call.In), len(s.call.Op.Params(s.call.In))
	r := Refs{X: make([]Ref, inputs), Params: make([]Ref, params)}
	if s.call.Pass != kernels.Forward {
		r.DX, r.DParams = make([]Ref, inputs), make([]Ref, params)
	}
	if s.uses(kernels.Save) {
		r.Saved = make([]Ref, len(s.call.Op.Saved(s.call.In)))
	}
	for _, a := range s.args {
		*r.operand(a.operand) = a.buf.ref
	}
	return r
}

func (s *instruction) uses(role kernels.Role) bool {
	for _, a := range s.args {
		if a.operand.Role == role {
			return true
		}
	}
	return false
}

// operand returns the place of one operand.
func (r *Refs) operand(o kernels.Operand) *Ref {
	switch o.Role {
	case kernels.X:
		return &r.X[o.Index]
	case kernels.Y:
		return &r.Y
	case kernels.DX:
		return &r.DX[o.Index]
	case kernels.DY:
		return &r.DY
	case kernels.Save:
		return &r.Saved[o.Index]
	case kernels.ParamRole:
		return &r.Params[o.Index]
	case kernels.DParam:
		return &r.DParams[o.Index]
	}
	return &r.Workspace
}
