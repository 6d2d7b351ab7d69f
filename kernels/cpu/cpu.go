// Package cpu is the kernel library of the host device. It has every op of package kernels in float32 and bfloat16, in C for AVX-512, AVX2
// and any other processor (see Path). Ops run on all cores.
//
// A launch is bound to addresses when it is prepared; running it allocates nothing. The order of a sum depends on the shape and the path
// alone, so one thread and many give the same bits. In bfloat16 a load widens and a store rounds; products take AVX512-BF16, or two
// FMAs with the same bits.
//
// Subnormal numbers are zeros in every op, because many processors are a hundred times slower on them. Package ref and the CUDA
// kernels keep them, and so does a library with Options.Subnormals. Images are N,H,W,C; convolutions never store im2col matrices.
package cpu

// #cgo CFLAGS: -std=c11 -O3 -Wall -Wextra -Wno-unknown-pragmas
// #cgo LDFLAGS: -lm -pthread
// #include "job.h"
import "C"

import (
	"fmt"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

var _ kernels.Library = (*Library)(nil)

// Workspace implements kernels.Library. It depends on the path and the threads.
func (l *Library) Workspace(c kernels.Call) (int64, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	b := l.build(c, nil)
	return b.used, b.err
}

// Prepare implements kernels.Library.
func (l *Library) Prepare(c kernels.Call, o kernels.Operands) (runtime.Launch, error) {
	workspace, err := l.Workspace(c)
	if err != nil {
		return nil, err
	}
	if err := o.Check(c, workspace); err != nil {
		return nil, err
	}
	uses, err := l.resolve(c.Uses(o, workspace))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Op.Kind(), err)
	}
	return l.launch(c.Op.Kind()+" "+c.Pass.String(), l.build(c, uses), uses), nil
}

// PrepareUpdate implements kernels.Library.
func (l *Library) PrepareUpdate(u kernels.Update, all ...kernels.UpdateOperands) (runtime.Launch, error) {
	if err := kernels.CheckUpdates(u, all); err != nil {
		return nil, err
	}
	whole, used := &builder{}, []access(nil)
	for _, o := range all {
		if err := kernels.CheckUpdateWorkspace(l, u, o); err != nil {
			return nil, err
		}
		uses, err := l.resolve(o.Uses())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.Kind(), err)
		}
		b := l.newBuilder(uses)
		if b.update(o.Rule(u), o); b.err != nil {
			return nil, b.err
		}
		whole.jobs, used = append(whole.jobs, b.jobs...), append(used, uses...)
	}
	return l.launch(u.Kind(), whole, used), nil
}

// prepare binds what is no op, and was checked, to its operands.
func (l *Library) prepare(name string, checked error, uses []kernels.Use, build func(b *builder)) (runtime.Launch, error) {
	if checked != nil {
		return nil, checked
	}
	found, err := l.resolve(uses)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b := l.newBuilder(found)
	build(b)
	return l.launch(name, b, found), nil
}

func (l *Library) launch(name string, b *builder, uses []access) *launch {
	return &launch{
		name: name, pool: l.pool, jobs: b.jobs, uses: uses, shares: make([]C.struct_share, l.pool.threads),
	}
}

// resolve finds the memory of operands.
func (l *Library) resolve(uses []kernels.Use) ([]access, error) {
	if l.memory == nil {
		return nil, fmt.Errorf("the library has no memory: give New a device")
	}
	found := make([]access, len(uses))
	for i, u := range uses {
		b, err := l.memory.Bytes(u.Span)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", u.Operand, err)
		}
		found[i] = access{operand: u.Operand, bytes: b[:u.Bytes], write: u.Write}
	}
	return found, nil
}
