// Package cpu is the kernel library of the host device: every op of package kernels in float32, in C compiled for
// AVX-512, AVX2 and any other processor (see Path), on all cores; and in bfloat16 on the path avx512 where the processor has
// AVX512-BF16. There products are of pairs of bfloat16 and everything else is the same code as in float32, between a load that
// widens and a store that rounds.
//
// A launch is bound to addresses when it is prepared; running it allocates nothing. Results depend on the operands and
// the path alone: sums run in an order that depends on the shape, and threads only decide into how many tasks results are cut and
// who does which. So one thread and many give the same bits, alone or beside other streams.
//
// Subnormal numbers are zeros, as operands and as results, in every op on every thread: gradients that vanish pass through them,
// where many a processor is a hundred times slower. Package ref and the CUDA kernels keep them.
//
// Images are N,H,W,C throughout; convolutions read them through windows and never store im2col matrices.
package cpu

// #cgo CFLAGS: -std=c11 -O3 -Wall -Wextra -Wno-unknown-pragmas
// #cgo LDFLAGS: -lm -pthread
// #include "job.h"
import "C"

import (
	"fmt"
	"unsafe"

	"plimsoll/internal/cores"
	"plimsoll/kernels"
	"plimsoll/runtime"
)

// Memory gives the bytes of a device's spans; runtime/host's Device is one.
type Memory interface {
	Bytes(s runtime.Span) ([]byte, error)
}

// Options of a library. The zero value is the fastest path on all cores.
type Options struct {
	Threads int    // workers, the caller included; 0: cores.Count. Libraries with equal Threads share their workers
	Path    string // "plain", "avx2", "avx512"; "": the environment's PLIMSOLL_CPU_PATH, or the fastest
}

// MaxThreads bounds Options.Threads.
const MaxThreads = 1024

// Library implements kernels.Library.
type Library struct {
	memory Memory
	path   Path
	halves bool // the processor multiplies in bfloat16
	pool   *pool
}

var _ kernels.Library = (*Library)(nil)

// New returns the library for memory; nil will do for Workspace.
func New(memory Memory, o Options) (*Library, error) {
	path, err := choosePath(o.Path)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	if o.Threads < 0 || o.Threads > MaxThreads {
		return nil, fmt.Errorf("cpu: %w: %d is not from 0 (all cores) to %d", ErrThreads, o.Threads, MaxThreads)
	}
	if o.Threads == 0 {
		o.Threads = min(cores.Count(), MaxThreads)
	}
	pool, err := sharedPool(o.Threads)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	return &Library{memory: memory, path: path, halves: C.plimsoll_has(C.HALVES) != 0, pool: pool}, nil
}

// Name implements kernels.Library: "cpu/avx512".
func (l *Library) Name() string { return "cpu/" + l.path.String() }

// Path returns the instruction set in use.
func (l *Library) Path() Path { return l.path }

// Threads returns the number of workers.
func (l *Library) Threads() int { return l.pool.threads }

// Workspace implements kernels.Library. It depends on the path and the threads.
func (l *Library) Workspace(c kernels.Call) (int64, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	if c.Has(kernels.BFloat16) {
		if err := l.lacksBFloat16(); err != nil {
			return 0, err
		}
	}
	b := l.build(c, nil)
	return b.used, b.err
}

// lacksBFloat16 says, with a *kernels.TypeError, what is missing for bfloat16: the instructions, or the path that uses them.
func (l *Library) lacksBFloat16() error {
	switch {
	case !l.halves:
		return &kernels.TypeError{Needs: "AVX512-BF16, which this CPU does not have"}
	case l.path != AVX512:
		return &kernels.TypeError{Needs: fmt.Sprintf("AVX512-BF16, which only the path %v has, and this is %v", AVX512, l.path)}
	}
	return nil
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

func (l *Library) launch(name string, b *builder, uses []access) *launch {
	return &launch{
		name: name, pool: l.pool, jobs: b.jobs, uses: uses, shares: make([]C.struct_share, l.pool.threads),
	}
}

// access is an operand's memory.
type access struct {
	operand kernels.Operand
	bytes   []byte
	write   bool
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

// builder turns a call into jobs. Without operands it only counts the workspace.
type builder struct {
	lib     *Library
	call    kernels.Call
	half    bool // activations are bfloat16
	address map[kernels.Operand]C.uint64_t
	jobs    []C.struct_job
	used    int64 // bytes of workspace
	err     error // of an op or update without a kernel
}

func (l *Library) newBuilder(uses []access) *builder {
	b := &builder{lib: l, address: map[kernels.Operand]C.uint64_t{}}
	for _, u := range uses {
		b.address[u.operand] = C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(u.bytes))))
	}
	return b
}

