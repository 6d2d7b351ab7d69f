//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	goflag "flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
	"plimsoll/runtime/cuda/driver"
)

var skipped atomic.Int32

// TestMain prints how many tests had no GPU, and fails when the emulated driver has found something, or a kernel of the
// PTX was launched by none of all tests.
func TestMain(m *testing.M) {
	if name := "PLIMSOLL_EMULATOR_MEMORY"; os.Getenv(name) == "" {
		_ = os.Setenv(name, fmt.Sprint(16<<30)) // for the tests of offsets beyond 32 bits, which use little of it
	}
	code := cudatest.Judge(m.Run())
	_ = os.RemoveAll(fakes.folder)
	fmt.Printf("%d tests skipped for want of a GPU\n", skipped.Load())
	filter := goflag.Lookup("test.run").Value.String() + goflag.Lookup("test.skip").Value.String()
	if code == 0 && filter == "" && !testing.Short() && cudatest.Emulated() {
		for _, name := range neverLaunched() {
			fmt.Printf("no test launches the kernel %s\n", name)
			code = 1
		}
	}
	os.Exit(code)
}

// neverLaunched returns the kernels of the PTX that this process has not launched.
func neverLaunched() (names []string) {
	for _, read := range images {
		for _, entry := range regexp.MustCompile(`(?m)^\.visible \.entry (\w+)`).FindAllSubmatch(read(), -1) {
			if name := string(entry[1]); cudatest.Launches(name) == 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// bench is a device with memory for one call at a time.
type bench struct {
	device *cuda.Device
	stream runtime.Stream
	host   []byte
}

const benchBytes = 48 << 20

func newBench(t testing.TB) *bench {
	t.Helper()
	if s := driver.Load(); s.Err != nil {
		skipped.Add(1)
		t.Skipf("needs a GPU: %v", s.Err)
	}
	devices, err := cuda.Open(cuda.Config{Memory: benchBytes})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{device: devices[0]}
	t.Cleanup(func() {
		if err := b.device.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.device.Reserve(benchBytes, benchBytes); err != nil {
		t.Fatal(err)
	}
	if b.stream, err = b.device.NewStream("test"); err != nil {
		t.Fatal(err)
	}
	if b.host, err = b.device.HostBytes(runtime.Span{Space: runtime.Host, Bytes: benchBytes}); err != nil {
		t.Fatal(err)
	}
	return b
}

// run puts memory into the arena, launches, and returns what the arena holds then.
func (b *bench) run(t testing.TB, memory []byte, l runtime.Launch) []byte {
	t.Helper()
	b.load(t, memory)
	if err := b.stream.Launch(l); err != nil {
		t.Fatalf("%s: %v", l.Kernel(), err)
	}
	return b.unload(t, len(memory))
}

// load puts memory into the arena, unload returns what the arena holds.
func (b *bench) load(t testing.TB, memory []byte) {
	t.Helper()
	copy(b.host, memory)
	b.move(t, runtime.Arena, runtime.Host, len(memory))
}

func (b *bench) unload(t testing.TB, bytes int) []byte {
	t.Helper()
	b.move(t, runtime.Host, runtime.Arena, bytes)
	return slices.Clone(b.host[:bytes])
}

func (b *bench) move(t testing.TB, to, from runtime.Space, bytes int) {
	t.Helper()
	err := b.stream.Copy(runtime.Span{Space: to, Bytes: int64(bytes)}, runtime.Span{Space: from, Bytes: int64(bytes)})
	if err = errors.Join(err, b.stream.Synchronize()); err != nil {
		t.Fatal(err)
	}
}

// plain is memory for the reference.
type plain []byte

func (p plain) Bytes(s runtime.Span) ([]byte, error) { return p[s.Offset:s.End()], nil }

// data holds operands by their bytes.
type data map[kernels.Operand][]byte

func operand(r kernels.Role, i int) kernels.Operand { return kernels.Operand{Role: r, Index: i} }

const (
	// NaNs, each half as bfloat16 too, so that what reads too much computes no number.
	fence  = 0x7FC1FFC2 // fills everything that is no operand
	poison = 0x7FC3FFC4 // fills outputs and workspace before a call
)

// rig is a call placed in memory, each operand between fences.
type rig struct {
	call     kernels.Call
	operands kernels.Operands
	uses     []kernels.Use
	types    map[kernels.Operand]kernels.DType
	bytes    int64
}

// spansOf gives every operand of a call a span that next returns.
func spansOf(c kernels.Call, next func(o kernels.Operand, d kernels.Desc) runtime.Span) kernels.Operands {
	y, err := c.Op.Infer(c.In)
	if err != nil {
		panic(err)
	}
	var o kernels.Operands
	for i, d := range c.In {
		o.X = append(o.X, next(operand(kernels.X, i), d))
		o.DX = append(o.DX, next(operand(kernels.DX, i), d))
	}
	o.Y, o.DY = next(operand(kernels.Y, 0), y), next(operand(kernels.DY, 0), y)
	for i, d := range c.Op.Saved(c.In) {
		o.Saved = append(o.Saved, next(operand(kernels.Save, i), d))
	}
	for i, p := range c.Op.Params(c.In) {
		o.Params = append(o.Params, next(operand(kernels.ParamRole, i), p.Desc))
		o.DParams = append(o.DParams, next(operand(kernels.DParam, i), p.Desc))
	}
	o.Scalars = next(operand(kernels.ScalarsRole, 0), kernels.F32(kernels.ScalarsBytes/4))
	return o
}

// newRig places a call with so many bytes of workspace. An operand that is a key of alias lies exactly on its value.
func newRig(c kernels.Call, workspace int64, alias map[kernels.Operand]kernels.Operand) *rig {
	r := &rig{call: c, types: map[kernels.Operand]kernels.DType{}}
	end := int64(kernels.Alignment)
	place := func(bytes int64) runtime.Span {
		s := runtime.Span{Offset: end, Bytes: bytes}
		end += kernels.Align(bytes) + kernels.Alignment
		return s
	}
	spans := map[kernels.Operand]runtime.Span{}
	spansOf(c, func(o kernels.Operand, d kernels.Desc) runtime.Span {
		r.types[o], spans[o] = d.DType, place(d.Bytes())
		return spans[o]
	})
	r.operands = spansOf(c, func(o kernels.Operand, _ kernels.Desc) runtime.Span {
		if on, ok := alias[o]; ok {
			return spans[on]
		}
		return spans[o]
	})
	r.operands.Workspace = place(workspace)
	r.uses, r.bytes = c.Uses(r.operands, workspace), end
	return r
}

// memory returns fences, poison and then the inputs.
func (r *rig) memory(in data) []byte {
	b := make([]byte, r.bytes)
	spread(b, fence)
	for _, u := range r.uses {
		if u.Write {
			spread(r.of(b, u), poison)
		}
	}
	for _, u := range r.uses {
		if u.Read {
			if len(in[u.Operand]) == 0 {
				panic(fmt.Sprintf("BUG: the test gives no %v to %+v", u.Operand, r.call))
			}
			copy(r.of(b, u), in[u.Operand])
		}
	}
	return b
}

func (r *rig) of(memory []byte, u kernels.Use) []byte { return memory[u.Span.Offset:][:u.Bytes] }

// outputs returns the outputs that a call wrote. It fails the test if the call wrote anything else.
func (r *rig) outputs(t testing.TB, before, after []byte) data {
	t.Helper()
	out := data{}
	for _, u := range r.uses {
		if u.Write {
			if u.Role != kernels.Workspace {
				out[u.Operand] = slices.Clone(r.of(after, u))
			}
			copy(r.of(before, u), r.of(after, u))
		}
	}
	if !bytes.Equal(before, after) {
		t.Fatalf("%+v wrote to a byte that belongs to none of its outputs", r.call)
	}
	return out
}

// spread fills b with a word.
func spread(b []byte, word uint32) {
	for i := range b {
		b[i] = byte(word >> (i % 4 * 8))
	}
}

// compute runs a call of the library.
func compute(t testing.TB, b *bench, l *Library, c kernels.Call, in data, alias map[kernels.Operand]kernels.Operand) data {
	t.Helper()
	workspace, err := l.Workspace(c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	r := newRig(c, workspace, alias)
	launch, err := l.Prepare(c, r.operands)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	before := r.memory(in)
	return r.outputs(t, before, b.run(t, before, launch))
}

// reference runs a call of kernels/ref.
func reference(t testing.TB, c kernels.Call, in data) data {
	t.Helper()
	r := newRig(c, 0, nil)
	before := r.memory(in)
	after := slices.Clone(before)
	l, err := ref.New(plain(after)).Prepare(c, r.operands)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.(interface{ Run() error }).Run(); err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return r.outputs(t, before, after)
}

// values reads an operand's elements.
func values(d kernels.DType, b []byte) []float64 {
	v := make([]float64, int64(len(b))/d.Size())
	for i := range v {
		switch d {
		case kernels.Float32:
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		case kernels.BFloat16:
			v[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16))
		case kernels.Int32:
			v[i] = float64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return v
}

// encode writes elements.
func encode(d kernels.DType, v []float32) []byte {
	b := make([]byte, int64(len(v))*d.Size())
	for i, x := range v {
		if d == kernels.BFloat16 {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(math.Float32bits(x)>>16))
		} else {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
		}
	}
	return b
}

// tolerance of a call's result in relation to the largest of a tensor's elements: float32 sums in another order, and one
// rounding to bfloat16. Products of TF32 are exact in float32, so that less is wrong there: a factor that is cut off, not
// rounded, is off by 1e-3. Attention alone rounds sums to TF32, to 2^-11 of each: its weights, and the gradients of its scores.
func tolerance(op kernels.Op, d kernels.DType) float64 {
	if _, attention := op.(kernels.Attention); attention && d == kernels.TF32 {
		return 5e-4
	}
	switch d {
	case kernels.BFloat16:
		return 1e-2
	case kernels.TF32:
		return 1e-5
	}
	return 1e-4
}

// compare fails unless every element is within the tolerance of activations of type d, and nothing else was written.
func compare(t testing.TB, c kernels.Call, d kernels.DType, types map[kernels.Operand]kernels.DType, got, want data) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%+v: wrote %d operands, want %d", c, len(got), len(want))
	}
	for o, w := range want {
		g, w := values(types[o], got[o]), values(types[o], w)
		if _, private := c.Op.(kernels.MaxPool); private && o.Role == kernels.Save {
			continue // each library has its own indices
		}
		scale := 1e-3
		for _, v := range w {
			if !math.IsNaN(v) {
				scale = max(scale, math.Abs(v))
			}
		}
		for i := range w {
			if math.IsNaN(w[i]) != math.IsNaN(g[i]) || math.Abs(g[i]-w[i]) > tolerance(c.Op, d)*scale {
				t.Fatalf("%+v: %v[%d] = %v, want %v (largest %v)", c, o, i, g[i], w[i], scale)
			}
		}
	}
}

// sameBits fails when two results differ in a bit.
func sameBits(t testing.TB, what string, got, want data) {
	t.Helper()
	for o, w := range want {
		if !bytes.Equal(got[o], w) {
			t.Fatalf("%s: %v differs", what, o)
		}
	}
}

// random returns n values from -1 to 1.
func random(r *rand.Rand, n int64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = r.Float32()*2 - 1
	}
	return v
}

// halfway makes values of 11 bits of fraction: half of them are ties when they are rounded to TF32.
func halfway(v []float32) {
	for i, x := range v {
		v[i] = math.Float32frombits(math.Float32bits(x) &^ 0xfff)
	}
}

// roundAll rounds values to TF32.
func roundAll(v []float32) {
	for i, x := range v {
		v[i] = kernels.RoundTF32(x)
	}
}

// randomInputs returns values for everything that any pass of the call may read.
func randomInputs(r *rand.Rand, c kernels.Call) data {
	in := data{}
	spansOf(c, func(o kernels.Operand, d kernels.Desc) runtime.Span {
		v := random(r, d.Elements())
		if kernels.UsesTF32(c.Op) {
			halfway(v)
		}
		if _, attention := c.Op.(kernels.Attention); attention && kernels.UsesTF32(c.Op) {
			roundAll(v) // the reference does not round: see TestAttentionRounds
		}
		if _, norm := c.Op.(kernels.BatchNorm); norm && o == operand(kernels.ParamRole, 3) {
			for i := range v {
				v[i] = v[i]*v[i] + 0.1
			}
		}
		if f, is := c.Op.(kernels.Pointwise); is && f.Of >= kernels.Total && o == operand(kernels.X, 0) {
			for i := range v {
				v[i] = float32(math.Abs(float64(v[i]))) + 0.25
			}
		}
		if a, is := c.Op.(kernels.Attention); is && a.Table > 0 && o == operand(kernels.ParamRole, 1) {
			for i := range v {
				v[i] = float32(r.IntN(a.Table))
			}
		}
		if d.DType == kernels.Int32 && o.Role != kernels.Save {
			below := int(channels(c.In[0]))
			if e, ok := c.Op.(kernels.Embedding); ok {
				below = e.Vocabulary
			}
			for i := range v {
				v[i] = math.Float32frombits(uint32(r.IntN(below)))
				if len(d.Shape) > 1 && c.Op.Kind() == "softmax_cross_entropy" && r.IntN(4) == 0 {
					v[i] = ignored
				}
			}
		}
		in[o] = encode(d.DType, v)
		return runtime.Span{}
	})
	if y, ok := in[operand(kernels.Y, 0)]; ok && kernels.IsLoss(c.Op) {
		floats(y)[2] = float32(1 + r.IntN(9)) // rows that count
	}
	scalars := make([]byte, kernels.ScalarsBytes)
	kernels.Scalars{Seed: r.Uint64(), Step: r.Uint64N(1000), Microbatch: r.Uint64N(9), LR: 0.1, GradScale: 1}.Put(scalars)
	in[operand(kernels.ScalarsRole, 0)] = scalars
	return in
}

// ignored are the bits of kernels.Ignored.
var ignored = func(label int32) float32 { return math.Float32frombits(uint32(label)) }(kernels.Ignored)

func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
