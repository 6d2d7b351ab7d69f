// Package modeltest runs compiled programs without a device, for tests. Every block lies alone between guard
// bytes, and memory that nothing has written yet is NaN, so that a wrong reference shows.
package modeltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/runtime"
)

// Poison is the bit pattern of memory that nothing has written: a NaN, and two as bfloat16.
const Poison = 0x7fc17fc2

// guard is the bytes between blocks, and their value.
const (
	guard      = 256
	guardValue = 0xa5
)

const blocks = int(models.Scalars) + 1

// Memory gives the bytes of spans to a kernel library.
type Memory interface {
	Bytes(s runtime.Span) ([]byte, error)
}

// memory is bytes that begin at a multiple of the alignment.
type memory []byte

func newMemory(n int64) memory {
	b := make([]byte, n+kernels.Alignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % kernels.Alignment
	return b[skip : skip+uintptr(n)]
}

// Bytes implements Memory.
func (m memory) Bytes(s runtime.Span) ([]byte, error) {
	if s.Offset < 0 || s.End() > int64(len(m)) {
		return nil, fmt.Errorf("%v is not within %d bytes", s, len(m))
	}
	return m[s.Offset:s.End()], nil
}

// Frame is the memory of one layer: its blocks, poisoned.
type Frame struct {
	Layer    *models.Layer
	Programs *models.Programs

	memory memory
	start  [blocks]int64
	size   [blocks]int64
	lib    kernels.Library
}

// NewFrame returns the memory of layer l, 1 <= l <= len(m.Layers), whose programs run on the library that lib returns.
func NewFrame(m *models.Model, programs []*models.Programs, l int, lib func(Memory) kernels.Library) *Frame {
	f := &Frame{Layer: m.Layers[l-1], Programs: programs[l-1]}
	p := f.Programs
	f.size = [blocks]int64{
		models.Input: f.Layer.Input().Storage(), models.Output: p.SavedBytes,
		models.GradOutput: p.GradientBytes, models.GradInput: f.Layer.Input().Storage(),
		models.Scratch: max(p.Save.Scratch, p.Forget.Scratch, p.Eval.Scratch, p.Back.Scratch, p.KeptBytes+max(p.BackInput.Scratch, p.BackParams.Scratch)),
		models.Kept:    p.KeptBytes,
		models.Params:  p.ParamBytes, models.Grads: p.GradBytes,
		models.Labels: m.Labels.Storage(), models.Scalars: kernels.ScalarsBytes,
	}
	end := int64(guard)
	for b, size := range f.size {
		f.start[b] = end
		end += kernels.Align(size) + guard
	}
	f.memory = newMemory(end)
	for i := range f.memory {
		f.memory[i] = guardValue
	}
	for b := range f.size {
		f.Poison(models.Block(b))
	}
	kernels.Scalars{Seed: 7, Step: 3, LR: 0.1, GradScale: 1}.Put(f.Bytes(models.Scalars))
	f.lib = lib(f.memory)
	return f
}

// Bytes returns the memory of a block.
func (f *Frame) Bytes(b models.Block) []byte {
	return f.memory[f.start[b] : f.start[b]+f.size[b]]
}

// Slice returns the memory of a reference.
func (f *Frame) Slice(r models.Ref) []byte { return f.Bytes(r.Block)[r.Offset : r.Offset+r.Bytes] }

// Floats returns the elements of a reference.
func (f *Frame) Floats(r models.Ref) []float32 { return Floats(f.Slice(r)) }

// Floats decodes float32 elements.
func Floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// Put encodes elements into b.
func Put(b []byte, v []float32) {
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
	}
}

// Values decodes the elements of activations of a type.
func Values(t kernels.DType, b []byte) []float32 {
	if t != kernels.BFloat16 {
		return Floats(b)
	}
	v := make([]float32, len(b)/2)
	for i := range v {
		v[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return v
}

// PutValues encodes activations of a type into b.
func PutValues(t kernels.DType, b []byte, v []float32) {
	if t != kernels.BFloat16 {
		Put(b, v)
		return
	}
	for i, x := range v {
		binary.LittleEndian.PutUint16(b[2*i:], kernels.ToBFloat16(x))
	}
}

// Output decodes the layer's output from its block.
func (f *Frame) Output() []float32 { return f.values(models.Output, f.Layer.Desc(f.Layer.Output())) }

// Gradient decodes the gradient of the layer's output; the loss has none.
func (f *Frame) Gradient() []float32 {
	return f.values(models.GradOutput, f.Layer.Desc(f.Layer.Output()))
}

// GradInput decodes the gradient of the layer's input.
func (f *Frame) GradInput() []float32 { return f.values(models.GradInput, f.Layer.Input()) }

func (f *Frame) values(b models.Block, d kernels.Desc) []float32 {
	return Values(d.DType, f.Bytes(b)[:d.Bytes()])
}

// Poison makes a block unwritten.
func (f *Frame) Poison(b models.Block) { PoisonBytes(f.Bytes(b)) }

// PoisonBytes makes memory unwritten.
func PoisonBytes(b []byte) {
	for i := 0; i+4 <= len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], Poison)
	}
}

