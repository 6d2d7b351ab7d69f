//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"unsafe"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/resources"
	"plimsoll/runtime/cuda"
)

func (l *Library) build(c kernels.Call, a addresses) (*builder, error) {
	return l.buildAs(c, a, measured)
}

// buildAs builds a convolution or linear layer by an algorithm.
func (l *Library) buildAs(c kernels.Call, a addresses, how algorithm) (*builder, error) {
	b := &builder{lib: l, address: a}
	addCall(b, c, how)
	return b, b.err
}

// addCall appends the steps of a call.
func addCall(b *builder, c kernels.Call, how algorithm) {
	b.call = c
	switch op := c.Op.(type) {
	case kernels.Conv2D:
		b.conv(newConvolution(op.Defaults(), c.In[0]), how)
	case kernels.Linear:
		b.conv(newLinear(op, c.In[0]), how)
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
	case kernels.SoftmaxCrossEntropy, kernels.ElementLoss:
		addLoss(b, op)
	case kernels.Embedding:
		b.embedding(op)
	case kernels.LayerNorm:
		b.rowNorm(op.Defaults().Epsilon, op.Offset(), true)
	case kernels.RMSNorm:
		b.rowNorm(op.Defaults().Epsilon, op.Offset(), false)
	case kernels.GELU:
		b.activation(map[bool]string{false: "gelu", true: "gelu_tanh"}[op.Tanh], wide(c.In[0].DType), 0)
	case kernels.SiLU:
		b.activation("silu", wide(c.In[0].DType), 0)
	case kernels.Multiply:
		b.elementProduct()
	case kernels.Rotary:
		b.rotary(op.Defaults())
	case kernels.Attention:
		b.attention(op.Defaults())
	default:
		if !addArrangement(b, op) {
			b.fail("%w", kernels.NoKernel("kernels/cuda"))
		}
	}
}

// Launches lists the kernels of a call in their order. No vendor's library takes part, and nothing runs.
func (l *Library) Launches(c kernels.Call) ([]resources.Launch, error) { return l.launches(c, ours) }

// WarpgroupLaunches is Launches for a convolution or linear layer by wgmma, whatever the GPU; none for other calls.
func (l *Library) WarpgroupLaunches(c kernels.Call) ([]resources.Launch, error) {
	switch c.Op.(type) {
	case kernels.Conv2D, kernels.Linear:
		if definition(c).simplified().asynchronous(c.Pass) {
			return l.launches(c, wgmma)
		}
	}
	return nil, nil
}

func (l *Library) launches(c kernels.Call, by algorithm) (all []resources.Launch, err error) {
	b, err := l.buildAs(c, nil, by)
	if err != nil {
		return nil, err
	}
	for _, s := range b.steps {
		all = append(all, resources.Launch{
			Module: s.module, Kernel: s.function, Shared: int(s.shared), Threads: int(s.block[0] * s.block[1] * s.block[2]),
			Blocks: int64(s.grid[0]) * int64(s.grid[1]) * int64(s.grid[2]),
		})
	}
	return all, nil
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
	m, err := l.device.Module(s.module, imageOf(s.module))
	if err != nil {
		return nil, err
	}
	f, err := m.Function(s.function)
	if err != nil {
		return nil, err
	}
	return l.device.NewKernel(s.function, f, s.grid, s.block, s.shared, unsafe.Pointer(unsafe.SliceData(s.args)), uintptr(len(s.args)))
}

// conv builds a convolution by an algorithm.
func (b *builder) conv(c convolution, by algorithm) {
	if err := c.check(); err != nil {
		b.fail("%v", err)
		return
	}
	if b.call.Pass == kernels.BackwardInput && b.call.Skips(0) {
		return
	}
	if by == measured {
		var err error
		if by, err = b.lib.choose(b.call, c); err != nil {
			b.fail("%v", err)
			return
		}
	}
	m := &multiplication{builder: b, convolution: c, algorithm: by}
	switch by {
	case naive:
		m.naive()
	case cublas, cublasParts, cublasBias, cublasRows, cudnn:
		m.vendorConv()
	default:
		m.ours()
	}
}
