//go:build cuda && linux && amd64

package cuda

// #cgo CFLAGS: -I${SRCDIR}/src
// #include "args.h"
import "C"

import (
	"encoding/json"
	"fmt"
	"strings"
	"unsafe"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
)

// Options of a library. The zero value is the fastest that our kernels can do.
type Options struct {
	NoTensorCores bool        // compute products of bfloat16 and TF32 without tensor cores
	Vendor        nvidia.Mode // of NVIDIA's libraries; "": nvidia.Refuse
	Search        nvidia.Search
	// Note, when not nil, is told in one line of each algorithm that computed wrongly and is not used.
	Note func(string)
	// Choices are those of another process, by ExportChoices: this library repeats them.
	Choices json.RawMessage
	tile    tile // of every product, for tests; the zero tile: each product chooses
}

// Library implements kernels.Library on one device.
type Library struct {
	device  *cuda.Device
	tensor  bool // products of bfloat16 and TF32 run on tensor cores
	tile    tile // of every product; the zero tile: each product chooses
	vendors *vendors
	note    func(string)
	prove   func(kernels.Call, algorithm) error // see proof.go
	terms   int64                               // that a proof adds up at most
}

var (
	_ kernels.Library = (*Library)(nil)
	_ kernels.Chooser = (*Library)(nil)
)

// tensorCapability is the first compute capability whose tensor cores multiply bfloat16 and TF32.
const tensorCapability = 8

// New returns the library for a device.
func New(device *cuda.Device, o Options) (*Library, error) {
	major, minor := device.Capability()
	if major < 7 || major == 7 && minor < 5 {
		return nil, fmt.Errorf("%s: its compute capability is %d.%d, the kernels need 7.5 or newer (Turing)", device.Info().Name, major, minor)
	}
	v, err := newVendors(device, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", device.Info().Name, err)
	}
	l := &Library{device: device, tensor: major >= tensorCapability && !o.NoTensorCores, tile: o.tile, vendors: v, note: o.Note, terms: proofTerms}
	if emulated(device) {
		l.terms = emulatedProofTerms
	}
	if l.note == nil {
		l.note = func(string) {}
	}
	l.prove = l.proof
	return l, v.choices.adopt(l, o.Choices)
}

// emulated reports whether the GPU is the emulated driver's.
func emulated(device *cuda.Device) bool { return strings.Contains(device.Info().Model, "emulated") }

// Name implements kernels.Library: "cuda/tensor" where bfloat16 and TF32 run on tensor cores, else "cuda", and behind that the
// vendors' libraries.
func (l *Library) Name() string {
	name := "cuda"
	if l.tensor {
		name = "cuda/tensor"
	}
	return name + l.vendors.name()
}

// Workspace implements kernels.Library.
func (l *Library) Workspace(c kernels.Call) (int64, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	b, err := l.build(c, nil)
	if err != nil {
		return 0, err
	}
	return b.used, nil
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
	addresses, err := l.resolve(c.Uses(o, workspace))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Op.Kind(), err)
	}
	b, err := l.build(c, addresses)
	if err != nil {
		return nil, err
	}
	return l.launch(c.Op.Kind()+" "+c.Pass.String(), b)
}

// addresses are those of a call's operands on the device.
type addresses map[kernels.Operand]C.u64

// resolve finds the addresses of operands.
func (l *Library) resolve(uses []kernels.Use) (addresses, error) {
	found := addresses{}
	for _, u := range uses {
		u.Span.Bytes = u.Bytes
		p, err := l.device.Address(u.Span)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", u.Operand, err)
		}
		found[u.Operand] = C.u64(p)
	}
	return found, nil
}

// launch loads the kernels of what was built.
func (l *Library) launch(name string, b *builder) (cuda.Launch, error) {
	var all []cuda.Launch
	for _, s := range b.steps {
		if s.call != nil {
			all = append(all, s.call)
			continue
		}
		k, err := l.kernel(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, k)
	}
	return cuda.Sequence(name, all...), nil
}

