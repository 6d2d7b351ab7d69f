package modeltest

import (
	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Derivative is the result of differentiating a layer.
type Derivative struct {
	Output []float32
	Input  []float32            // gradient of the layer's input
	Params map[string][]float32 // gradients of the trained parameters
}

// Differentiate computes the results that a frame's programs should have, from its input, gradient and parameters, on the reference
// library. It saves no memory and no work. Every value and every gradient has memory of its own, nothing is overwritten or skipped,
// and every contribution to a gradient is computed apart and then added.
func Differentiate(f *Frame) (*Derivative, error) {
	t := &tape{frame: f, gradients: map[models.Value][]float32{}, out: &Derivative{Params: map[string][]float32{}}}
	t.lib = ref.New(&t.heap)
	t.values = map[models.Value]runtime.Span{
		models.GraphInput:  t.copy(f.Bytes(models.Input)[:f.Layer.Input().Bytes()]),
		models.GraphLabels: t.copy(f.Bytes(models.Labels)[:f.Layer.Desc(models.GraphLabels).Bytes()]),
	}
	t.scalars = t.copy(f.Bytes(models.Scalars))
	for i := range f.Layer.Nodes {
		if err := t.forward(i); err != nil {
			return nil, err
		}
	}
	top := f.Layer.Output()
	t.out.Output = t.read(top, t.values[top])
	if f.Programs.GradientBytes > 0 {
		t.gradients[top] = f.Gradient()
	} else {
		t.gradients[top] = make([]float32, f.Layer.Desc(top).Elements())
	}
	for i := len(f.Layer.Nodes) - 1; i >= 0; i-- {
		if err := t.backward(i); err != nil {
			return nil, err
		}
	}
	t.out.Input = t.gradients[models.GraphInput]
	return t.out, nil
}

// heap is memory that grows.
type heap []byte

// Bytes implements Memory.
func (h *heap) Bytes(s runtime.Span) ([]byte, error) { return memory(*h).Bytes(s) }

type tape struct {
	frame     *Frame
	lib       kernels.Library
	heap      heap
	scalars   runtime.Span
	values    map[models.Value]runtime.Span
	operands  []kernels.Operands // of the forwards, by node
	gradients map[models.Value][]float32
	out       *Derivative
}

func (t *tape) forward(i int) error {
	n := &t.frame.Layer.Nodes[i]
	c := t.call(n, kernels.Forward)
	o := kernels.Operands{Scalars: t.scalars}
	for _, v := range n.In {
		o.X = append(o.X, t.values[v])
	}
	for _, d := range n.Op.Saved(c.In) {
		o.Saved = append(o.Saved, t.alloc(d))
	}
	for _, p := range n.Params {
		o.Params = append(o.Params, t.copy(t.frame.Slice(p.Value)))
	}
	v := models.Value(i + 1)
	t.values[v] = t.alloc(t.frame.Layer.Desc(v))
	o.Y = t.values[v]
	t.operands = append(t.operands, o)
	return t.run(c, o)
}

func (t *tape) backward(i int) error {
	n := &t.frame.Layer.Nodes[i]
	o := t.operands[i]
	v := models.Value(i + 1)
	o.DY = t.alloc(t.frame.Layer.Desc(v))
	PutValues(t.frame.Layer.Desc(v).DType, t.bytes(o.DY), t.gradients[v])
	in := t.call(n, kernels.Backward).In
	for _, d := range in {
		o.DX = append(o.DX, t.alloc(d))
	}
	for _, p := range n.Params {
		o.DParams = append(o.DParams, t.alloc(p.Desc))
	}
	passes := []kernels.Pass{kernels.Backward}
	if n.Op.Split() {
		passes = []kernels.Pass{kernels.BackwardInput, kernels.BackwardParams}
	}
	for _, pass := range passes {
		if err := t.run(t.call(n, pass), o); err != nil {
			return err
		}
	}
	t.collect(n, o)
	return nil
}

// collect adds what a backward computed to the gradients.
func (t *tape) collect(n *models.Node, o kernels.Operands) {
	for j, v := range n.In {
		if !t.frame.Layer.Desc(v).DType.Float() {
			continue
		}
		if t.gradients[v] == nil {
			t.gradients[v] = make([]float32, t.frame.Layer.Desc(v).Elements())
		}
		for k, g := range t.read(v, o.DX[j]) {
			t.gradients[v][k] += g
		}
	}
	for j, p := range n.Params {
		if p.Trained {
			t.out.Params[p.Name] = Floats(t.bytes(o.DParams[j]))
		}
	}
}

func (t *tape) call(n *models.Node, pass kernels.Pass) kernels.Call {
	c := kernels.Call{Op: n.Op, Pass: pass, Train: true, Salt: n.Salt}
	for _, v := range n.In {
		c.In = append(c.In, t.frame.Layer.Desc(v))
		c.SkipDX = append(c.SkipDX, !t.frame.Layer.Desc(v).DType.Float())
	}
	return c
}

func (t *tape) run(c kernels.Call, o kernels.Operands) error {
	l, err := t.lib.Prepare(c, o)
	if err != nil {
		return err
	}
	return l.(interface{ Run() error }).Run()
}

// alloc takes poisoned memory from the end of the heap.
func (t *tape) alloc(d kernels.Desc) runtime.Span {
	s := runtime.Span{Offset: int64(len(t.heap)), Bytes: d.Bytes()}
	b := make([]byte, d.Storage())
	PoisonBytes(b)
	t.heap = append(t.heap, b...)
	return s
}

func (t *tape) copy(b []byte) runtime.Span {
	s := runtime.Span{Offset: int64(len(t.heap)), Bytes: int64(len(b))}
	t.heap = append(t.heap, b...)
	t.heap = append(t.heap, make([]byte, kernels.Align(s.Bytes)-s.Bytes)...)
	return s
}

func (t *tape) bytes(s runtime.Span) []byte { return t.heap[s.Offset:s.End()] }

// read decodes a value, or a gradient of it.
func (t *tape) read(v models.Value, s runtime.Span) []float32 {
	return Values(t.frame.Layer.Desc(v).DType, t.bytes(s))
}
