// Package kernels is the vocabulary of the arithmetic: ops with attributes, shape rules, saved tensors and operands that they may
// overwrite. Its Library interface launches ops on one kind of device.
//
// It computes nothing itself; kernels/cpu does. All tensors are channels last (N, H, W, C); convolution weights are
// O, KH, KW, I/groups.
package kernels

import (
	"fmt"

	"plimsoll/runtime"
)

// Op is one operation with its attributes. Every op is a type of this package; docs/adding.md says where its kernels go.
type Op interface {
	// Kind names the operation: "conv2d", ...
	Kind() string
	// Infer returns the output for the given inputs, or an *OpError that names the bad attribute or shape.
	Infer(in []Desc) (Desc, error)
	// Params returns the trained parameters and the buffers (running statistics), in operand order.
	Params(in []Desc) []Param
	// Saved returns the extra tensors that a training Forward writes for Backward (batch statistics, indices).
	Saved(in []Desc) []Desc
	// Needs says what the backward passes read.
	Needs() Needs
	// Alias reports whether output operand out of the pass may lie exactly on input operand in.
	Alias(pass Pass, out, in Operand) bool
	// Split reports whether backward is two independent passes, BackwardInput and BackwardParams,
	// rather than one, Backward.
	Split() bool
}

// Param is one parameter or buffer of an op.
type Param struct {
	Name    string // "weight", "bias", "running_mean", ...
	Desc    Desc
	Trained bool // false for buffers: no gradient, no update
	// Constant marks a buffer that every pass reads and none writes.
	Constant bool
	FanIn    int // for initialization
	FanOut   int
}

// Needs says which forward tensors the backward passes read besides the gradient and the saved extras.
type Needs struct {
	Inputs []bool // by input index; missing means false
	Output bool
}

// Input reports whether backward reads input i.
func (n Needs) Input(i int) bool { return i < len(n.Inputs) && n.Inputs[i] }

// Pass is the part of a layer that a call computes.
type Pass uint8

const (
	// Forward computes Y (and Saved, when Call.Train) from X and Params.
	Forward Pass = iota
	// Backward computes every DX and DParams from DY, for ops that do not split.
	Backward
	// BackwardInput computes every DX alone, for ops that split.
	BackwardInput
	// BackwardParams computes DParams alone, for ops that split.
	BackwardParams
)

func (p Pass) String() string {
	names := [...]string{"forward", "backward", "backward_input", "backward_params"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("pass(%d)", uint8(p))
}

// Role is the part that an operand plays in a call.
type Role uint8

const (
	X Role = iota
	Y
	DX
	DY
	Save
	ParamRole
	DParam
	Workspace
	ScalarsRole
)

func (r Role) String() string {
	names := [...]string{"X", "Y", "DX", "DY", "Saved", "Params", "DParams", "Workspace", "Scalars"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Operand names one operand of a call: the index counts within its role.
type Operand struct {
	Role  Role
	Index int
}

// String names the operand as the field of Operands: "X[0]", "DY".
func (o Operand) String() string {
	switch o.Role {
	case Y, DY, Workspace, ScalarsRole:
		return o.Role.String()
	}
	return fmt.Sprintf("%v[%d]", o.Role, o.Index)
}

// Call is one kernel invocation at fixed shapes.
type Call struct {
	Op   Op
	Pass Pass
	In   []Desc // the op's inputs
	// Train selects training behaviour: BatchNorm uses batch statistics, Dropout drops, Saved is written.
	Train bool
	// UpdateStats lets a training BatchNorm move its running statistics; a recomputation must not.
	UpdateStats bool
	// SkipDX marks gradients of inputs that nobody wants; their spans are ignored.
	SkipDX []bool
	// AddDX marks gradients that are added to what DX holds rather than written.
	AddDX []bool
	// AddParams adds to DParams rather than writing them (gradient accumulation).
	AddParams bool
	// Weight is the type in which a product of bfloat16 has its weight, Params[0]: Float32, which it rounds, or BFloat16, which has the same
	// bits. Gradients of weights are float32 with both.
	Weight DType
	// Salt tells dropouts apart: the counter-based generator is keyed by (Scalars.Seed, Scalars.Step,
	// Scalars.Microbatch, Salt, element).
	Salt uint64
}

// Adds reports whether the gradient of input i is accumulated.
func (c Call) Adds(i int) bool { return i < len(c.AddDX) && c.AddDX[i] }

// RoundsWeight reports whether the call is one of a product that rounds its weight to bfloat16, or has it so.
func (c Call) RoundsWeight() bool {
	return c.Op.Split() && len(c.In) > 0 && c.In[0].DType == BFloat16
}

// Operands binds a call to memory. Spans have at least their tensor's Bytes; starts are multiples of Alignment; all
// lie in the arena. A forward does not write a Saved tensor whose span is empty: a recomputation that nobody
// differentiates needs none. Operands that Call.Uses does not list are ignored.
type Operands struct {
	X         []runtime.Span
	Y         runtime.Span
	DX        []runtime.Span
	DY        runtime.Span
	Saved     []runtime.Span
	Params    []runtime.Span // one for each Op.Params
	DParams   []runtime.Span // one for each Op.Params; those of buffers are ignored
	Workspace runtime.Span
	Scalars   runtime.Span // ScalarsBytes that hold the step's Scalars
}
