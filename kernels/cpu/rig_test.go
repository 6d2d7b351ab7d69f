package cpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// arena is plain memory as a device.
type arena []byte

func newArena(bytes int64) arena {
	b := make([]byte, bytes+kernels.Alignment)
	skip := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (kernels.Alignment - 1)
	return b[skip : skip+bytes]
}

func (a arena) Bytes(s runtime.Span) ([]byte, error) {
	if s.Offset < 0 || s.Bytes < 0 || s.End() > int64(len(a)) {
		return nil, errors.New("out of bounds")
	}
	return a[s.Offset:s.End()], nil
}

// data holds operands; int32 tensors are held by their bits, bfloat16 by the values.
type data map[kernels.Operand][]float32

func (d data) clone() data {
	c := data{}
	for o, v := range d {
		c[o] = slices.Clone(v)
	}
	return c
}

func operand(r kernels.Role, i int) kernels.Operand { return kernels.Operand{Role: r, Index: i} }

var (
	opX, opX1, opY, opDX, opDY = operand(kernels.X, 0), operand(kernels.X, 1), operand(kernels.Y, 0), operand(kernels.DX, 0), operand(kernels.DY, 0)
	opW, opB                   = operand(kernels.ParamRole, 0), operand(kernels.ParamRole, 1)
	opMean, opVar              = operand(kernels.ParamRole, 2), operand(kernels.ParamRole, 3)
	opDW, opDB                 = operand(kernels.DParam, 0), operand(kernels.DParam, 1)
	opSave                     = operand(kernels.Save, 0)
)

const (
	guard  = 0xA5A5A5A5 // fills everything that is no operand
	poison = 0x7FC07FC5 // a NaN, and two as bfloat16, that fills outputs and workspace before a call
)

// rig is a call placed in memory, each operand between guards.
type rig struct {
	call      kernels.Call
	operands  kernels.Operands
	workspace int64
	uses      []kernels.Use
	memory    arena
	at        map[kernels.Operand]int64
}

// spansOf gives every operand of a call a span at the offsets that next returns.
func spansOf(c kernels.Call, next func(o kernels.Operand, bytes int64) runtime.Span) kernels.Operands {
	y, err := c.Op.Infer(c.In)
	if err != nil {
		panic(err)
	}
	var o kernels.Operands
	for i, d := range c.In {
		o.X = append(o.X, next(operand(kernels.X, i), d.Bytes()))
		o.DX = append(o.DX, next(operand(kernels.DX, i), d.Bytes()))
	}
	o.Y, o.DY = next(opY, y.Bytes()), next(opDY, y.Bytes())
	for i, d := range c.Op.Saved(c.In) {
		o.Saved = append(o.Saved, next(operand(kernels.Save, i), d.Bytes()))
	}
	for i, p := range c.Op.Params(c.In) {
		o.Params = append(o.Params, next(operand(kernels.ParamRole, i), p.Desc.Bytes()))
		o.DParams = append(o.DParams, next(operand(kernels.DParam, i), p.Desc.Bytes()))
	}
	o.Scalars = next(operand(kernels.ScalarsRole, 0), kernels.ScalarsBytes)
	return o
}

// newRig places a call. An operand that is a key of alias lies exactly on its value.
func newRig(t testing.TB, l *Library, c kernels.Call, alias map[kernels.Operand]kernels.Operand) *rig {
	t.Helper()
	r := &rig{call: c, at: map[kernels.Operand]int64{}}
	workspace, err := l.Workspace(c)
	if err != nil {
		t.Fatal(err)
	}
	r.workspace = workspace
	end := int64(kernels.Alignment)
	spans := map[kernels.Operand]runtime.Span{}
	next := func(o kernels.Operand, bytes int64) runtime.Span {
		s := runtime.Span{Offset: end, Bytes: bytes}
		end += kernels.Align(bytes) + kernels.Alignment
		spans[o] = s
		return s
	}
	spansOf(c, next)
	r.operands = spansOf(c, func(o kernels.Operand, _ int64) runtime.Span {
		if on, ok := alias[o]; ok {
			return spans[on]
		}
		return spans[o]
	})
	r.operands.Workspace = runtime.Span{Offset: end, Bytes: workspace}
	r.memory = newArena(end + kernels.Align(workspace) + kernels.Alignment)
	r.uses = c.Uses(r.operands, workspace)
	return r
}

// work is a launch of this library.
type work interface {
	runtime.Launch
	Run() error
}

// prepare returns the launch of the call, on the memory of the rig.
func (r *rig) prepare(t testing.TB, l *Library) work {
	t.Helper()
	with := *l
	with.memory = r.memory
	launch, err := with.Prepare(r.call, r.operands)
	if err != nil {
		t.Fatalf("%+v: %v", r.call, err)
	}
	return launch.(work)
}

// run computes the call from inputs and returns what it wrote, having checked that it wrote nothing else.
func (r *rig) run(t testing.TB, l *Library, in data) data {
	t.Helper()
	r.fill(in)
	before := slices.Clone(r.memory)
	if err := r.prepare(t, l).Run(); err != nil {
		t.Fatal(err)
	}
	out := data{}
	for _, u := range r.uses {
		if u.Write {
			if u.Role != kernels.Workspace {
				out[u.Operand] = r.read(u)
			}
			copy(before[u.Span.Offset:u.Span.Offset+u.Bytes], r.memory[u.Span.Offset:])
		}
	}
	if !bytes.Equal(before, r.memory) {
		t.Fatalf("%+v wrote to a byte that belongs to none of its outputs", r.call)
	}
	return out
}

