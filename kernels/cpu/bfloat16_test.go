package cpu

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
)

// halved returns an op and its inputs as models in bfloat16 have them.
func halved(op kernels.Op, in []kernels.Desc) (kernels.Op, []kernels.Desc) {
	if e, ok := op.(kernels.Embedding); ok {
		e.To = kernels.BFloat16
		op = e
	}
	in = slices.Clone(in)
	for i, d := range in {
		if d.DType == kernels.Float32 && !(i == 1 && kernels.IsLoss(op)) { // targets stay
			in[i] = d.As(kernels.BFloat16)
		}
	}
	return op, in
}

// inBFloat16 returns a library for each way to compute in bfloat16 that this machine has: by conversion on every path, and last with
// AVX512-BF16.
func inBFloat16(t testing.TB, threads int) (all []*Library) {
	t.Helper()
	for _, path := range Paths() {
		l := newLibrary(t, path, threads)
		without := *l
		without.dot = false
		all = append(all, &without)
		if l.dot {
			all = append(all, l)
		}
	}
	return all
}

// sameByConversion fails unless a call in bfloat16 has the same bits on all paths, with AVX512-BF16 and without, and from a weight that is
// rounded in memory.
func sameByConversion(t *testing.T, c kernels.Call, in, want data) {
	t.Helper()
	for _, l := range inBFloat16(t, 2) {
		sameBits(t, fmt.Sprintf("%v, AVX512-BF16 %v: %+v", l.path, l.dot, c), run(t, l, c, in), want)
		if c.RoundsWeight() {
			rounded := c
			rounded.Weight = kernels.BFloat16
			sameBits(t, fmt.Sprintf("%v, AVX512-BF16 %v: %+v", l.path, l.dot, rounded), run(t, l, rounded, in), want)
		}
	}
}

// TestBFloat16Products: a product of rows in bfloat16 adds the second of each pair first, rounds each sum to float32 once, and treats
// subnormal numbers as zeros. The result is exact to the bit, on every path, for factors of any size. The oracle computes in 200 bits.
func TestBFloat16Products(t *testing.T) {
	t.Parallel()
	finite := 0
	for seed := range 400 {
		r := rand.New(rand.NewPCG(21, uint64(seed)))
		depth := 1 + r.IntN(7)
		x, w := make([]float32, depth), make([]float32, depth)
		middle, wide := r.IntN(254), 1+r.IntN(30)
		for i := range x {
			x[i], w[i] = anyBFloat16(r, middle, wide), anyBFloat16(r, 254-middle+r.IntN(3)-1, wide)
		}
		want, ok := exactPairs(x, w)
		if !ok {
			continue
		}
		finite++
		c := kernels.Call{Op: kernels.Linear{Out: 1}, In: []kernels.Desc{kernels.F32(1, depth).As(kernels.BFloat16)}, Pass: kernels.BackwardParams}
		// the gradient of a weight is a sum over rows, which nothing rounds to bfloat16
		c.In[0].Shape = kernels.Shape{depth, 1}
		for _, l := range inBFloat16(t, 1) {
			if got := run(t, l, c, data{opX: x, opDY: w})[opDW][0]; math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%v, AVX512-BF16 %v: %v times %v is %x, want %x", l.path, l.dot, x, w, got, want)
			}
		}
	}
	if finite < 200 {
		t.Errorf("only %d sums were finite", finite)
	}
}

// anyBFloat16 returns a value whose exponent is near a biased one, sometimes 0.
func anyBFloat16(r *rand.Rand, exponent, wide int) float32 {
	if r.IntN(8) == 0 {
		return 0
	}
	e := min(max(exponent+r.IntN(wide)-wide/2, 0), 254)
	return kernels.FromBFloat16(uint16(r.IntN(2)<<15 | e<<7 | r.IntN(1<<7)))
}

