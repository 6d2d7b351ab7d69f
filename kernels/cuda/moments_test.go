//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

// TestMoments: running statistics move as in the reference, and the rows are left fresh; a row that is missing stops its
// channel alone.
func TestMoments(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	cases := 0
	for _, m := range []kernels.Moments{
		{Batches: 1, Rows: 2, Channels: 1}, {Batches: 4, Rows: 1000, Channels: 129, Momentum: 0.3}, {Batches: 9, Rows: 7, Channels: 2048, Momentum: 1},
	} {
		bytes := int64(m.Channels) * 4
		o := kernels.MomentsOperands{
			Moments: runtime.Span{Bytes: m.Bytes()},
			Mean:    runtime.Span{Offset: m.Bytes(), Bytes: bytes}, Variance: runtime.Span{Offset: m.Bytes() + m.Row(), Bytes: bytes},
		}
		r := rand.New(rand.NewPCG(4, uint64(cases)))
		memory := make([]byte, m.Bytes()+2*m.Row())
		for i := range floats(memory) {
			floats(memory)[i] = 1 + r.Float32()
		}
		missing := m.Channels - 1
		floats(memory)[m.Row()/4+int64(missing)] = kernels.NoMoment // a variance of batch 0
		want := slices.Clone(memory)
		reference, err := ref.New(plain(want)).PrepareMoments(m, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := reference.(interface{ Run() error }).Run(); err != nil {
			t.Fatal(err)
		}
		launch, err := l.PrepareMoments(m, o)
		if err != nil {
			t.Fatal(err)
		}
		got := b.run(t, memory, launch)
		near(t, fmt.Sprintf("%+v", m), got, want)
		for i, v := range floats(got[:m.Bytes()]) {
			if math.Float32bits(v) != math.Float32bits(floats(want)[i]) {
				t.Fatalf("%+v: number %d of the rows is %v, want %v", m, i, v, floats(want)[i])
			}
		}
		for _, s := range []runtime.Span{o.Mean, o.Variance} {
			for c, before := range floats(memory[s.Offset:s.End()]) {
				if moved := floats(got[s.Offset:s.End()])[c] != before; moved != (c != missing) {
					t.Errorf("%+v: channel %d moved: %v", m, c, moved)
				}
			}
		}
		cases++
	}
	if cases != 3 {
		t.Errorf("ran %d cases", cases)
	}
	if _, err := l.PrepareMoments(kernels.Moments{}, kernels.MomentsOperands{}); err == nil {
		t.Error("no moments are accepted")
	}
}
