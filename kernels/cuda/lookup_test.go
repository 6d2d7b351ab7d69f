//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

// TestLookup: every byte of every channel becomes the table's bits, and nothing beside the numbers is written.
func TestLookup(t *testing.T) {
	b := newBench(t)
	l := libraries(t, b)[0]
	cases := 0
	for _, k := range []kernels.Lookup{
		{Elements: 1, Channels: 1}, {Elements: 3 * 256, Channels: 3}, {Elements: 3 * 7001, Channels: 3}, {Elements: 5 * 1999, Channels: 5}, {Elements: 2 * 40_000, Channels: 1},
	} {
		x, table := kernels.Align(k.Elements), k.TableBytes()
		o := kernels.LookupOperands{
			X: runtime.Span{Bytes: k.Elements}, Table: runtime.Span{Offset: x, Bytes: table},
			Y: runtime.Span{Offset: x + table, Bytes: 4 * k.Elements},
		}
		r := rand.New(rand.NewPCG(4, uint64(cases)))
		memory := make([]byte, o.Y.End()+kernels.Alignment)
		for i := range memory {
			memory[i] = byte(r.Uint32())
		}
		for i := range min(k.Elements, 256*int64(k.Channels)) {
			memory[i] = byte(i / int64(k.Channels))
		}
		want := slices.Clone(memory)
		reference, err := ref.New(plain(want)).PrepareLookup(k, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := reference.(interface{ Run() error }).Run(); err != nil {
			t.Fatal(err)
		}
		launch, err := l.PrepareLookup(k, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.run(t, memory, launch); !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes than the reference's", fmt.Sprintf("%+v", k))
		}
		cases++
	}
	if cases != 5 {
		t.Errorf("ran %d cases", cases)
	}
	if _, err := l.PrepareLookup(kernels.Lookup{}, kernels.LookupOperands{}); err == nil {
		t.Error("no lookup is accepted")
	}
}