// fill writes guards, poison and then the inputs.
func (r *rig) fill(in data) {
	spread(r.memory, guard)
	for _, u := range r.uses {
		if u.Write {
			spread(r.bytes(u), poison)
		}
	}
	for _, u := range r.uses {
		if u.Read {
			if len(in[u.Operand]) == 0 {
				panic(fmt.Sprintf("BUG: test gives no %v to %+v", u.Operand, r.call))
			}
			encode(r.call, u.Operand, r.bytes(u), in[u.Operand])
		}
	}
}

// spread fills b with a word.
func spread(b []byte, word uint32) {
	copy(b, binary.LittleEndian.AppendUint32(nil, word))
	for done := 4; done < len(b); done *= 2 {
		copy(b[done:], b[:done])
	}
}

func (r *rig) bytes(u kernels.Use) []byte { return r.memory[u.Span.Offset:][:u.Bytes] }

func (r *rig) read(u kernels.Use) []float32 {
	b := r.bytes(u)
	if !isHalf(r.call, u.Operand) {
		return slices.Clone(floats(b))
	}
	v := make([]float32, len(b)/2)
	for i := range v {
		v[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return v
}

// encode writes values as a call has them in memory.
func encode(c kernels.Call, o kernels.Operand, b []byte, v []float32) {
	if !isHalf(c, o) {
		copy(floats(b), v)
		return
	}
	for i, x := range v[:len(b)/2] {
		binary.LittleEndian.PutUint16(b[2*i:], kernels.ToBFloat16(x))
	}
}

// isHalf reports whether an operand of a call is bfloat16.
func isHalf(c kernels.Call, o kernels.Operand) bool {
	switch o.Role {
	case kernels.X, kernels.DX:
		return c.In[o.Index].DType == kernels.BFloat16
	case kernels.Y, kernels.DY:
		y, _ := c.Op.Infer(c.In)
		return y.DType == kernels.BFloat16
	case kernels.ParamRole:
		return o.Index == 0 && c.Weight == kernels.BFloat16
	}
	return false
}

// floats returns memory as values.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// run places and runs a call once.
func run(t testing.TB, l *Library, c kernels.Call, in data) data {
	t.Helper()
	return newRig(t, l, c, nil).run(t, l, in)
}

func newLibrary(t testing.TB, path Path, threads int) *Library {
	t.Helper()
	l, err := New(nil, Options{Threads: threads, Path: path.String()})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sameBits fails when two results differ in a bit.
func sameBits(t testing.TB, what string, got, want data) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d outputs, want %d", what, len(got), len(want))
	}
	for o, w := range want {
		for i := range w {
			if math.Float32bits(got[o][i]) != math.Float32bits(w[i]) {
				t.Fatalf("%s: %v[%d] = %v, want the same bits as %v", what, o, i, got[o][i], w[i])
			}
		}
	}
}

// random returns n values from -1 to 1.
func random(r *rand.Rand, n int64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = r.Float32()*2 - 1
	}
	return v
}

// randomInputs returns values for everything that any pass of the call may read.
func randomInputs(r *rand.Rand, c kernels.Call) data {
	in := data{}
	spansOf(c, func(o kernels.Operand, bytes int64) runtime.Span {
		if !isHalf(c, o) {
			in[o] = random(r, bytes/4)
			return runtime.Span{}
		}
		in[o] = random(r, bytes/2)
		for i, v := range in[o] {
			in[o][i] = kernels.RoundBFloat16(v)
		}
		return runtime.Span{}
	})
	if _, ok := c.Op.(kernels.BatchNorm); ok {
		for i, v := range in[opVar] {
			in[opVar][i] = v*v + 0.1
		}
	}
	switch op := c.Op.(type) {
	case kernels.Pointwise:
		for i, v := range in[opX] {
			if op.Of >= kernels.Total {
				in[opX][i] = kernels.RoundBFloat16(float32(math.Abs(float64(v))) + 0.25)
			}
		}
	case kernels.SoftmaxCrossEntropy:
		integers(r, in[opX1], c.In[0].Shape[len(c.In[0].Shape)-1])
		in[opY][2] = float32(len(in[opX1]))
		if len(c.In[0].Shape) > 2 { // or there is none that is ignored
			in[opY][2] = ignore(r, in[opX1])
		}
	case kernels.ElementLoss:
		in[opY][2] = float32(len(in[opX]))
	case kernels.Embedding:
		integers(r, in[opX], op.Vocabulary)
	case kernels.Attention:
		for i := 0; op.Table > 0 && i < len(in[opB]); i++ {
			in[opB][i] = float32(r.IntN(op.Table))
		}
	}
	in[operand(kernels.ScalarsRole, 0)] = scalars(kernels.Scalars{Seed: r.Uint64(), Step: r.Uint64N(1000), Microbatch: r.Uint64N(9), LR: 0.1, GradScale: 1})
	return in
}

// ignore makes some labels Ignored, and returns how many are not.
func ignore(r *rand.Rand, labels []float32) (counted float32) {
	for i := range labels {
		if r.IntN(4) == 0 {
			label := int32(kernels.Ignored)
			labels[i] = math.Float32frombits(uint32(label))
		} else {
			counted++
		}
	}
	return counted
}

// integers fills v with the bits of integers below n.
func integers(r *rand.Rand, v []float32, n int) {
	for i := range v {
		v[i] = math.Float32frombits(uint32(r.IntN(n)))
	}
}

func scalars(s kernels.Scalars) []float32 {
	b := make([]byte, kernels.ScalarsBytes)
	s.Put(b)
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