func (l *Library) build(c kernels.Call, uses []access) *builder {
	b := l.newBuilder(uses)
	b.call, b.half = c, c.Has(kernels.BFloat16)
	switch op := c.Op.(type) {
	case kernels.Conv2D:
		b.conv(newConvolution(op.Defaults(), c.In[0]))
	case kernels.Linear:
		b.conv(newLinear(op, c.In[0]))
	case kernels.BatchNorm:
		b.norm(op.Defaults())
	case kernels.ReLU:
		b.relu(op)
	case kernels.Add:
		b.add()
	case kernels.Concat, kernels.Pack:
		b.concat()
	case kernels.Slice:
		b.slice(op.Defaults())
	case kernels.Upsample:
		b.upsample(op)
	case kernels.MaxPool:
		b.pool(kernels.AvgPool(op.Defaults()), C.MAXPOOL_FORWARD, C.MAXPOOL_BACKWARD)
	case kernels.AvgPool:
		b.pool(op.Defaults(), C.AVGPOOL_FORWARD, C.AVGPOOL_BACKWARD)
	case kernels.GlobalAvgPool:
		b.globalPool()
	case kernels.AdaptiveAvgPool:
		b.adaptivePool(op)
	case kernels.Cast:
		b.cast(op)
	case kernels.Dropout:
		b.dropout(op)
	case kernels.SoftmaxCrossEntropy:
		b.loss()
	case kernels.Embedding:
		b.embedding(op)
	case kernels.LayerNorm:
		b.rowNorm(op.Defaults().Epsilon, true)
	case kernels.RMSNorm:
		b.rowNorm(op.Defaults().Epsilon, false)
	case kernels.GELU:
		if op.Tanh {
			b.activation(C.GELU_TANH_FORWARD, C.GELU_TANH_BACKWARD)
		} else {
			b.activation(C.GELU_FORWARD, C.GELU_BACKWARD)
		}
	case kernels.SiLU:
		b.activation(C.SILU_FORWARD, C.SILU_BACKWARD)
	case kernels.Multiply:
		b.elementProduct()
	case kernels.Rotary:
		b.rotary(op)
	case kernels.Attention:
		b.attention(op.Defaults())
	default:
		b.err = fmt.Errorf("%s: %w", op.Kind(), kernels.NoKernel("kernels/cpu"))
	}
	return b
}

// at returns the address of an operand, 0 when the call does not use it.
func (b *builder) at(r kernels.Role, index int) C.uint64_t {
	return b.address[kernels.Operand{Role: r, Index: index}]
}

// reserve takes bytes of the workspace.
func (b *builder) reserve(bytes int64) C.uint64_t {
	at := b.used
	b.used += kernels.Align(bytes)
	if base := b.at(kernels.Workspace, 0); base != 0 {
		return base + C.uint64_t(at)
	}
	return 0
}

// scratch is workspace that every worker has for itself.
type scratch struct {
	base  C.uint64_t
	bytes int64
}

func (b *builder) reserveScratch(bytes int64) scratch {
	bytes = kernels.Align(bytes)
	return scratch{b.reserve(bytes * int64(b.lib.pool.threads)), bytes}
}

// addJob appends a phase with its arguments.
func addJob[T any](b *builder, kernel, tasks int64, s scratch, args T) {
	path := C.int32_t(b.lib.path)
	if b.half {
		path = C.HALVES
	}
	b.jobs = append(b.jobs, C.struct_job{
		tasks: C.int64_t(tasks), path: path, kernel: C.int32_t(kernel),
		scratch: s.base, scratch_bytes: C.int64_t(s.bytes),
	})
	*(*T)(unsafe.Pointer(&b.jobs[len(b.jobs)-1].args)) = args
}

// grain is the elements of a task of the kernels that stream through memory.
const grain = 16384

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// rowsPerTask returns how many rows of so many elements make a task.
func rowsPerTask(width int64) int64 { return max(grain/width, 1) }

func flag(b bool) C.int64_t {
	if b {
		return 1
	}
	return 0
}
