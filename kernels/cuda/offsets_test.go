//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
)

// vast is a convolution whose images have 2 GiB elements and some. Only the last two hold anything; the emulated driver
// runs the last blocks alone, and has memory for the pages that they touch.
type vast struct {
	*bench
	op               kernels.Op
	all, few         kernels.Desc
	images, tail     runtime.Span // the second of two operands of that size, and its last images
	weight, gradient runtime.Span
	workspace        int64 // where the next pass has its own
}

const (
	vastImages    = 1<<17 + 1<<13 // see wantLateSplit
	vastWidth     = 256
	vastWorkspace = 64 << 20
)

func newVast(t *testing.T) *vast {
	newBench(t) // or skip
	v := &vast{
		op:  kernels.Conv2D{Out: vastWidth, KernelH: 1, KernelW: 1},
		all: typed(kernels.BFloat16, vastImages, 8, 8, vastWidth), few: typed(kernels.BFloat16, 2, 8, 8, vastWidth),
	}
	bytes := kernels.Align(v.all.Bytes())
	v.images = runtime.Span{Offset: bytes, Bytes: v.all.Bytes()}
	v.tail = runtime.Span{Offset: v.images.End() - v.few.Bytes(), Bytes: v.few.Bytes()}
	v.weight = runtime.Span{Offset: 2 * bytes, Bytes: 4 * vastWidth * vastWidth}
	v.gradient = runtime.Span{Offset: v.weight.End(), Bytes: v.weight.Bytes}
	v.workspace = v.gradient.End()
	memory := v.workspace + 9*vastWorkspace
	v.bench = openVast(t, memory, max(v.few.Bytes(), v.weight.Bytes))
	return v
}

// openVast opens a device with so much memory, and skips the test where there is less.
func openVast(t *testing.T, arena, host int64) *bench {
	t.Helper()
	devices, err := cuda.Open(cuda.Config{Memory: arena})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{device: devices[0]}
	t.Cleanup(func() {
		if err := b.device.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.device.Reserve(arena, host); errors.As(err, new(*runtime.OutOfMemoryError)) && !cudatest.Emulated() {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if b.stream, err = b.device.NewStream("vast"); err != nil {
		t.Fatal(err)
	}
	if b.host, err = b.device.HostBytes(runtime.Span{Space: runtime.Host, Bytes: host}); err != nil {
		t.Fatal(err)
	}
	return b
}

// at returns the span of an operand, and where in it the test's values lie.
func (v *vast) at(o kernels.Operand) (whole, part runtime.Span) {
	switch o.Role {
	case kernels.ParamRole:
		return v.weight, v.weight
	case kernels.DParam:
		return v.gradient, v.gradient
	case kernels.X, kernels.DX:
		apart := v.images.Offset
		return runtime.Span{Bytes: v.images.Bytes}, runtime.Span{Offset: v.tail.Offset - apart, Bytes: v.tail.Bytes}
	}
	return v.images, v.tail
}

// compute runs one pass on the images, of which in has the last.
func (v *vast) compute(t *testing.T, l *Library, pass kernels.Pass, in data) data {
	t.Helper()
	c := kernels.Call{Op: v.op, Pass: pass, In: []kernels.Desc{v.all}, Train: true}
	operands := spansOf(c, func(o kernels.Operand, _ kernels.Desc) runtime.Span {
		whole, _ := v.at(o)
		return whole
	})
	operands.Workspace = runtime.Span{Offset: v.workspace, Bytes: vastWorkspace}
	v.workspace += vastWorkspace
	launch, err := l.Prepare(c, operands)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	move := func(o kernels.Operand, bytes []byte, out bool) {
		_, part := v.at(o)
		host := runtime.Span{Space: runtime.Host, Bytes: part.Bytes}
		if out {
			must(v.stream.Copy(host, part))
			must(v.stream.Synchronize())
			copy(bytes, v.host)
			return
		}
		copy(v.host, bytes)
		must(v.stream.Copy(part, host))
		must(v.stream.Synchronize())
	}
	out := data{}
	uses := c.Uses(operands, 0)
	for _, u := range uses {
		if u.Read {
			move(u.Operand, in[u.Operand], false)
		}
	}
	must(v.stream.Launch(launch))
	for _, u := range uses {
		if u.Write {
			_, part := v.at(u.Operand)
			out[u.Operand] = make([]byte, part.Bytes)
			move(u.Operand, out[u.Operand], true)
		}
	}
	return out
}

// wantLateSplit: the last part of the weight's gradient begins at an image whose offset does not fit; the images behind it
// are reached by adding to that one.
func wantLateSplit(t *testing.T, l *Library) {
	t.Helper()
	e := l.engine(kernels.BFloat16, vastWidth)
	if l.warpgroups {
		e = warpgroups
	}
	_, splits := e.cut(vastWidth, vastWidth, vastImages*8*8, 1, true)
	if first := (splits - 1) * vastImages / splits; first*8*8*vastWidth <= math.MaxInt32 {
		t.Fatalf("tensor cores %v: the last of %d splits begins at image %d: take more images", l.tensor, splits, first)
	}
}

// TestOffsetsBeyond32Bits: products read and write images where offsets in elements do not fit into 32 bits.
func TestOffsetsBeyond32Bits(t *testing.T) {
	if cudatest.Checked() {
		t.Skip("the checked driver remembers every byte")
	}
	v := newVast(t)
	for _, l := range append(libraries(t, v.bench), withWarpgroups(t, v.bench, tile{})...) {
		wantLateSplit(t, l)
		for pass, last := range map[kernels.Pass]struct {
			blocks uint64 // as many as pack has, or those of the gradient's last split
			row    int    // of the result, and
			column int    // from which the last blocks compute all
		}{kernels.Forward: {256, 0, 192}, kernels.BackwardInput: {256, 0, 192}, kernels.BackwardParams: {4, 252, 192}} {
			small := kernels.Call{Op: v.op, Pass: pass, In: []kernels.Desc{v.few}, Train: true}
			in := randomInputs(rand.New(rand.NewPCG(8, uint64(pass))), small)
			cudatest.LastBlocks(t, last.blocks)
			got, d := v.compute(t, l, pass, in), newRig(small, 0, nil).types
			for o, want := range reference(t, small, in) {
				got, want, wrong := values(d[o], got[o]), values(d[o], want), 0
				for i := range want {
					if i/vastWidth >= last.row && i%vastWidth >= last.column && !(math.Abs(got[i]-want[i]) <= 0.2) {
						wrong++
					}
				}
				if wrong > 0 || len(want) != len(got) {
					t.Errorf("tensor cores %v, wgmma %v, %v: %d of %d values of %v are wrong", l.tensor, l.warpgroups, pass, wrong, len(want), o)
				}
			}
		}
	}
}
