package pipelinetest

import (
	"math"
	"testing"
)

// TestFirstDifference: each difference is found and named.
func TestFirstDifference(t *testing.T) {
	t.Parallel()
	tensors := func(last float32) []Tensor {
		return []Tensor{{"weight", "a", []float32{1, 2}}, {"buffer", "b", []float32{3, last}}}
	}
	want := tensors(0)
	swapped := []Tensor{want[1], want[0]}
	for _, c := range []struct {
		want, got []Tensor
		say       string
	}{
		{want, tensors(0), ""},
		{want, swapped, ""},
		{want, tensors(float32(math.Copysign(0, -1))), "buffer of b[1] is -0 (0x80000000), want 0 (0x00000000)"},
		{tensors(float32(math.NaN())), tensors(float32(math.NaN())), ""},
		{want, want[:1], "buffer of b is missing"},
		{want[:1], want, "buffer of b is not wanted"},
		{want, append(tensors(0), want[0]), "weight of a is there twice"},
		{want[:1], []Tensor{{"weight", "a", []float32{1}}}, "weight of a has 1 elements, want 2"},
		{want[:1], []Tensor{{"state0", "a", []float32{1, 2}}}, "weight of a is missing"},
		{nil, nil, "there is nothing to compare with"},
	} {
		if got := FirstDifference(c.want, c.got); got != c.say {
			t.Errorf("got %q, want %q", got, c.say)
		}
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	o := &Outcome{Losses: []float64{1, 2}, Tensors: []Tensor{{"weight", "a", []float32{1}}}}
	for say, got := range map[string]*Outcome{
		"":                                     {Losses: []float64{1, 2}, Tensors: o.Tensors},
		"1 losses, want 2":                     {Losses: []float64{1}, Tensors: o.Tensors},
		"the loss of minibatch 1 is 3, want 2": {Losses: []float64{1, 3}, Tensors: o.Tensors},
		"weight of a is missing":               {Losses: []float64{1, 2}},
	} {
		if d := o.FirstDifference(got); d != say {
			t.Errorf("got %q, want %q", d, say)
		}
	}
	if v := o.Tensor("weight", "a"); len(v) != 1 || v[0] != 1 {
		t.Errorf("weight of a is %v", v)
	}
	if o.Tensor("buffer", "a") != nil || o.Tensor("weight", "b") != nil {
		t.Error("there are tensors that nobody has")
	}
}
