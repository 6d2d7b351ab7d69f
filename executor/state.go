package executor

import (
	"unsafe"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Tensor is one named tensor of an executor's static memory, in the arena or in host memory.
type Tensor struct {
	Name string // the parameter's name
	Role string // "weight", "buffer", "gradient", "state0", "state1"
	Desc kernels.Desc
	// Layer counts from 1.
	Layer int
	Parts []models.Part // how files hold it: see models.Parameter
	span  runtime.Span
	param models.Parameter
}

// Tensors lists the weights, buffers, gradients and optimizer states in a fixed order; with offloaded weights no gradients,
// which do not outlive the step.
func (w *Workload) Tensors() []Tensor {
	var all []Tensor
	for l, layer := range w.Model.Layers {
		st := &w.static.layers[l]
		for _, q := range layer.Params() {
			add := func(role string, span runtime.Span) {
				all = append(all, Tensor{Name: q.Name, Role: role, Desc: q.Desc, Layer: l + 1, Parts: q.Parts, span: span, param: q})
			}
			if !q.Trained {
				add("buffer", w.static.value(l+1, q))
				continue
			}
			add("weight", w.static.value(l+1, q))
			if w.Offloading() != OffloadWeights {
				add("gradient", st.grads.Part(q.Grad.Offset, q.Desc.Bytes()))
			}
			for k := range kernels.StatesOf(w.Optimizer, q.Matrix) {
				add("state"+string(rune('0'+k)), st.state(k, q))
			}
		}
	}
	return all
}

// Read copies a tensor into dst, which has its number of elements.
func (e *Executor) Read(t Tensor, dst []float32) error {
	if t.span.Space == runtime.Host {
		b, err := e.dev.HostBytes(t.span)
		copy(asBytes(dst), b)
		return err
	}
	return e.download(t.span, dst)
}

// Write copies src to a tensor.
func (e *Executor) Write(t Tensor, src []float32) error {
	if t.span.Space == runtime.Host {
		b, err := e.dev.HostBytes(t.span)
		copy(b, asBytes(src))
		return err
	}
	return e.upload(t.span, src)
}

// initialize writes the initial weights, seeded, and makes all tensors well defined.
func (e *Executor) initialize() error {
	var values []float32
	var drawn []models.Parameter
	for _, t := range e.Tensors() {
		if t.drawn() {
			drawn = append(drawn, t.param)
		}
	}
	e.opt.Initial.draw(drawn, e.opt.Seed)
	for _, t := range e.Tensors() {
		if n := int(t.Desc.Elements()); cap(values) < n {
			values = make([]float32, n)
		}
		values = values[:t.Desc.Elements()]
		clear(values)
		if t.drawn() {
			e.opt.Initial.fill(t.param, e.opt.Seed, values)
		}
		if err := e.Write(t, values); err != nil {
			return err
		}
	}
	if palette := e.static.staged.palette; palette != nil {
		return e.upload(e.static.staged.table, palette)
	}
	return nil
}

// drawn reports whether a tensor has initial values of its own: the others begin as zeros.
func (t *Tensor) drawn() bool { return t.Role == "weight" || t.Role == "buffer" }

// download copies device memory to dst.
func (e *Executor) download(src runtime.Span, dst []float32) error {
	return e.downloadBytes(src, asBytes(dst))
}

// downloadBytes copies device memory to dst, a chunk of the host slab at a time.
func (e *Executor) downloadBytes(src runtime.Span, dst []byte) error {
	return e.chunks(src, func(dev, host runtime.Span, at int64) error {
		if err := e.compute.Copy(host, dev); err != nil {
			return err
		}
		if err := e.compute.Synchronize(); err != nil {
			return err
		}
		b, err := e.dev.HostBytes(host)
		copy(dst[at:], b)
		return err
	})
}

// upload copies src to device memory, a chunk of the host slab at a time.
func (e *Executor) upload(dst runtime.Span, src []float32) error {
	return e.chunks(dst, func(dev, host runtime.Span, at int64) error {
		b, err := e.dev.HostBytes(host)
		if err != nil {
			return err
		}
		copy(b, asBytes(src)[at:])
		if err := e.compute.Copy(dev, host); err != nil {
			return err
		}
		return e.compute.Synchronize()
	})
}

// chunks calls move for the pieces of a device span, each with a piece of the chunk buffer as long.
func (e *Executor) chunks(span runtime.Span, move func(dev, host runtime.Span, at int64) error) error {
	for at := int64(0); at < span.Bytes; at += chunkBytes {
		n := min(chunkBytes, span.Bytes-at)
		if err := move(span.Part(at, n), e.host.chunk.Part(0, n), at); err != nil {
			return err
		}
	}
	return nil
}

func asBytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), len(f)*4)
}
