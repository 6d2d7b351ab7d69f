package kernels

import (
	"errors"
	"math"
	"strings"
	"testing"

	"plimsoll/runtime"
)

// activations are the types of activations.
var activations = []DType{Float32, BFloat16}

// inputsOf returns inputs of one type that fit everyOp[i].
func inputsOf(op Op, d DType) []Desc {
	image := F32(2, 4, 4, 6).As(d)
	switch op := op.(type) {
	case BatchNorm, Add, Concat, Pack, Multiply:
		return []Desc{image, image}
	case Embedding:
		return []Desc{{Shape: Shape{2, 3}, DType: Int32}}
	case Gate:
		return []Desc{image, F32(2, 6).As(d)}
	case Rotary, Attention, Prepend, AddRows:
		return []Desc{F32(2, 4, 24).As(d)}
	case SoftmaxCrossEntropy:
		return []Desc{F32(2, 6).As(d), labels(2)}
	case ElementLoss:
		return []Desc{F32(2, 6).As(d), F32(2, 6)}
	case Cast:
		return []Desc{image.As(BFloat16 - op.To)}
	}
	return []Desc{image}
}

func passesOf(op Op) []Pass {
	if op.Split() {
		return []Pass{Forward, BackwardInput, BackwardParams}
	}
	return []Pass{Forward, Backward}
}

// everyCall returns a call of each pass of each op, in both types of activations.
func everyCall() (calls []Call) {
	for _, op := range everyOp {
		for _, pass := range passesOf(op) {
			for _, d := range activations {
				calls = append(calls, Call{Op: op, In: inputsOf(op, d), Pass: pass, Train: true})
			}
		}
	}
	return calls
}

// place gives every operand of a call a span of its own.
func place(c Call, workspace int64) Operands {
	end := int64(0)
	next := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: end, Bytes: bytes}
		end += Align(bytes)
		return s
	}
	var o Operands
	y, _ := c.Op.Infer(c.In)
	for _, d := range c.In {
		o.X, o.DX = append(o.X, next(d.Bytes())), append(o.DX, next(d.Bytes()))
	}
	o.Y, o.DY = next(y.Bytes()), next(y.Bytes())
	for _, d := range c.Op.Saved(c.In) {
		o.Saved = append(o.Saved, next(d.Bytes()))
	}
	for _, p := range c.Op.Params(c.In) {
		o.Params, o.DParams = append(o.Params, next(p.Desc.Bytes())), append(o.DParams, next(p.Desc.Bytes()))
	}
	o.Workspace, o.Scalars = next(workspace), next(ScalarsBytes)
	return o
}

// spanOf returns the field of o that an operand names.
func spanOf(o *Operands, op Operand) *runtime.Span {
	switch op.Role {
	case X:
		return &o.X[op.Index]
	case Y:
		return &o.Y
	case DX:
		return &o.DX[op.Index]
	case DY:
		return &o.DY
	case Save:
		return &o.Saved[op.Index]
	case ParamRole:
		return &o.Params[op.Index]
	case DParam:
		return &o.DParams[op.Index]
	case Workspace:
		return &o.Workspace
	}
	return &o.Scalars
}

