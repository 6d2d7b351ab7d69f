package main

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// placed is a kernel call bound to memory.
type placed struct {
	rig      *rig
	launch   runtime.Launch
	operands kernels.Operands
}

func (p *placed) issue() error { return p.rig.stream.Launch(p.launch) }

// tray gives operands memory one behind the other.
type tray struct{ offset, bytes int64 }

func (t *tray) take(bytes int64) runtime.Span {
	s := runtime.Span{Offset: t.offset, Bytes: bytes}
	t.offset += kernels.Align(bytes)
	t.bytes += kernels.Align(bytes)
	return s
}

// operands gives every operand of a call memory.
func (t *tray) operands(c kernels.Call, workspace int64) (o kernels.Operands, err error) {
	y, err := c.Op.Infer(c.In)
	if err != nil {
		return o, err
	}
	o = kernels.Operands{Scalars: t.take(kernels.ScalarsBytes), Y: t.take(y.Bytes()), DY: t.take(y.Bytes())}
	for _, d := range c.In {
		o.X, o.DX = append(o.X, t.take(d.Bytes())), append(o.DX, t.take(d.Bytes()))
	}
	for _, d := range c.Op.Saved(c.In) {
		o.Saved = append(o.Saved, t.take(d.Bytes()))
	}
	for _, q := range c.Op.Params(c.In) {
		o.Params, o.DParams = append(o.Params, t.take(q.Desc.Bytes())), append(o.DParams, t.take(q.Desc.Bytes()))
	}
	o.Workspace = t.take(workspace)
	return o, nil
}

// forward is the call that makes what a backward reads.
func forward(c kernels.Call) kernels.Call {
	return kernels.Call{Op: c.Op, In: c.In, Train: true, Salt: c.Salt}
}

// workspace is the workspace of a call and its forward.
func workspace(lib kernels.Library, c kernels.Call) (int64, error) {
	one, err := lib.Workspace(c)
	if err != nil {
		return 0, err
	}
	other, err := lib.Workspace(forward(c))
	return max(one, other), err
}

// placeBytes returns the memory that place needs for a call.
func placeBytes(lib kernels.Library, c kernels.Call) (int64, error) {
	w, err := workspace(lib, c)
	if err != nil {
		return 0, err
	}
	t := tray{}
	_, err = t.operands(c, w)
	return t.bytes, err
}

// place binds a call to memory in the span, whatever it holds; labels and tokens are random. For a backward the forward runs first.
func (r *rig) place(c kernels.Call, in runtime.Span) (*placed, error) {
	w, err := workspace(r.Library, c)
	if err != nil {
		return nil, err
	}
	t := tray{offset: in.Offset}
	p := &placed{rig: r}
	if p.operands, err = t.operands(c, w); err != nil {
		return nil, err
	}
	if t.bytes > in.Bytes {
		return nil, fmt.Errorf("BUG: %s takes %d bytes, there are %d", c.Op.Kind(), t.bytes, in.Bytes)
	}
	for i, d := range c.In {
		if d.DType == kernels.Int32 {
			if err := r.index(p.operands.X[i], extent(c)); err != nil {
				return nil, err
			}
		}
	}
	if c.Pass != kernels.Forward {
		if err := r.runForward(c, p.operands); err != nil {
			return nil, err
		}
	}
	p.launch, err = r.Library.Prepare(c, p.operands)
	return p, err
}

func (r *rig) runForward(c kernels.Call, o kernels.Operands) error {
	l, err := r.Library.Prepare(forward(c), o)
	if err != nil {
		return err
	}
	if err := r.stream.Launch(l); err != nil {
		return err
	}
	return r.stream.Synchronize()
}

// extent is how many labels, or tokens, a call tells apart.
func extent(c kernels.Call) uint32 {
	if e, ok := c.Op.(kernels.Embedding); ok {
		return uint32(e.Vocabulary)
	}
	return uint32(c.In[0].Shape[len(c.In[0].Shape)-1])
}
