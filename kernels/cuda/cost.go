package cuda

import "plimsoll/kernels"

// Cost returns what a call cannot do without: the bytes of its operands, each read or written once as the call reads or
// writes it, and, for products, their floating-point operations, two for each multiplication and addition. Time beside
// bytes/bandwidth and operations/rate says how far a kernel is from its floor.
func Cost(c kernels.Call) (bytes, operations int64, err error) {
	if err := c.Check(); err != nil {
		return 0, 0, err
	}
	for _, u := range c.Uses(kernels.Operands{}, 0) {
		if u.Role == kernels.ScalarsRole {
			continue
		}
		if u.Read {
			bytes += u.Bytes
		}
		if u.Write {
			bytes += u.Bytes
		}
	}
	if c.Train && c.Pass == kernels.Forward { // what training saves; Uses lists it only where there is a place for it
		for _, d := range c.Op.Saved(c.In) {
			bytes += d.Bytes()
		}
	}
	return bytes, products(c), nil
}

// products returns the operations of a convolution or a linear layer, each pass of which has as many, or those of attention that
// its mask leaves: two products of a row and a column for each score forward, five backward.
func products(c kernels.Call) int64 {
	y, _ := c.Op.Infer(c.In)
	switch op := c.Op.(type) {
	case kernels.Conv2D:
		d := op.Defaults()
		return 2 * y.Elements() * int64(d.KernelH) * int64(d.KernelW) * int64(c.In[0].Shape[3]/d.Groups)
	case kernels.Linear:
		return 2 * y.Elements() * op.Features(c.In[0])
	case kernels.Attention:
		product := y.Elements() * int64(c.In[0].Shape[1]+1)
		if c.Pass == kernels.Forward {
			return 2 * product
		}
		return 5 * product
	}
	return 0
}
