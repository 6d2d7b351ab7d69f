//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor"
	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/models"
	"plimsoll/runtime/cuda"
)

// mistakes names the mistakes that the fake libraries can make.
var mistakes = []string{"scaled", "last", "beyond", "input"}

// TestWrongIsRefused: whatever a vendor's library gets wrong, and however fast, it is refused, named once, and our kernels
// compute. Float32 products with the factors of TF32 are wrong, too.
func TestWrongIsRefused(t *testing.T) {
	b, folder := newFakedBench(t)
	for _, fastest := range []algorithm{cublas, cublasParts, cublasBias, cublasRows, cudnn} {
		half, least := fastest != cublas && fastest != cudnn, 6 // bfloat16 is all that it computes
		made := append(mistakes, "tf32")
		if half {
			made, least = []string{"scaled", "last"}, 3 // it may overwrite what is copied for it
		}
		for _, mistake := range made {
			l := newFaked(t, b, folder, fastest)
			var notes []string
			l.note = func(text string) { notes = append(notes, text) }
			t.Setenv("FAKE_WRONG", mistake)
			refused := 0
			for i, v := range vendorCalls {
				for _, d := range factorTypes {
					if (mistake == "tf32" || mistake == "beyond") && d != kernels.Float32 { // bf16 results may lie in the workspace
						continue
					}
					if half && (d != kernels.BFloat16 || i < firstProduct) {
						continue
					}
					r := rand.New(rand.NewPCG(7, uint64(i)))
					forward, backward := randomCalls(r, as(d, v.op), []kernels.Desc{typed(d, v.shape...)})
					check(t, b, l, forward, backward, randomInputs(r, forward))
				}
			}
			for _, c := range l.Choices() {
				if c.Algorithm != ours.String() {
					t.Errorf("%s computes %s with mistake %s: %+v", c.Algorithm, c.Op, mistake, c)
				}
				refused += len(c.Refused)
			}
			if refused < least || len(notes) != refused {
				t.Errorf("%v, %s: %d refused, %d notes", fastest, mistake, refused, len(notes))
			}
			for _, n := range notes {
				if !strings.Contains(n, "is not used for ") || !strings.Contains(n, ErrWrong.Error()) || strings.Contains(n, "\n") {
					t.Errorf("note %q", n)
				}
			}
		}
	}
}

// TestWrongEdgesAreRefused: a proof looks at the edges of rows of every alignment, although a sample of all outputs has few of them.
func TestWrongEdgesAreRefused(t *testing.T) {
	b, folder := newFakedBench(t)
	for _, of := range []struct {
		out   int
		dtype kernels.DType
	}{{1001, kernels.BFloat16}, {1002, kernels.BFloat16}, {1004, kernels.BFloat16}, {1001, kernels.TF32}, {1002, kernels.TF32}} {
		out := of.out
		l := newFaked(t, b, folder, cublasRows)
		l.terms = 1
		call := kernels.Call{Op: as(of.dtype, kernels.Linear{Out: out}), In: []kernels.Desc{typed(of.dtype, 136, 8)}}
		for _, pass := range []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams} {
			call.Pass = pass
			t.Setenv("FAKE_WRONG", "")
			if err := l.proof(call, cublasRows); err != nil {
				t.Errorf("%d columns, %v: %v", out, pass, err)
			}
			if pass == kernels.BackwardInput {
				continue
			}
			t.Setenv("FAKE_WRONG", "narrow")
			if err := l.proof(call, cublasRows); !errors.Is(err, ErrWrong) {
				t.Errorf("%d columns, %v with wrong edges: %v", out, pass, err)
			}
		}
		for _, pass := range []kernels.Pass{kernels.Forward, kernels.BackwardParams} {
			c := newLinear(kernels.Linear{Out: out}, call.In[0])
			rows, columns := map[int64]bool{}, map[int64]bool{}
			for _, at := range c.edges(pass) {
				row, column := at/c.out, at%c.out
				if pass == kernels.BackwardParams {
					row, column = at%c.channels, at/c.channels
				}
				rows[row%8], columns[column] = true, true
			}
			if len(rows) != 8 || len(columns) != 2*8 || !columns[0] || !columns[int64(out)-1] {
				t.Errorf("%d columns, %v: rows %v, columns %v", out, pass, rows, columns)
			}
		}
	}
}

