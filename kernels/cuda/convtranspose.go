//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// addConvTranspose appends the kernels of the convolution whose gradient the op is: those of this package.
func addConvTranspose(b *builder) {
	if b.call.Pass == kernels.BackwardInput && b.call.Skips(0) {
		return
	}
	call, roles := b.call.AdjointCall()
	c := newConvolution(call.Op.(kernels.Conv2D), call.In[0])
	if err := c.check(); err != nil {
		b.fail("%v", err)
		return
	}
	a := *b
	a.call, a.address = call, addresses{}
	for _, r := range []kernels.Role{kernels.ParamRole, kernels.DParam, kernels.Workspace} {
		a.address[kernels.Operand{Role: r}] = b.at(r, 0)
	}
	for role, here := range roles {
		a.address[kernels.Operand{Role: role}] = b.at(here, 0)
	}
	m := &multiplication{builder: &a, convolution: c, algorithm: ours}
	if call.Pass == kernels.Forward {
		m.window(m.at(kernels.X, 0), m.at(kernels.Y, 0), 0, b.call.Adds(0))
	} else {
		m.ours()
	}
	b.steps, b.used, b.err = a.steps, a.used, a.err
}