// Fill gives input, gradient, labels and parameters random values; BatchNorm's are moved away from 1 and 0. Tokens are classes.
func (f *Frame) Fill(seed uint64, classes int) {
	r := rand.New(rand.NewPCG(seed, 0))
	normal := func(b models.Block, t kernels.DType) {
		v := make([]float32, int64(len(f.Bytes(b)))/t.Size())
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		PutValues(t, f.Bytes(b), v)
	}
	integers := func(b models.Block) {
		for v := f.Bytes(b); len(v) >= 4; v = v[4:] {
			binary.LittleEndian.PutUint32(v, uint32(r.IntN(classes)))
		}
	}
	if d := f.Layer.Input().DType; d.Float() {
		normal(models.Input, d)
	} else {
		integers(models.Input)
	}
	normal(models.GradOutput, f.Layer.Desc(f.Layer.Output()).DType)
	integers(models.Labels)
	for _, p := range f.Layer.Params() {
		v := make([]float32, p.Desc.Elements())
		models.Init(p, seed, v)
		for i := range v {
			v[i] = v[i]*float32(1+0.2*r.Float64()) + float32(0.1*r.Float64())
		}
		Put(f.Slice(p.Value), v)
	}
}

// Run executes a program and checks that it left alone what it must not write: the guards, the layer's input, its
// parameters and the labels.
func (f *Frame) Run(p *models.Program) error {
	before := map[models.Block][]byte{}
	for _, b := range []models.Block{models.Input, models.Params, models.Labels, models.Scalars} {
		before[b] = slices.Clone(f.Bytes(b))
	}
	for _, s := range p.Steps {
		if err := f.step(s, p.Scratch); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	for b, bytesBefore := range before {
		if !bytes.Equal(bytesBefore, f.Bytes(b)) {
			return fmt.Errorf("block %d was written", b)
		}
	}
	return f.guards()
}

func (f *Frame) step(s models.Step, scratch int64) error {
	o, err := f.operands(s.Refs, scratch)
	if err != nil {
		return err
	}
	l, err := f.lib.Prepare(s.Call, o)
	if err != nil {
		return err
	}
	return l.(interface{ Run() error }).Run()
}

// operands resolves references and refuses those outside of their block or of the program's own Scratch.
func (f *Frame) operands(r models.Refs, scratch int64) (kernels.Operands, error) {
	var bad error
	one := func(r models.Ref) runtime.Span {
		if r.Bytes == 0 {
			return runtime.Span{}
		}
		size := f.size[r.Block]
		if r.Block == models.Scratch {
			size = scratch
		}
		if r.Offset < 0 || r.Offset+r.Bytes > size {
			bad = fmt.Errorf("reference %+v is outside of its block of %d bytes", r, size)
			return runtime.Span{}
		}
		return runtime.Span{Offset: f.start[r.Block] + r.Offset, Bytes: r.Bytes}
	}
	list := func(rs []models.Ref) []runtime.Span {
		spans := make([]runtime.Span, len(rs))
		for i := range rs {
			spans[i] = one(rs[i])
		}
		return spans
	}
	o := kernels.Operands{
		X: list(r.X), Y: one(r.Y), DX: list(r.DX), DY: one(r.DY), Saved: list(r.Saved), Params: list(r.Params),
		DParams: list(r.DParams), Workspace: one(r.Workspace),
		Scalars: one(models.Ref{Block: models.Scalars, Bytes: kernels.ScalarsBytes}),
	}
	return o, bad
}

func (f *Frame) guards() error {
	inside := make([]bool, len(f.memory))
	for b := range f.start {
		for i := range f.size[b] {
			inside[f.start[b]+i] = true
		}
	}
	for i, v := range f.memory {
		if !inside[i] && v != guardValue {
			return fmt.Errorf("memory between the blocks was written at %d", i)
		}
	}
	return nil
}