// TestVendorsMayRoundTF32: in TF32 a vendor's library may cut factors off rather than round them; ours may not.
func TestVendorsMayRoundTF32(t *testing.T) {
	b, folder := newFakedBench(t)
	for _, fastest := range []algorithm{cublas, cudnn} {
		t.Setenv("FAKE_WRONG", "tf32")
		l := newFaked(t, b, folder, fastest)
		taken := 0
		for _, v := range vendorCalls {
			for _, pass := range []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams} {
				if _, err := l.Workspace(kernels.Call{Op: as(kernels.TF32, v.op), In: []kernels.Desc{typed(kernels.TF32, v.shape...)}, Pass: pass}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range l.Choices() {
			if len(c.Refused) > 0 {
				t.Errorf("%+v", c)
			}
			if c.Algorithm == fastest.String() {
				taken++
			}
		}
		if taken < 12 {
			t.Errorf("%v computes %d calls", fastest, taken)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	far := 0.0
	for range 20 {
		exact, squares, short := 0.0, 0.0, 0.0
		for range 1000 {
			a, b := r.Float32()*2-1, r.Float32()*2-1
			p := float64(kernels.RoundTF32(a)) * float64(kernels.RoundTF32(b))
			exact, squares, short = exact+p, squares+p*p, short+float64(cut(a))*float64(cut(b))
		}
		far = max(far, math.Abs(short-exact)/allowed(exact, math.Sqrt(squares), 1000, kernels.TF32, kernels.Float32))
	}
	if far < 2 {
		t.Errorf("factors that are cut off are within %v of what ours may be off", far)
	}
}

// TestNextBest: where one is wrong, the next in speed is taken, and proven in its turn.
func TestNextBest(t *testing.T) {
	b, folder := newFakedBench(t)
	point := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 1, KernelW: 1}, In: []kernels.Desc{kernels.F32(2, 6, 6, 16)}}
	speed := map[algorithm]float64{cudnn: 1, cublas: 2, ours: 3}
	for wrong, want := range map[algorithm]algorithm{measured: cudnn, cudnn: cublas, ours: cudnn} {
		l := newFaked(t, b, folder, measured)
		l.vendors.time = func(a algorithm, _ cuda.Launch) (float64, error) { return speed[a], nil }
		var asked []algorithm
		l.prove = func(c kernels.Call, a algorithm) error {
			if asked = append(asked, a); a == wrong {
				return ErrWrong
			}
			return l.proof(c, a)
		}
		for range 2 {
			if _, err := l.Workspace(point); err != nil {
				t.Fatal(err)
			}
		}
		if made := l.Choices(); len(made) != 1 || made[0].Algorithm != want.String() || asked[len(asked)-1] != want || len(slices.Compact(asked)) != len(asked) {
			t.Errorf("%v is wrong: asked %v, chose %+v", wrong, asked, made)
		}
	}
}

// TestNaive: where our kernels are wrong as well, the naive kernel computes, and agrees with the reference.
func TestNaive(t *testing.T) {
	b := newBench(t)
	l, err := New(b.device, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.vendors.choices = &choices{}
	l.prove = func(kernels.Call, algorithm) error { return fmt.Errorf("%w: all of it", ErrWrong) }
	for seed := range uint64(30) {
		for _, d := range factorTypes {
			r := rand.New(rand.NewPCG(seed, uint64(d)))
			op, x := randomConv(r, d)
			if seed%6 == 0 {
				op, x = kernels.Linear{Out: 7, Bias: true}, []kernels.Desc{typed(d, 5, 3, 2, 4)}
			}
			forward, backward := randomCalls(r, as(d, op), x)
			check(t, b, l, forward, backward, randomInputs(r, forward))
		}
	}
	for _, c := range l.Choices() {
		if c.Algorithm != naive.String() || len(c.Refused) != 1 {
			t.Errorf("%+v", c)
		}
	}
	if len(l.Choices()) < 30 {
		t.Errorf("%d calls", len(l.Choices()))
	}
}

// TestFileIsProvenAgain: what a file says is proven once in every process: a library that has gone wrong since is refused,
// and the file says so. That nothing but the naive kernel was right is tried again.
func TestFileIsProvenAgain(t *testing.T) {
	b, folder := newFakedBench(t)
	file := filepath.Join(t.TempDir(), "choices.json")
	call := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3}, In: []kernels.Desc{kernels.F32(2, 6, 6, 16)}}
	process := func(fastest algorithm) *Library {
		l := newFaked(t, b, folder, fastest)
		l.vendors.choices = &choices{file: file}
		return l
	}
	expect := func(l *Library, want algorithm, proofs, refused int) {
		t.Helper()
		ran := 0
		prove := l.prove
		l.prove = func(c kernels.Call, a algorithm) error { ran++; return prove(c, a) }
		for range 3 {
			if _, err := l.Workspace(call); err != nil {
				t.Fatal(err)
			}
		}
		if made := l.Choices(); len(made) != 1 || made[0].Algorithm != want.String() || len(made[0].Refused) != refused || ran != proofs {
			t.Errorf("%d proofs, %+v; want %v, %d proofs, %d refused", ran, made, want, proofs, refused)
		}
	}
	expect(process(cudnn), cudnn, 1, 0)
	expect(process(ours), cudnn, 1, 0) // proven, not measured
	t.Setenv("FAKE_WRONG", "last")
	expect(process(cudnn), ours, 3, 1)
	expect(process(cudnn), ours, 1, 1) // as the file says
	nothing := process(cudnn)
	nothing.vendors.choices.file = filepath.Join(t.TempDir(), "other.json")
	nothing.prove = func(kernels.Call, algorithm) error { return ErrWrong }
	expect(nothing, naive, 2, 2)
	file = nothing.vendors.choices.file
	t.Setenv("FAKE_WRONG", "")
	expect(process(cudnn), cudnn, 1, 0)
}

// TestUnproven: without memory to try it in, our kernels are taken, and nobody else.
func TestUnproven(t *testing.T) {
	b, folder := newFakedBench(t)
	l := newFaked(t, b, folder, cudnn)
	l.prove = func(kernels.Call, algorithm) error { return errors.New("no memory") }
	call := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3}, In: []kernels.Desc{kernels.F32(2, 6, 6, 16)}}
	if _, err := l.Workspace(call); err != nil {
		t.Fatal(err)
	}
	if made := l.Choices(); len(made) != 1 || made[0].Algorithm != ours.String() || len(made[0].Failed) != 2 || !strings.Contains(made[0].Failed[0], "no memory") {
		t.Errorf("%+v", made)
	}
}

