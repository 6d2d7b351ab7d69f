package kernels

import "plimsoll/runtime"

// Cost returns the least work of a call. Bytes are those of its operands, each read or written once as the call reads or writes it.
// Operations are the floating-point operations of products, two for each multiplication and addition. Time beside bytes/bandwidth and
// operations/rate says how far a kernel is from its floor.
func (c Call) Cost() (bytes, operations int64, err error) {
	if err := c.Check(); err != nil {
		return 0, 0, err
	}
	for _, u := range c.Uses(Operands{}, 0) {
		bytes += u.traffic()
	}
	if c.Train && c.Pass == Forward { // what training saves; Uses lists it only where there is a place for it
		for _, d := range c.Op.Saved(c.In) {
			bytes += d.Bytes()
		}
	}
	return bytes - c.unread(), c.products(), nil
}

// traffic returns the bytes that an operand reads and writes. Scalars are next to nothing.
func (u Use) traffic() (bytes int64) {
	if u.Role == ScalarsRole {
		return 0
	}
	if u.Read {
		bytes += u.Bytes
	}
	if u.Write {
		bytes += u.Bytes
	}
	return bytes
}

// unread returns the bytes of tables that a lookup of rows does not read: a token reads one row of each table.
func (c Call) unread() (bytes int64) {
	if _, lookup := c.Op.(Embedding); !lookup || c.Pass != Forward {
		return 0
	}
	y, _ := c.Op.Infer(c.In)
	for _, p := range c.Op.Params(c.In) {
		bytes += max(p.Desc.Bytes()-y.Elements()*p.Desc.DType.Size(), 0)
	}
	return bytes
}

// products returns the operations of a convolution or a linear layer; each pass has as many. For attention it returns the
// operations that the mask leaves: two products of a row and a column for each score forward, five backward.
func (c Call) products() int64 {
	y, _ := c.Op.Infer(c.In)
	switch op := c.Op.(type) {
	case Conv2D:
		d := op.Defaults()
		return 2 * y.Elements() * int64(d.KernelH) * int64(d.KernelW) * int64(c.In[0].Shape[3]/d.Groups)
	case ConvTranspose2D:
		conv, image := op.Adjoint(c.In[0])
		return Call{Op: conv, In: []Desc{image}}.products()
	case Linear:
		return 2 * y.Elements() * op.Features(c.In[0])
	case Attention:
		product := y.Elements() * int64(c.In[0].Shape[1]+1)
		if op.Bidirectional {
			product = 2 * y.Elements() * int64(c.In[0].Shape[1])
		}
		if c.Pass == Forward {
			return 2 * product
		}
		return 5 * product
	}
	return 0
}

// Computes returns the type in which a call computes: bfloat16 where an operand of it is, TF32 where factors are rounded to it, or float32.
func (c Call) Computes() DType {
	switch {
	case c.Has(BFloat16):
		return BFloat16
	case UsesTF32(c.Op):
		return TF32
	}
	return Float32
}

// UpdateCost returns the least bytes and operations of the update of a parameter, as Call.Cost does. Each operand is read or written once.
// Operations are those of the products of an orthogonalized matrix.
func UpdateCost(u Update, o UpdateOperands) (bytes, operations int64) {
	o.States = make([]runtime.Span, StatesOf(u, o.Matrix))
	for _, use := range o.tensors() {
		bytes += use.traffic()
	}
	if !o.Matrix.Muons(u) {
		return bytes, 0
	}
	side := o.Matrix.Side()
	return bytes, MuonSteps * (4*o.Elements*side + 2*side*side*side)
}