// TestUses: each pass reads and writes what the contract says.
func TestUses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		call Call
		want string
	}{
		{Call{Op: everyOp[0]}, "X[0] Params[0] Params[1] >Y"},
		{Call{Op: everyOp[0], Pass: BackwardInput}, "DY >DX[0] Params[0]"},
		{Call{Op: everyOp[0], Pass: BackwardParams, AddParams: true}, "DY X[0] +DParams[0] +DParams[1]"},
		{Call{Op: everyOp[1], Pass: BackwardInput, AddDX: []bool{true}}, "DY +DX[0] Params[0]"},
		{Call{Op: everyOp[2], Train: true}, "X[0] X[1] Params[0] Params[1] >Y >Saved[0] >Saved[1]"},
		{Call{Op: everyOp[2], Train: true, UpdateStats: true}, "X[0] X[1] Params[0] Params[1] +Params[2] +Params[3] >Y >Saved[0] >Saved[1]"},
		{Call{Op: everyOp[2], UpdateStats: true}, "X[0] X[1] Params[0] Params[1] Params[2] Params[3] >Y"},
		{Call{Op: everyOp[2], Train: true, Pass: Backward}, "DY Y X[0] >DX[0] >DX[1] Params[0] >DParams[0] >DParams[1] Saved[0] Saved[1]"},
		{Call{Op: everyOp[2], Pass: Backward, SkipDX: []bool{true}}, "DY Y X[0] >DX[1] Params[0] >DParams[0] >DParams[1] Params[2] Params[3]"},
		{Call{Op: everyOp[3], Train: true, Pass: Backward}, "DY Y >DX[0]"},
		{Call{Op: everyOp[6], Train: true}, "X[0] >Y >Saved[0]"},
		{Call{Op: everyOp[6], Train: true, Pass: Backward}, "DY >DX[0] Saved[0]"},
		{Call{Op: everyOp[9]}, "X[0] >Y"},
		{Call{Op: everyOp[9], Train: true, Pass: Backward}, "DY >DX[0] Scalars"},
		{Call{Op: everyOp[10], Train: true, Pass: Backward}, "Y X[0] X[1] >DX[0] Saved[0]"},
		{Call{Op: everyOp[11], Train: true}, "X[0] >Y"},
		{Call{Op: everyOp[11], Train: true, Pass: Backward}, "DY >DX[0]"},
		{Call{Op: everyOp[16], Train: true}, "X[0] Params[0] Params[1] >Y"},
		{Call{Op: everyOp[16], Train: true, Pass: Backward}, "DY X[0] >DParams[0] >DParams[1]"},
		{Call{Op: everyOp[17], Train: true}, "X[0] Params[0] Params[1] >Y >Saved[0] >Saved[1]"},
		{Call{Op: everyOp[17], Pass: Backward}, "DY X[0] >DX[0] Params[0] >DParams[0] >DParams[1] Saved[0] Saved[1]"},
		{Call{Op: everyOp[18], Train: true, Pass: Backward, AddParams: true}, "DY X[0] >DX[0] Params[0] +DParams[0] Saved[0]"},
		{Call{Op: everyOp[21], Train: true, Pass: Backward, SkipDX: []bool{true}}, "DY X[0] X[1] >DX[1]"},
		{Call{Op: everyOp[22], Train: true, Pass: Backward}, "DY >DX[0]"},
		{Call{Op: everyOp[23], Train: true}, "X[0] Params[0] Params[1] Params[2] >Y >Saved[0]"},
		{Call{Op: everyOp[23], Train: true, Pass: Backward}, "DY Y X[0] >DX[0] Params[0] Params[1] Params[2] >DParams[0] Saved[0]"},
	} {
		c.call.In = inputsOf(c.call.Op, Float32)
		if err := c.call.Check(); err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, u := range c.call.Uses(place(c.call, 0), 0) {
			mark := map[[2]bool]string{{true, false}: "", {false, true}: ">", {true, true}: "+"}[[2]bool{u.Read, u.Write}]
			got[mark+u.Operand.String()]++
		}
		for _, w := range strings.Fields(c.want) {
			got[w]--
		}
		for u, n := range got {
			if n != 0 {
				t.Errorf("%s %v train=%v: %s is listed %+d times too often, want %s", c.call.Op.Kind(), c.call.Pass, c.call.Train, u, n, c.want)
			}
		}
	}
}

// TestOperandsCheck: for every call, each listed operand that is spoiled is refused by its name, and each that is
// not listed is ignored.
func TestOperandsCheck(t *testing.T) {
	t.Parallel()
	spoils := map[string]func(*runtime.Span){
		"bytes":    func(s *runtime.Span) { s.Bytes-- },
		"multiple": func(s *runtime.Span) { s.Offset += 4 },
		"negative": func(s *runtime.Span) { s.Offset = -64 },
		"arena":    func(s *runtime.Span) { s.Space = runtime.Host },
	}
	refused := 0
	for _, c := range everyCall() {
		c.UpdateStats = true
		for _, u := range c.Uses(place(c, 128), 128) {
			for what, spoil := range spoils {
				o := place(c, 128)
				spoil(spanOf(&o, u.Operand))
				err := o.Check(c, 128)
				var e *OpError
				if !errors.As(err, &e) || e.Kind != c.Op.Kind() || e.Field != u.Operand.String() && what != "negative" {
					t.Errorf("%s %v with %v spoiled (%s): %v", c.Op.Kind(), c.Pass, u.Operand, what, err)
				}
				refused++
			}
		}
	}
	if refused < 600 {
		t.Errorf("tried %d spoiled operands, want at least 600", refused)
	}
}

// TestOverlaps: an output on an input is accepted exactly where the op declares it, on that input's very bytes; what is
// accumulated shares with nothing.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	pairs, allowed := 0, 0
	for _, c := range everyCall() {
		uses := c.Uses(place(c, 64), 64)
		for _, u := range uses {
			for _, v := range uses {
				if !u.Write || u.Operand == v.Operand {
					continue
				}
				o := place(c, 64)
				to := spanOf(&o, u.Operand)
				to.Offset = spanOf(&o, v.Operand).Offset
				may := !v.Write && c.Op.Alias(c.Pass, u.Operand, v.Operand) && u.Bytes == v.Bytes
				if err := o.Check(c, 64); (err == nil) != may {
					t.Errorf("%s %v: %v on %v: %v, want allowed: %v", c.Op.Kind(), c.Pass, u.Operand, v.Operand, err, may)
				}
				adding := c
				adding.AddDX = []bool{true, true}
				if err := o.Check(adding, 64); may && c.Pass != Forward && err == nil {
					t.Errorf("%s %v: an accumulated %v on %v was accepted", c.Op.Kind(), c.Pass, u.Operand, v.Operand)
				}
				pairs++
				if may {
					allowed++
				}
			}
		}
	}
	if pairs < 120 || allowed < 18 {
		t.Errorf("tried %d pairs, %d of them aliases; want at least 120 and 18", pairs, allowed)
	}
}