// TestWrongLibraryTrainsRight: a model trained beside a vendor's library that is the fastest and wrong has the very bits that
// our kernels give it.
func TestWrongLibraryTrainsRight(t *testing.T) {
	_, folder := newFakedBench(t)
	m, err := models.New("tiny", models.Config{Batch: 2, Image: 12, Classes: 5})
	if err != nil {
		t.Fatal(err)
	}
	want := losses(t, m, onGPU(t), 4)
	for _, mistake := range mistakes {
		t.Setenv("FAKE_WRONG", mistake)
		on := onFaked(t, folder)
		if got := losses(t, m, on, 4); !slices.Equal(got, want) {
			t.Errorf("%s: losses are %v, want %v", mistake, got, want)
		}
		refused := 0
		for _, c := range on.Library.(*Library).Choices() {
			refused += len(c.Refused)
		}
		if refused < 3 {
			t.Errorf("%s: %d algorithms were refused", mistake, refused)
		}
	}
}

// onFaked is a GPU with fakes that find themselves faster than our kernels.
func onFaked(t *testing.T, folder string) executor.Target {
	t.Helper()
	devices, err := cuda.Open(cuda.Config{Memory: modelMemory})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(devices[0], Options{Vendor: nvidia.Require, Search: nvidia.Search{Folders: []string{folder}}})
	on := target(t, devices[0], l, err)
	l.vendors.choices = &choices{}
	l.vendors.time = func(a algorithm, _ cuda.Launch) (float64, error) {
		return map[algorithm]float64{ours: 3, cublas: 2, cudnn: 1}[a], nil
	}
	return on
}

// TestSampled: all of few outputs; of many, one in each of equal parts, the first and the last.
func TestSampled(t *testing.T) {
	for _, c := range []struct{ n, terms, most, want int64 }{
		{10, 1, 100, 10}, {1, 5, 1, 1}, {1000, 10, 2000, 200}, {1000, 1 << 40, 2000, leastSamples}, {1 << 40, 1, 1 << 40, mostSamples},
	} {
		at := sampled(c.n, c.terms, c.most)
		if int64(len(at)) != c.want || at[0] != 0 || at[len(at)-1] != c.n-1 {
			t.Errorf("%+v: %d samples from %d to %d", c, len(at), at[0], at[len(at)-1])
		}
		for i, x := range at {
			if from, to := int64(i)*c.n/c.want, int64(i+1)*c.n/c.want; x < from || x >= to {
				t.Errorf("%+v: sample %d is %d, not in [%d, %d)", c, i, x, from, to)
			}
		}
	}
}

// TestAllowed: sums in float32 in the worst order, one after the other, stay far inside; TF32 does not.
func TestAllowed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, terms := range []int{1, 10, 1000, 100_000} {
		most, least := 0.0, math.Inf(1)
		for range 20 {
			exact, squares, single, short := 0.0, 0.0, float32(0), 0.0
			for range terms {
				a, b := r.Float32()*2-1, r.Float32()*2-1
				p := float64(a) * float64(b)
				exact, squares, single = exact+p, squares+p*p, single+a*b
				short += float64(cut(a)) * float64(cut(b))
			}
			far := allowed(exact, math.Sqrt(squares), float64(terms), kernels.Float32, kernels.Float32)
			most, least = max(most, math.Abs(float64(single)-exact)/far), min(least, far/math.Abs(short-exact))
		}
		if most > 0.2 {
			t.Errorf("%d terms: float32 is off by %v of what is allowed", terms, most)
		}
		if terms <= 1000 && least > 0.5 {
			t.Errorf("%d terms: TF32 is never far outside: %v", terms, least)
		}
	}
}

// cut truncates a factor to the bits that TF32 keeps.
func cut(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ 0x1fff) }