// exactPairs sums products pair by pair, the second of each first, as VDPBF16PS is documented; ok is false where a sum is not finite.
func exactPairs(x, w []float32) (sum float32, ok bool) {
	const least = 0x1p-126
	flushed := func(f float32) float32 {
		if math.Abs(float64(f)) < least {
			return float32(math.Copysign(0, float64(f)))
		}
		return f
	}
	add := func(a, b float32) {
		exact := func(f float32) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(float64(f)) }
		product := new(big.Float).SetPrec(600).Mul(exact(flushed(a)), exact(flushed(b)))
		all := product.Add(product, exact(sum))
		if all.Sign() == 0 {
			sum = 0 // of positive zeros, as sums begin with one
			return
		}
		rounded, _ := new(big.Float).SetPrec(24).SetMode(big.ToNearestEven).Set(all).Float64()
		sum = flushed(float32(rounded))
	}
	for i := 0; i < len(x); i += 2 {
		if i+1 < len(x) {
			add(x[i+1], w[i+1])
		}
		add(x[i], w[i])
		if math.IsInf(float64(sum), 0) {
			return 0, false
		}
	}
	return sum, true
}

// byReference runs the placed call on package ref and returns what it wrote.
func (r *rig) byReference(t testing.TB, in data) data {
	t.Helper()
	r.fill(in)
	launch, err := ref.New(r.memory).Prepare(r.call, r.operands)
	if err != nil {
		t.Fatal(err)
	}
	if err := launch.(interface{ Run() error }).Run(); err != nil {
		t.Fatal(err)
	}
	out := data{}
	for _, u := range r.uses {
		if u.Write && u.Role != kernels.Workspace {
			out[u.Operand] = r.read(u)
		}
	}
	return out
}

// nearReference fails unless two results agree. In float32 they agree to 2e-4 of a tensor's largest element, because sums in another order
// cancel differently. In bfloat16 they may differ by one unit in the last place more, at most 2^-7 of an element: two sums may lie on two
// sides of a tie.
func nearReference(t testing.TB, c kernels.Call, got, want data) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%+v: wrote %d operands, want %d", c, len(got), len(want))
	}
	for o, w := range want {
		if c.Op.Kind() == "maxpool" && o.Role == kernels.Save {
			continue // each library has its own indices
		}
		largest, unit := 1e-3, 0.0
		if isHalf(c, o) {
			unit = 0x1p-7
		}
		for _, v := range w {
			if v == v {
				largest = max(largest, math.Abs(float64(v)))
			}
		}
		for i, v := range w {
			if d := math.Abs(float64(got[o][i]) - float64(v)); !(d <= 2e-4*largest+unit*math.Abs(float64(v))) && (v == v || got[o][i] == got[o][i]) {
				t.Fatalf("%+v: %v[%d] = %v, want %v, the largest being %v", c, o, i, got[o][i], v, largest)
			}
		}
	}
}

// checkHalves runs forward and backward in bfloat16 on the reference's results, with one, two and three threads and on all paths.
func checkHalves(t *testing.T, forward kernels.Call, backward []kernels.Call, in data) {
	t.Helper()
	lib := newLibrary(t, fastest(), 1)
	own := in.clone()
	for i, c := range append([]kernels.Call{forward}, backward...) {
		want := newRig(t, lib, c, nil).byReference(t, in)
		got := run(t, lib, c, own)
		nearReference(t, c, got, want)
		checkThreads(t, fastest(), c, own, got)
		sameByConversion(t, c, own, got)
		for o, v := range want {
			if i > 0 || o.Role != kernels.Y && o.Role != kernels.Save {
				continue
			}
			in[o], own[o] = v, v
			if c.Op.Kind() == "maxpool" && o.Role == kernels.Save {
				own[o] = got[o]
			}
		}
	}
}

// TestBFloat16: every op, pass, attribute and switch in bfloat16 against package ref; outputs start as NaN, guards stay; one,
// two and three threads, and all paths, give the same bits.
func TestBFloat16(t *testing.T) {
	t.Parallel()
	rounds := 20 * draws
	if underRace || testing.Short() {
		rounds = 3 * draws
	}
	ran := map[string]int{}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(16, uint64(seed)))
		op, x := halved(randomOp(r, seed))
		forward, backward := randomCalls(r, op, x)
		checkHalves(t, forward, backward, randomInputs(r, forward))
		ran[op.Kind()]++
	}
	if len(ran) != 36 {
		t.Errorf("ran only %v, want all 36 kinds", ran)
	}
}