// TestBadCalls: calls that no library can run are refused by field.
func TestBadCalls(t *testing.T) {
	t.Parallel()
	conv, norm := everyOp[0], everyOp[2]
	for _, c := range []struct {
		call  Call
		field string
	}{
		{Call{}, "Op"},
		{Call{Op: conv}, "X"},
		{Call{Op: conv, In: inputsOf(conv, Float32), Pass: Backward}, "Pass"},
		{Call{Op: norm, In: inputsOf(norm, Float32), Pass: BackwardInput}, "Pass"},
		{Call{Op: norm, In: inputsOf(norm, Float32), Pass: 9}, "Pass"},
		{Call{Op: norm, In: inputsOf(norm, Float32), SkipDX: make([]bool, 3)}, "SkipDX"},
		{Call{Op: norm, In: inputsOf(norm, Float32), AddDX: make([]bool, 3)}, "AddDX"},
		{Call{Op: BatchNorm{}, In: []Desc{F32(1, 1, 1, 5)}, Train: true}, "X"},
	} {
		var e *OpError
		if err := c.call.Check(); !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%+v: %v, want an OpError about %s", c.call, err, c.field)
		}
	}
}

// TestBadUpdatesAtOnce: parameters that are updated at once are apart, and have the same scalars.
func TestBadUpdatesAtOnce(t *testing.T) {
	t.Parallel()
	span := func(i int) runtime.Span { return runtime.Span{Offset: int64(i) * 64, Bytes: 64} }
	one := UpdateOperands{Elements: 16, Param: span(0), Grad: span(1), Scalars: span(2)}
	other, same, apart := one, one, one
	other.Param, other.Grad, other.Scalars = span(3), span(4), span(5)
	elsewhere := one
	elsewhere.Param, elsewhere.Grad, elsewhere.Workspace = span(3), span(4), span(6)
	same.Param = span(3)
	apart.Param, apart.Grad = span(3), span(4)
	if err := CheckUpdates(SGD{}, []UpdateOperands{one, apart}); err != nil {
		t.Error(err)
	}
	for field, all := range map[string][]UpdateOperands{
		"UpdateOperands": nil, "Scalars": {one, other}, "Workspace": {one, elsewhere}, "DParams[0]": {one, same}, "Elements": {one, {}},
	} {
		var e *OpError
		if err := CheckUpdates(SGD{}, all); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%+v: %v, want an OpError about %s", all, err, field)
		}
	}
}

