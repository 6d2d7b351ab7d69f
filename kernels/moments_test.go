package kernels

import (
	"errors"
	"math"
	"testing"

	"plimsoll/runtime"
)

func TestBadMomentsAreRefused(t *testing.T) {
	t.Parallel()
	good := Moments{Batches: 2, Rows: 8, Channels: 3}
	o := MomentsOperands{
		Moments: runtime.Span{Bytes: good.Bytes()},
		Mean:    runtime.Span{Offset: good.Bytes(), Bytes: 12}, Variance: runtime.Span{Offset: good.Bytes() + Alignment, Bytes: 12},
	}
	if err := o.Check(good); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Moments, *MomentsOperands){
		"Momentum":  func(m *Moments, _ *MomentsOperands) { m.Momentum = float32(math.NaN()) },
		"Batches":   func(m *Moments, _ *MomentsOperands) { m.Batches = 0 },
		"Rows":      func(m *Moments, _ *MomentsOperands) { m.Rows = 1 },
		"Saved[0]":  func(_ *Moments, o *MomentsOperands) { o.Moments.Bytes-- },
		"Params[2]": func(_ *Moments, o *MomentsOperands) { o.Mean.Offset = 0 },
		"Params[3]": func(_ *Moments, o *MomentsOperands) { o.Variance.Offset++ },
	} {
		m, bound := good, o
		change(&m, &bound)
		var bad *OpError
		if err := bound.Check(m); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

// Adding NoMoment leaves every number's bits.
func TestNoMomentIsNeutral(t *testing.T) {
	t.Parallel()
	for _, v := range []float32{0, NoMoment, 1, -1e-40, float32(math.Inf(1))} {
		if got := v + NoMoment; math.Float32bits(got) != math.Float32bits(v) {
			t.Errorf("%v + NoMoment is %v", v, got)
		}
	}
	if !math.Signbit(float64(NoMoment)) || NoMoment != 0 {
		t.Errorf("NoMoment is %v", NoMoment)
	}
}
