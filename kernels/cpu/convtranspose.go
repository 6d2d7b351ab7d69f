package cpu

// #include "job.h"
import "C"

import "plimsoll/kernels"

// addConvTranspose adds the jobs of the convolution whose gradient the op is.
func addConvTranspose(b *builder) {
	if b.call.Pass == kernels.BackwardInput && b.call.Skips(0) {
		return
	}
	call, roles := b.call.AdjointCall()
	a := *b
	a.call, a.address = call, map[kernels.Operand]C.uint64_t{}
	for _, r := range []kernels.Role{kernels.ParamRole, kernels.DParam, kernels.Workspace} {
		a.address[kernels.Operand{Role: r}] = b.at(r, 0)
	}
	for role, here := range roles {
		a.address[kernels.Operand{Role: role}] = b.at(here, 0)
	}
	m := multiplication{&a, newConvolution(call.Op.(kernels.Conv2D), call.In[0]), b.call.Pass == kernels.BackwardInput && b.call.Adds(0)}
	m.multiplyAll()
	b.jobs, b.used = a.jobs, a.used
}