// TestBadUpdates: rules and operands that cannot be are refused by field.
func TestBadUpdates(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	good := func(states int) UpdateOperands {
		span := func(i int) runtime.Span { return runtime.Span{Offset: int64(i) * 64, Bytes: 64} }
		o := UpdateOperands{Elements: 16, Param: span(0), Grad: span(1), Scalars: span(2)}
		for i := range states {
			o.States = append(o.States, span(3+i))
		}
		return o
	}
	for _, u := range []Update{SGD{}, SGD{Momentum: 0.9, Nesterov: true}, Adam{}, AdamW{Beta1: 0.9}, Muon{Momentum: 0.95}} {
		if err := good(u.States()).Check(u); err != nil {
			t.Errorf("%+v: %v", u, err)
		}
	}
	for _, c := range []struct {
		rule  Update
		spoil func(*UpdateOperands)
		field string
	}{
		{nil, nil, "Update"},
		{SGD{Momentum: -1}, nil, "Momentum"},
		{SGD{Dampening: 2}, nil, "Dampening"},
		{SGD{WeightDecay: nan}, nil, "WeightDecay"},
		{SGD{Nesterov: true}, nil, "Nesterov"},
		{SGD{Nesterov: true, Momentum: 0.9, Dampening: 0.1}, nil, "Nesterov"},
		{Adam{Beta1: 1}, nil, "Beta1"},
		{Adam{Beta2: -0.1}, nil, "Beta2"},
		{AdamW{Epsilon: nan}, nil, "Epsilon"},
		{AdamW{WeightDecay: -1}, nil, "WeightDecay"},
		{Muon{Momentum: 1}, nil, "Momentum"},
		{Muon{Beta2: 1}, nil, "Beta2"},
		{Muon{}, func(o *UpdateOperands) { o.Matrix = Matrix{Rows: 4, Columns: 4} }, "States"},
		{Muon{}, func(o *UpdateOperands) { o.Matrix, o.States = Matrix{Rows: 4, Columns: 5}, o.States[:1] }, "Matrix"},
		{Muon{}, func(o *UpdateOperands) { o.Matrix = Matrix{Rows: -4, Columns: -4} }, "Matrix"},
		{Muon{}, func(o *UpdateOperands) { o.Matrix = Matrix{Columns: 16} }, "Matrix"},
		{Muon{}, func(o *UpdateOperands) { o.Matrix = Matrix{Rows: MaxElements, Columns: 2} }, "Matrix"},
		{Muon{}, func(o *UpdateOperands) { o.Matrix = Matrix{Rows: 4, Columns: 4, DType: Int32} }, "Matrix"},
		{Muon{}, func(o *UpdateOperands) { o.Workspace = o.Grad }, "Workspace"},
		{SGD{}, func(o *UpdateOperands) { o.Elements = 0 }, "Elements"},
		{SGD{}, func(o *UpdateOperands) { o.Elements = MaxElements + 1 }, "Elements"},
		{SGD{}, func(o *UpdateOperands) { o.Elements = 17 }, "Params[0]"},
		{SGD{}, func(o *UpdateOperands) { o.Grad.Offset = 0 }, "DParams[0]"},
		{SGD{Momentum: 1}, func(o *UpdateOperands) { o.States = nil }, "States"},
		{Adam{}, func(o *UpdateOperands) { o.States[1].Offset += 4 }, "Saved[1]"},
		{SGD{}, func(o *UpdateOperands) { o.Scalars.Bytes = 8 }, "Scalars"},
	} {
		o := UpdateOperands{}
		if c.rule != nil {
			o = good(c.rule.States())
		}
		if c.spoil != nil {
			c.spoil(&o)
		}
		var e *OpError
		if err := o.Check(c.rule); !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%+v: %v, want an OpError about %s", c.rule, err, c.field)
		}
	}
}

// TestRules checks that MatricesOnly takes the weight decay from vectors alone, and nothing else from them.
func TestRules(t *testing.T) {
	t.Parallel()
	decayed := []Update{
		SGD{Momentum: 0.9, WeightDecay: 1, MatricesOnly: true}, Adam{Beta1: 0.9, WeightDecay: 1, MatricesOnly: true},
		AdamW{Beta2: 0.9, WeightDecay: 1, MatricesOnly: true}, Muon{Momentum: 0.9, WeightDecay: 1, MatricesOnly: true},
	}
	plain := []Update{SGD{Momentum: 0.9, MatricesOnly: true}, Adam{Beta1: 0.9, MatricesOnly: true}, AdamW{Beta2: 0.9, MatricesOnly: true}, Muon{Momentum: 0.9, MatricesOnly: true}}
	for i, u := range decayed {
		if got := (UpdateOperands{Vector: true}).Rule(u); got != plain[i] {
			t.Errorf("a vector: %+v, want %+v", got, plain[i])
		}
		if got := (UpdateOperands{}).Rule(u); got != u {
			t.Errorf("a matrix: %+v, want %+v", got, u)
		}
	}
	if all := (SGD{WeightDecay: 1}); (UpdateOperands{Vector: true}).Rule(all) != all {
		t.Error("every parameter decays, but vectors do not")
	}
}

// A weight can be bfloat16 in products of bfloat16 alone, and then takes half its bytes in every pass that reads it.
func TestRoundedWeights(t *testing.T) {
	t.Parallel()
	rounded := 0
	for _, c := range everyCall() {
		wide := c.Uses(place(c, 0), 0)
		c.Weight = BFloat16
		if err := c.Check(); c.RoundsWeight() != (err == nil) {
			t.Errorf("%+v: %v", c, err)
		}
		if !c.RoundsWeight() {
			continue
		}
		for i, u := range c.Uses(place(c, 0), 0) {
			want := wide[i].Bytes
			if u.Role == ParamRole && u.Index == 0 {
				want /= 2
				rounded++
			}
			if u.Bytes != want {
				t.Errorf("%+v: %v takes %d bytes, want %d", c, u.Operand, u.Bytes, want)
			}
		}
	}
	if rounded < 4 { // convolutions and linear layers, forward and backward
		t.Errorf("only %d weights are rounded", rounded)
	}
	for _, d := range []DType{Int32, TF32} {
		c := Call{Op: Linear{Out: 2}, In: []Desc{F32(2, 3).As(BFloat16)}, Weight: d}
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "Weight: "+d.String()) {
			t.Errorf("a weight in %v: %v", d, err)
		}
	}
}