func (l *Library) kernel(s step) (cuda.Launch, error) {
	m, err := l.device.Module(s.module, images[s.module])
	if err != nil {
		return nil, err
	}
	f, err := m.Function(s.function)
	if err != nil {
		return nil, err
	}
	return l.device.NewKernel(s.function, f, s.grid, s.block, s.shared, unsafe.Pointer(unsafe.SliceData(s.args)), uintptr(len(s.args)))
}

// step is one kernel of a call, or a call of a vendor's library.
type step struct {
	call             cuda.Launch
	module, function string
	grid, block      [3]uint32
	shared           uint32 // bytes of dynamic shared memory
	args             []byte
}

// builder turns a call into steps. Without operands it only counts the workspace.
type builder struct {
	lib       *Library
	call      kernels.Call
	algorithm algorithm // of a convolution or linear layer
	address   addresses
	steps     []step
	used      int64 // bytes of workspace
	products  space // of cuBLAS, in the workspace
	err       error // the first one
}

func (l *Library) build(c kernels.Call, a addresses) (*builder, error) {
	return l.buildAs(c, a, measured)
}

// buildAs builds a convolution or linear layer by an algorithm.
func (l *Library) buildAs(c kernels.Call, a addresses, how algorithm) (*builder, error) {
	b := &builder{lib: l, call: c, algorithm: how, address: a}
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
	case kernels.Cast:
		b.cast(op)
	case kernels.MaxPool:
		b.pool(kernels.AvgPool(op.Defaults()), "maxpool")
	case kernels.AvgPool:
		b.pool(op.Defaults(), "avgpool")
	case kernels.GlobalAvgPool:
		b.globalPool()
	case kernels.AdaptiveAvgPool:
		b.adaptivePool(op)
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
		b.activation(map[bool]string{false: "gelu", true: "gelu_tanh"}[op.Tanh])
	case kernels.SiLU:
		b.activation("silu")
	case kernels.Multiply:
		b.elementProduct()
	case kernels.Rotary:
		b.rotary(op)
	case kernels.Attention:
		b.attention(op.Defaults())
	default:
		b.fail("%w", kernels.NoKernel("kernels/cuda"))
	}
	return b, b.err
}

// at returns the address of an operand, 0 when the call does not use it.
func (b *builder) at(r kernels.Role, index int) C.u64 {
	return b.address[kernels.Operand{Role: r, Index: index}]
}

// reserve takes bytes of the workspace.
func (b *builder) reserve(bytes int64) C.u64 {
	at := b.used
	b.used += kernels.Align(bytes)
	if base := b.at(kernels.Workspace, 0); base != 0 {
		return base + C.u64(at)
	}
	return 0
}

// fail notes that the call cannot be built.
func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("%s: "+format, append([]any{b.call.Op.Kind()}, args...)...)
	}
}

type dim [3]int64

// maxGrid is what CUDA allows along x, y and z.
var maxGrid = dim{1<<31 - 1, 1<<16 - 1, 1<<16 - 1}

// addStep appends a kernel with its argument.
func addStep[T any](b *builder, module, function string, grid, block dim, shared int64, args T) {
	s := step{module: module, function: function, shared: uint32(shared)}
	for i := range grid {
		if grid[i] < 1 || grid[i] > maxGrid[i] {
			b.fail("%s needs a grid of %v blocks, CUDA allows %v: use smaller tensors", function, grid, maxGrid)
			return
		}
		s.grid[i], s.block[i] = uint32(grid[i]), uint32(block[i])
	}
	s.args = append(s.args, unsafe.Slice((*byte)(unsafe.Pointer(&args)), unsafe.Sizeof(args))...)
	b.steps = append(b.steps, s)
}

// suffix is the part of a kernel's name that says the type of activations, or of factors.
func suffix(d kernels.DType) string {
	switch d {
	case kernels.BFloat16:
		return "_bf16"
	case kernels.TF32:
		return "_tf32"
	}
	return "_f32"
}

// wide returns the elements of 16 bytes.
func wide(d kernels.DType) int64 { return 16 / d.Size() }

func ceil(a, b int64) int64 { return (a + b - 1) / b }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
