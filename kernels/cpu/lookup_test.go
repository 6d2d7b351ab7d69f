package cpu

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
)

// Every byte of every channel becomes the table's bits on every path, and nothing beside the numbers is written.
func TestLookup(t *testing.T) {
	t.Parallel()
	cases := 0
	for _, path := range Paths() {
		for _, k := range []kernels.Lookup{
			{Elements: 1, Channels: 1}, {Elements: 3 * 256, Channels: 3}, {Elements: 3 * 7001, Channels: 3}, {Elements: 5 * 1999, Channels: 5}, {Elements: 2 * 40_000, Channels: 1},
		} {
			x, table := kernels.Align(k.Elements), k.TableBytes()
			o := kernels.LookupOperands{
				X: runtime.Span{Bytes: k.Elements}, Table: runtime.Span{Offset: x, Bytes: table},
				Y: runtime.Span{Offset: x + table, Bytes: 4 * k.Elements},
			}
			r := rand.New(rand.NewPCG(4, uint64(cases)))
			memory := newArena(o.Y.End() + kernels.Alignment)
			for i := range memory {
				memory[i] = byte(r.Uint32())
			}
			for i := range min(k.Elements, 256*int64(k.Channels)) {
				memory[i] = byte(i / int64(k.Channels))
			}
			var made [2]arena
			for i := range made {
				made[i] = newArena(int64(len(memory)))
				copy(made[i], memory)
				var lib kernels.Library = ref.New(made[i])
				if i == 1 {
					fast, err := New(made[i], Options{Threads: 2, Path: path.String()})
					if err != nil {
						t.Fatal(err)
					}
					lib = fast
				}
				launch, err := lib.PrepareLookup(k, o)
				if err != nil {
					t.Fatal(err)
				}
				if err := launch.(interface{ Run() error }).Run(); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(made[0], made[1]) || slices.Equal(made[0], memory) {
				t.Errorf("%v, %+v: other bytes than the reference's", path, k)
			}
			cases++
		}
	}
	if cases != 5*len(Paths()) || cases == 0 {
		t.Errorf("ran %d cases", cases)
	}
}
