package kernels

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"plimsoll/runtime"
)

// Update is an optimizer's rule for one parameter. The set is closed: SGD, Adam, AdamW, Muon.
type Update interface {
	Kind() string
	// States returns how many state tensors of the parameter's size the rule keeps (momentum, moments); see StatesOf.
	States() int
}

// StatesOf returns how many state tensors a rule keeps of a parameter: of a matrix Muon keeps the momentum alone.
func StatesOf(u Update, m Matrix) int {
	if _, ok := u.(Muon); ok && m.Is() {
		return 1
	}
	return u.States()
}

// Matrix is the extent of a weight that is a matrix to Muon, and the type in which products of its update compute: Float32, TF32 or
// BFloat16. Zero: the parameter is none.
type Matrix struct {
	Rows, Columns int64
	DType         DType
}

// Is reports whether there is a matrix.
func (m Matrix) Is() bool { return m != Matrix{} }

// Muons reports whether a rule orthogonalizes updates of a matrix, so that these cannot be made by parts.
func (m Matrix) Muons(u Update) bool {
	_, ok := u.(Muon)
	return ok && m.Is()
}

// SGD is stochastic gradient descent with momentum, as PyTorch defines it:
//
//	g += WeightDecay*w
//	v = Momentum*v + (1-Dampening)*g    (v = g at the first update)
//	w -= lr * (Nesterov ? g + Momentum*v : v)
//
// State: v, when Momentum is not 0. It starts at zero, so that the first update must ignore Dampening.
type SGD struct {
	Momentum    float32
	Dampening   float32
	WeightDecay float32
	Nesterov    bool
	// MatricesOnly keeps the weight decay from parameters with fewer than two axes: gains and biases.
	MatricesOnly bool `json:",omitempty"`
}

// Adam is Kingma and Ba's Adam with L2 regularization added to the gradient. States: first and second moment.
type Adam struct {
	Beta1, Beta2, Epsilon, WeightDecay float32
	MatricesOnly                       bool `json:",omitempty"` // as SGD's
}

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter). States: first and second moment.
type AdamW struct {
	Beta1, Beta2, Epsilon, WeightDecay float32
	MatricesOnly                       bool `json:",omitempty"` // as SGD's
}

func (SGD) Kind() string   { return "sgd" }
func (Adam) Kind() string  { return "adam" }
func (AdamW) Kind() string { return "adamw" }
func (Muon) Kind() string  { return "muon" }

// States implements Update.
func (s SGD) States() int {
	if s.Momentum == 0 {
		return 0
	}
	return 1
}

// States implements Update.
func (Adam) States() int { return 2 }

// States implements Update.
func (AdamW) States() int { return 2 }

// States implements Update.
func (Muon) States() int { return 2 }

// UpdateOperands binds an update of one parameter to memory. All tensors have Elements elements, and all but Grad and Rounded are float32.
// All spans lie in the arena, or all in host memory: see library.OpenHost.
type UpdateOperands struct {
	Elements int64
	Matrix   Matrix // rows of so many columns, for rules that know matrices
	Vector   bool   // the parameter has fewer than two axes: see Rule
	Param    runtime.Span
	Grad     runtime.Span
	GradType DType          // Float32, or BFloat16
	States   []runtime.Span // as many as StatesOf says
	Scalars  runtime.Span
	// Rounded gets the updated parameter in bfloat16, rounded to the nearest, ties to even, so that Param is a master copy; empty: there is none.
	Rounded runtime.Span
	// Workspace has what Library.UpdateWorkspace says; the updates of a launch may share one.
	Workspace runtime.Span
	// Earlier is how many updates the parameter has had before those that Scalars.Update counts.
	Earlier uint64
}

// Rule returns the rule for this parameter: u, without weight decay where that is for matrices only and the parameter is a vector.
func (o UpdateOperands) Rule(u Update) Update {
	decay := func(d float32, matricesOnly bool) float32 {
		if o.Vector && matricesOnly {
			return 0
		}
		return d
	}
	switch r := u.(type) {
	case SGD:
		r.WeightDecay = decay(r.WeightDecay, r.MatricesOnly)
		return r
	case Adam:
		r.WeightDecay = decay(r.WeightDecay, r.MatricesOnly)
		return r
	case AdamW:
		r.WeightDecay = decay(r.WeightDecay, r.MatricesOnly)
		return r
	case Muon:
		r.WeightDecay = decay(r.WeightDecay, r.MatricesOnly)
		return r
	}
	return u
}

// Rows cuts a matrix out of the update of a whole parameter: the one that begins at so many bytes of it.
func (o UpdateOperands) Rows(m Matrix, at int64) UpdateOperands {
	o.Matrix, o.Elements = m, m.Rows*m.Columns
	bytes := o.Elements * Float32.Size()
	o.Param = o.Param.Part(at, bytes)
	if size := o.GradType.Size(); o.Grad.Bytes > 0 {
		o.Grad = o.Grad.Part(at/Float32.Size()*size, o.Elements*size)
	}
	if o.Rounded.Bytes > 0 {
		o.Rounded = o.Rounded.Part(at/2, bytes/2)
	}
	o.States = slices.Clone(o.States)
	for i, s := range o.States {
		o.States[i] = s.Part(at, bytes)
	}
	return o
}

// Decimal returns the number that the user wrote: as a float32 0.999 is 0.99900001, and 1-0.999 would be off by 5e-5.
func Decimal(f float32) float64 {
	d, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	if err != nil {
		panic("BUG: a formatted number does not parse: " + err.Error())
	}
	return d
}

// ScalarsBytes is the size of the memory that holds a step's Scalars.
const ScalarsBytes = Alignment

// Scalars are the values that change from step to step. They lie in device memory, so that a prepared launch
// (or a captured graph of launches) can be repeated.
type Scalars struct {
	Seed       uint64
	Step       uint64 // counts from 0; of dropout
	Microbatch uint64
	LR         float32
	GradScale  float32 // gradients are multiplied by it before the update; 1 for none
	Skip       uint32  // not 0: updates change nothing; a Guard sets it
	Update     uint64  // updates made so far, which Adam's bias correction and SGD's first velocity depend on
}

// Put encodes the scalars as C lays them out, little endian, into b (at least ScalarsBytes long).
func (s Scalars) Put(b []byte) {
	binary.LittleEndian.PutUint64(b[0:], s.Seed)
	binary.LittleEndian.PutUint64(b[8:], s.Step)
	binary.LittleEndian.PutUint64(b[16:], s.Microbatch)
	binary.LittleEndian.PutUint32(b[24:], math.Float32bits(s.LR))
	binary.LittleEndian.PutUint32(b[28:], math.Float32bits(s.GradScale))
	binary.LittleEndian.PutUint32(b[32:], s.Skip)
	binary.LittleEndian.PutUint64(b[40:], s.Update)
}

// GetScalars decodes what Put wrote.
func GetScalars(b []byte) Scalars {
	return Scalars{
		Seed:       binary.LittleEndian.Uint64(b[0:]),
		Step:       binary.LittleEndian.Uint64(b[8:]),
		Microbatch: binary.LittleEndian.Uint64(b[16:]),
		LR:         math.Float32frombits(binary.LittleEndian.Uint32(b[24:])),
		GradScale:  math.Float32frombits(binary.LittleEndian.Uint32(b[28:])),
		Skip:       binary.LittleEndian.Uint32(b[32:]),
		Update:     binary.LittleEndian.Uint64(b[40:]),
	}
}