// TestLargeBFloat16: as TestBFloat16, with several tasks each, and with sums of several blocks, of odd depth and in several
// packed parts.
func TestLargeBFloat16(t *testing.T) {
	t.Parallel()
	calls := slices.Clone(largeCalls)
	for _, op := range []struct{ out, rows, depth int }{{33, 7, 1025}, {600, 4, 2100}, {5, 3, 513}, {40, 2, 512}} {
		calls = append(calls, largeCalls[0])
		last := &calls[len(calls)-1]
		last.op, last.in = kernels.Linear{Out: op.out, Bias: true}, []kernels.Desc{kernels.F32(op.rows, op.depth)}
	}
	for i, large := range calls {
		if (underRace || testing.Short()) && i%4 > 0 {
			continue
		}
		r := rand.New(rand.NewPCG(17, uint64(i)))
		op, x := halved(large.op, large.in)
		forward, backward := randomCalls(r, op, x)
		forward.Train = true
		for j := range backward {
			backward[j].Train = true
		}
		checkHalves(t, forward, backward, randomInputs(r, forward))
	}
}

// TestBFloat16Aliases: as TestAliases.
func TestBFloat16Aliases(t *testing.T) {
	t.Parallel()
	ran := 0
	for seed := range 4 * draws {
		r := rand.New(rand.NewPCG(18, uint64(seed)))
		op, x := halved(randomOp(r, seed))
		forward, backward := randomCalls(r, op, x)
		in := randomInputs(r, forward)
		l := newLibrary(t, fastest(), 2)
		ran += aliasCall(t, l, forward, in)
		for o, v := range run(t, l, forward, in) {
			in[o] = v
		}
		for _, c := range backward {
			c.AddDX = nil
			ran += aliasCall(t, l, c, in)
		}
	}
	if ran < 80 {
		t.Errorf("only %d aliases were tried", ran)
	}
}

