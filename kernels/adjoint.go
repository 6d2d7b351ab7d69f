package kernels

// adjointPass returns the pass of the convolution that computes a pass, and the role here of each of its operands in another role.
func (c ConvTranspose2D) adjointPass(p Pass) (Pass, map[Role]Role) {
	switch p {
	case Forward:
		return BackwardInput, map[Role]Role{DY: X, DX: Y}
	case BackwardInput:
		return Forward, map[Role]Role{X: DY, Y: DX}
	}
	return BackwardParams, map[Role]Role{X: DY, DY: X}
}

// AdjointCall returns the call of a convolution that computes a call of a ConvTranspose2D, and the role here of each of its operands in
// another role. A forward of it adds to what its output holds where the call here adds to its gradient.
func (c Call) AdjointCall() (made Call, roles map[Role]Role) {
	op := c.Op.(ConvTranspose2D)
	conv, y := op.Adjoint(c.In[0])
	made = c
	made.Op, made.In, made.SkipDX, made.AddDX = conv, []Desc{y}, nil, nil
	made.Pass, roles = op.adjointPass(c.Pass)
	return made, roles
}
