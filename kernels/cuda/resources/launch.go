package resources

// Launch is a kernel as a call launches it.
type Launch struct {
	Module, Kernel string
	Blocks         int64
	Threads        int // of a block
	Shared         int // bytes of shared memory that the launch adds to the declared ones
}

// Held returns the kernel's row on a generation, and the blocks of the launch that a multiprocessor holds at once. A kernel that the table
// lacks holds none.
func (t *Table) Held(l Launch, g GPU) (u Usage, blocks int) {
	u, known := t.Rows[l.Module+" "+l.Kernel].On[g.Name]
	if !known {
		return u, 0
	}
	return u, g.Resident(l.Threads, u.Registers, u.Shared+l.Shared)
}