// TestBFloat16RoundsOnce: weights are rounded before they multiply; biases and sums are not. A result is rounded once, when it is complete,
// also one of several blocks, or one that is added to an earlier value.
func TestBFloat16RoundsOnce(t *testing.T) {
	t.Parallel()
	const depth, tie = 1100, 1 + 0x1p-8 // a tie goes to 1, the even one
	x, w := slices.Repeat([]float32{0}, depth), slices.Repeat([]float32{1}, depth)
	x[0], x[1], x[depth-1] = 512, 1, -512 // 513 is no bfloat16
	linear := kernels.Linear{Out: 1, Bias: true}
	call := func(pass kernels.Pass, n int) kernels.Call {
		return kernels.Call{Op: linear, In: []kernels.Desc{kernels.F32(1, n).As(kernels.BFloat16)}, Pass: pass}
	}
	adds := call(kernels.BackwardInput, 1)
	adds.AddDX = []bool{true}
	lib := newLibrary(t, fastest(), 1)
	for _, c := range []struct {
		name string
		call kernels.Call
		in   data
		out  kernels.Operand
		want float32
	}{
		{"blocks", call(kernels.Forward, depth), data{opX: x, opW: w, opB: {0}}, opY, 1},
		{"a weight", call(kernels.Forward, 1), data{opX: {512}, opW: {tie}, opB: {0}}, opY, 512},
		{"a weight up", call(kernels.Forward, 1), data{opX: {1}, opW: {tie + 0x1p-7}, opB: {0}}, opY, 1 + 0x1p-6},
		{"a bias", call(kernels.Forward, 1), data{opX: {-1}, opW: {1}, opB: {tie}}, opY, 0x1p-8},
		{"a weight of the input's gradient", call(kernels.BackwardInput, 1), data{opDY: {512}, opW: {tie}}, opDX, 512},
		{"a sum with what was there", adds, data{opDY: {1}, opW: {0x1p-8 + 0x1p-15}, opDX: {1}}, opDX, 1 + 0x1p-7},
		{"a gradient of weights", call(kernels.BackwardParams, 1), data{opDY: {1 + 0x1p-7}, opX: {1 + 0x1p-7}}, opDW, 1 + 0x1p-6 + 0x1p-14},
	} {
		if got := run(t, lib, c.call, c.in)[c.out][0]; got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestCasts: a cast rounds as kernels.ToBFloat16 does, to the bit, and back every value is itself.
func TestCasts(t *testing.T) {
	t.Parallel()
	lib := newLibrary(t, fastest(), 1)
	var wide []float32
	for b := range 1 << 16 {
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			wide = append(wide, math.Float32frombits(uint32(b)<<16|low))
		}
	}
	c := kernels.Call{Op: kernels.Cast{To: kernels.BFloat16}, In: []kernels.Desc{kernels.F32(len(wide))}}
	short := run(t, lib, c, data{opX: wide})[opY]
	for i, v := range wide {
		if got, want := math.Float32bits(short[i]), math.Float32bits(kernels.RoundBFloat16(v)); got != want {
			t.Fatalf("%08x becomes %08x, want %08x", math.Float32bits(v), got, want)
		}
	}
	back := kernels.Call{Op: kernels.Cast{}, In: []kernels.Desc{kernels.F32(len(short)).As(kernels.BFloat16)}}
	sameBits(t, "widened", run(t, lib, back, data{opX: short}), data{opY: short})
	for _, c := range []kernels.Call{c, back} {
		for _, c.AddDX = range [][]bool{{false}, {true}} {
			c.Pass = kernels.Backward
			in := randomInputs(rand.New(rand.NewPCG(19, 19)), c)
			nearReference(t, c, run(t, lib, c, in), newRig(t, lib, c, nil).byReference(t, in))
		}
	}
}

// TestBFloat16NotFinite: a NaN goes through every op that passes values on, and an infinity or a number that is too large through
// a product; what is subnormal is zero there.
func TestBFloat16NotFinite(t *testing.T) {
	t.Parallel()
	lib := newLibrary(t, fastest(), 1)
	for _, c := range gradientCalls {
		c.Op, c.In = halved(c.Op, c.In)
		in := randomInputs(rand.New(rand.NewPCG(20, 1)), c)
		for i := range in[opX] {
			in[opX][i] = float32(math.NaN())
		}
		if y := passedOn(c, run(t, lib, c, in)[opY]); y == y {
			t.Errorf("%+v of NaN is %v", c, y)
		}
	}
	inf := float32(math.Inf(1))
	c := kernels.Call{Op: kernels.Linear{Out: 1}, In: []kernels.Desc{kernels.F32(1, 1).As(kernels.BFloat16)}}
	for x, want := range map[float32]float32{inf: inf, -inf: -inf, 0x1p127: inf, 0x1p-130: 0} {
		if got := run(t, lib, c, data{opX: {x}, opW: {2}})[opY][0]; got != want {
			t.Errorf("twice %v is %v, want %v", x, got, want)
		}
	}
}

// TestBFloat16AttentionWorkspace: in bfloat16 the gradients of one head's queries are scratch, and nothing that depends on the batch.
func TestBFloat16AttentionWorkspace(t *testing.T) {
	t.Parallel()
	workspace := func(samples, length int) int64 {
		c := kernels.Call{Op: kernels.Attention{Heads: 4}, In: []kernels.Desc{kernels.F32(samples, length, 3*4*64).As(kernels.BFloat16)}, Pass: kernels.Backward}
		bytes, err := newLibrary(t, fastest(), 2).Workspace(c)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	if a, b, c := workspace(1, 256), workspace(9, 256), workspace(1, 512); a != b || c-a != 2*256*64*4 {
		t.Errorf("workspaces are %d, %d of more samples, %d of longer ones", a, b, c)
	}
}

// BenchmarkBFloat16: products in bfloat16 beside those in float32.
func BenchmarkBFloat16(b *testing.B) {
	for _, op := range []struct {
		op kernels.Op
		in kernels.Desc
	}{
		{kernels.Conv2D{Out: 64, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, kernels.F32(8, 28, 28, 64)},
		{kernels.Conv2D{Out: 256, KernelH: 1, KernelW: 1}, kernels.F32(8, 28, 28, 64)},
		{kernels.Linear{Out: 1024}, kernels.F32(1024, 1024)},
	} {
		for _, t := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
			for _, pass := range []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams} {
				b.Run(fmt.Sprintf("%s/%v/%v", op.op.Kind(), pass, t), func(b *testing.B) {
					c := kernels.Call{Op: op.op, In: []kernels.Desc{op.in.As(t)}, Pass: pass}
					l := newLibrary(b, fastest(), 1)
					r := newRig(b, l, c, nil)
					r.fill(randomInputs(rand.New(rand.NewPCG(1, 1)), c))
					w := r.prepare(b, l)
					for b.Loop() {
						_ = w.Run()
					}
				})
			}
		}
	}
}
