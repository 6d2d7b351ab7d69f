//go:build cuda && linux && amd64

package cuda

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda"
)

// issued is a launch that counts how often it is issued, and fails the time with number bad.
type issued struct {
	cuda.Launch
	times, bad int
}

var errIssue = errors.New("it cannot be issued")

func (i *issued) Issue(s cu.Stream) error {
	if i.times++; i.times == i.bad {
		return errIssue
	}
	return i.Launch.Issue(s)
}

// TestTrialsAreGraphs: what is timed is a graph that repeats the launch, issued once alone and then only into the graph. A
// launch that fails, alone or within the capture, is an error that leaves the GPU usable.
func TestTrialsAreGraphs(t *testing.T) {
	b := newBench(t)
	r := newRig(kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(1)}, Pass: kernels.Backward, AddDX: []bool{true}}, 0, nil)
	adding, err := libraries(t, b)[0].Prepare(r.call, r.operands) // DX += DY
	if err != nil {
		t.Fatal(err)
	}
	one := encode(kernels.Float32, []float32{1})
	memory := r.memory(data{operand(kernels.Y, 0): one, operand(kernels.DY, 0): one, operand(kernels.DX, 0): encode(kernels.Float32, []float32{0})})
	for bad, ran := range map[int]float64{0: 1 + trials*repeats, 1: 0, 2: 1, 1 + repeats: 1} {
		counted := &issued{Launch: adding.(cuda.Launch), bad: bad}
		b.load(t, memory)
		us := 0.0
		err := b.device.Run(func() (err error) {
			us, err = clock(ours, counted)
			return err
		})
		after := b.unload(t, len(memory))
		if errors.Is(err, errIssue) != (bad > 0) || (us > 0) != (bad == 0) || counted.times != cmp.Or(bad, 1+repeats) {
			t.Errorf("issued %d times, and number %d fails: %v us, %v", counted.times, bad, us, err)
		}
		if got := values(kernels.Float32, r.outputs(t, slices.Clone(memory), after)[operand(kernels.DX, 0)])[0]; got != ran {
			t.Errorf("number %d fails: ran %v times, want %v", bad, got, ran)
		}
	}
}
