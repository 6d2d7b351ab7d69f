//go:build cuda && linux && amd64

package cuda

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/kernels/cuda/nvidia/fake"
	"plimsoll/kernels/library"
	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
)

// newFaked returns a library with fakes from a folder. The library finds the given algorithm the fastest; for measured, the clock decides.
// The library shares its choices with no other library.
func newFaked(t testing.TB, b *bench, folder string, fastest algorithm) *Library {
	t.Helper()
	l, err := New(b.device, Options{Vendor: nvidia.Require, Search: nvidia.Search{Folders: []string{folder}}})
	if err != nil {
		t.Fatal(err)
	}
	l.vendors.choices, l.vendors.workspace = &choices{}, 1<<16
	l.vendors.part, l.vendors.slice = 1, 1 // 128 rows at a time
	if fastest != measured {
		l.vendors.time = func(a algorithm, l cuda.Launch) (float64, error) {
			if _, err := clock(a, l); err != nil {
				return 0, err
			}
			if a == fastest {
				return 1, nil
			}
			return 2, nil
		}
	}
	return l
}

// fakes are built by the first test that wants them, and removed at the end.
var fakes struct {
	once   sync.Once
	folder string
}

func newFakedBench(t *testing.T) (*bench, string) {
	if testing.Short() {
		t.Skip("what is done about libraries that err is not of the device")
	}
	b := newBench(t)
	if !strings.Contains(b.device.Info().Model, "emulated") {
		t.Skip("the fakes want an emulated GPU")
	}
	fakes.once.Do(func() {
		folder, err := os.MkdirTemp("", "fakes")
		if err != nil {
			t.Fatal(err)
		}
		fakes.folder = folder
		fake.BuildIn(t, folder, fake.CuDNN, fake.CuBLAS)
	})
	return b, fakes.folder
}

// vendorCalls have a window, none, groups, a bias, sizes that are no multiples of anything, and one row of pixels.
var vendorCalls = []struct {
	op    kernels.Op
	shape []int
}{
	{kernels.Conv2D{Out: 5, KernelH: 3, KernelW: 2, PadH: 1, PadW: 1, StrideH: 2, DilationW: 2}, []int{2, 7, 9, 3}},
	{kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1, Groups: 2, Bias: true}, []int{2, 6, 5, 16}},
	{kernels.Conv2D{Out: 24, KernelH: 1, KernelW: 1}, []int{2, 5, 5, 16}},
	{kernels.Conv2D{Out: 7, KernelH: 1, KernelW: 1, Bias: true}, []int{3, 4, 5, 9}},
	{kernels.Conv2D{Out: 8, KernelH: 1, KernelW: 1, StrideH: 2, StrideW: 2}, []int{2, 7, 7, 8}},
	{kernels.Conv2D{Out: 8, KernelH: 4, KernelW: 4}, []int{2, 7, 7, 8}}, // the fake cuDNN does not support it
	{kernels.Conv2D{Out: 6, KernelH: 1, KernelW: 1, Groups: 3, Bias: true}, []int{2, 5, 4, 9}},
	{kernels.Linear{Out: 10, Bias: true}, []int{6, 33}},
	{kernels.Linear{Out: 16}, []int{4, 2, 2, 8}},
	{kernels.Linear{Out: 33}, []int{19, 8}},
	{kernels.Linear{Out: 27}, []int{130, 16}},
	{kernels.Linear{Out: 28, Bias: true}, []int{9, 24}},
	{kernels.Conv2D{Out: 30, KernelH: 1, KernelW: 1}, []int{2, 3, 4, 8}},
	{kernels.Conv2D{Out: 31, KernelH: 1, KernelW: 1}, []int{1, 2, 4, 16}},
	{kernels.Linear{Out: 37}, []int{263, 8}},
	{kernels.Linear{Out: 24, Bias: true}, []int{263, 40}},
	{kernels.Linear{Out: 8, Bias: true}, []int{1, 8}},
	{kernels.Conv2D{Out: 16, KernelH: 1, KernelW: 1, Bias: true}, []int{2, 3, 5, 16}},
	{kernels.Linear{Out: 16, Bias: true}, []int{7, 24}},
}

// firstProduct is the first of vendorCalls that cuBLAS has more than one way for.
const firstProduct = 9

// TestVendorCalls: NVIDIA's libraries agree with the reference as our kernels do, with every pass, type and switch. They are asked only for
// calls that they can do.
func TestVendorCalls(t *testing.T) {
	b, folder := newFakedBench(t)
	for _, fastest := range []algorithm{cublas, cublasParts, cublasBias, cublasRows, cudnn, ours} {
		l := newFaked(t, b, folder, fastest)
		for i, v := range vendorCalls {
			for _, d := range factorTypes {
				if !computesIn(fastest, d) {
					continue
				}
				for seed := range uint64(3) {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					forward, backward := randomCalls(r, as(d, v.op), []kernels.Desc{typed(d, v.shape...)})
					check(t, b, l, forward, backward, randomInputs(r, forward))
				}
			}
		}
		took := map[string]int{}
		for _, c := range l.Choices() {
			if len(c.Failed) > 0 || c.Microseconds[c.Algorithm] == 0 || c.Op == "" || c.Shapes == "" {
				t.Errorf("%+v", c)
			}
			took[c.Algorithm+" "+c.Pass]++
		}
		for _, p := range []string{"forward", "backward_input", "backward_params"} {
			least := 4
			if fastest == cublasParts && p != "backward_input" || fastest == cublasBias && p != "forward" {
				least = 0
			}
			if took[fastest.String()+" "+p] < least {
				t.Errorf("%v computed %v", fastest, took)
			}
		}
	}
}

// computesIn reports whether an algorithm computes in a type.
func computesIn(a algorithm, d kernels.DType) bool {
	switch a {
	case cublasParts, cublasBias:
		return d == kernels.BFloat16
	case cublasRows:
		return d != kernels.Float32
	}
	return true
}

// TestBiasAsWeights: the parts of a bias add up to all of its bits. A bias just above or below the middle between two numbers of bfloat16
// is rounded to the right one. Infinities and NaNs stay what they are.
func TestBiasAsWeights(t *testing.T) {
	b, folder := newFakedBench(t)
	l := newFaked(t, b, folder, cublasBias)
	call := kernels.Call{Op: kernels.Linear{Out: 24, Bias: true}, In: []kernels.Desc{typed(kernels.BFloat16, 3, 8)}}
	in := randomInputs(rand.New(rand.NewPCG(81, 1)), call)
	clear(in[operand(kernels.X, 0)])
	inf := float32(math.Inf(1))
	bias := []float32{1 + 0x1p-8 + 0x1p-23, 1 + 0x1p-8 - 0x1p-23, -3 - 0x1p-7 - 0x1p-22, 0x1p90 + 0x1p82 + 0x1p67, inf, -inf, float32(math.NaN()), 0}
	for len(bias) < 24 {
		bias = append(bias, bias[len(bias)%3]*float32(len(bias)))
	}
	in[operand(kernels.ParamRole, 1)] = encode(kernels.Float32, bias)
	got := values(kernels.BFloat16, compute(t, b, l, call, in, nil)[operand(kernels.Y, 0)])
	for i, w := range values(kernels.BFloat16, reference(t, call, in)[operand(kernels.Y, 0)]) {
		if got[i] != w && !(math.IsNaN(got[i]) && math.IsNaN(w)) {
			t.Errorf("a bias of %v gives %v, want %v", bias[i%24], got[i], w)
		}
	}
	if c := l.Choices(); len(c) != 1 || c[0].Algorithm != cublasBias.String() {
		t.Errorf("%+v", c)
	}
}

// TestCandidates: roundings that kernels does not ask for are nobody's.
func TestCandidates(t *testing.T) {
	b, folder := newFakedBench(t)
	l := newFaked(t, b, folder, ours)
	window, point := kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3}, kernels.Conv2D{Out: 8, KernelH: 1, KernelW: 1}
	biased, odd := window, point
	biased.Bias, odd.Out = true, 27
	pointBiased := point
	pointBiased.Bias = true
	oddBiased := odd
	oddBiased.Bias = true
	f32, half := kernels.F32(1, 5, 5, 8), kernels.F32(1, 5, 5, 8).As(kernels.BFloat16)
	for _, c := range []struct {
		op   kernels.Conv2D
		in   kernels.Desc
		pass kernels.Pass
		add  bool
		want []algorithm
	}{
		{kernels.InTF32(window).(kernels.Conv2D), f32, kernels.BackwardParams, true, []algorithm{ours, cudnn}},
		{kernels.InTF32(point).(kernels.Conv2D), f32, kernels.Forward, false, []algorithm{ours, cublas, cudnn}},
		{window, f32, kernels.BackwardInput, true, []algorithm{ours, cudnn}},
		{window, half, kernels.BackwardInput, false, []algorithm{ours, cudnn}},
		{window, half, kernels.BackwardInput, true, []algorithm{ours}},
		{window, half, kernels.BackwardParams, false, []algorithm{ours}},
		{window, f32, kernels.BackwardParams, true, []algorithm{ours, cudnn}},
		{window, half, kernels.Forward, false, []algorithm{ours, cudnn}},
		{biased, half, kernels.Forward, false, []algorithm{ours}},
		{biased, f32, kernels.Forward, false, []algorithm{ours, cudnn}},
		{point, half, kernels.BackwardParams, true, []algorithm{ours, cublas}},
		{point, half, kernels.Forward, false, []algorithm{ours, cublas, cudnn}},
		{point, half, kernels.BackwardInput, true, []algorithm{ours, cublas, cublasParts}},
		{point, f32, kernels.BackwardInput, true, []algorithm{ours, cublas, cudnn}},
		{odd, half, kernels.Forward, false, []algorithm{ours, cublas, cublasRows, cudnn}},
		{odd, half, kernels.BackwardInput, true, []algorithm{ours, cublas, cublasParts, cublasRows}},
		{odd, half, kernels.BackwardParams, true, []algorithm{ours, cublas, cublasRows}},
		{odd, f32, kernels.BackwardParams, true, []algorithm{ours, cublas, cudnn}},
		{oddBiased, half, kernels.Forward, false, []algorithm{ours, cublas}},
		{kernels.InTF32(odd).(kernels.Conv2D), f32, kernels.BackwardInput, true, []algorithm{ours, cublas, cublasRows, cudnn}},
		{kernels.InTF32(oddBiased).(kernels.Conv2D), f32, kernels.Forward, false, []algorithm{ours, cublas, cublasRows, cudnn}},
		{pointBiased, half, kernels.Forward, false, []algorithm{ours, cublas, cublasBias}},
		{pointBiased, f32, kernels.Forward, false, []algorithm{ours, cublas, cudnn}},
	} {
		call := kernels.Call{Op: c.op, In: []kernels.Desc{c.in}, Pass: c.pass, AddDX: []bool{c.add}, AddParams: c.add}
		if got := l.candidates(call, newConvolution(c.op.Defaults(), c.in)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: candidates are %v, want %v", call, got, c.want)
		}
	}
}

// TestChoiceIsKept: a call is measured once in a process, and another process with the same file repeats the choice.
func TestChoiceIsKept(t *testing.T) {
	b, folder := newFakedBench(t)
	l := newFaked(t, b, folder, measured)
	file := filepath.Join(t.TempDir(), "choices.json")
	l.vendors.choices.file = file
	c := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 1, KernelW: 1}, In: []kernels.Desc{kernels.F32(2, 6, 6, 16)}}
	workspace, err := l.Workspace(c)
	if err != nil {
		t.Fatal(err)
	}
	made := l.Choices()
	if len(made) != 1 || len(made[0].Microseconds) != 3 || made[0].Workspace != workspace || !strings.Contains(made[0].Library, "+cublas-12.6.4+cudnn-9.10.2") {
		t.Fatalf("choices are %+v", made)
	}
	for a, us := range made[0].Microseconds {
		if us <= 0 || us < made[0].Microseconds[made[0].Algorithm] {
			t.Errorf("%s took %v microseconds, and %s was chosen", a, us, made[0].Algorithm)
		}
	}
	for _, kept := range []*choices{l.vendors.choices, {file: file}} {
		next := newFaked(t, b, folder, measured)
		next.vendors.choices = kept
		next.vendors.time = func(algorithm, cuda.Launch) (float64, error) {
			t.Error("measured again")
			return 0, errors.New("again")
		}
		if again, err := next.Workspace(c); err != nil || again != workspace || next.Choices()[0].Algorithm != made[0].Algorithm {
			t.Errorf("%d bytes, %v: %+v; want %+v", again, err, next.Choices(), made)
		}
	}
	badFiles(t, newFaked(t, b, folder, measured), c, file)
}

// badFiles: a file of choices that cannot be read, or says what cannot be, is refused by name.
func badFiles(t *testing.T, l *Library, c kernels.Call, file string) {
	t.Helper()
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	chosen := l.vendors.choices
	for _, text := range []string{"{", strings.Replace(string(good), `"algorithm": "`, `"algorithm": "no`, 1)} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		*chosen = choices{file: file}
		if _, err := l.Workspace(c); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "delete") {
			t.Errorf("%q is accepted: %v", text, err)
		}
	}
	*chosen = choices{file: filepath.Join(file, "none")}
	if _, err := l.Workspace(c); err == nil || !strings.Contains(err.Error(), ChoicesVariable) {
		t.Errorf("a file that cannot be written: %v", err)
	}
	window := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3}, In: c.In}
	*chosen = choices{}
	l.vendors.time = func(algorithm, cuda.Launch) (float64, error) { return 1, nil }
	if _, err := l.Workspace(window); err != nil {
		t.Fatal(err)
	}
	for k, made := range chosen.all {
		made.Algorithm, made.proven = cublas.String(), false
		chosen.all[k] = made
	}
	if _, err := l.Workspace(window); err == nil || !strings.Contains(err.Error(), "cannot") {
		t.Errorf("cuBLAS computes windows: %v", err)
	}
}

// TestVendorFailures: if an algorithm fails when it is measured, it is not chosen, and the choice says why. If it fails later, it stops the
// stream with the call's name. Too small a workspace is refused.
func TestVendorFailures(t *testing.T) {
	b, folder := newFakedBench(t)
	window := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 3, KernelW: 3}, In: []kernels.Desc{kernels.F32(1, 5, 5, 8)}}
	linear := kernels.Call{Op: kernels.Linear{Out: 8}, In: []kernels.Desc{kernels.F32(4, 8)}}
	for call, c := range map[string]kernels.Call{"cudnnConvolutionForward": window, "cudnnSetStream": window, "cublasGemmEx": linear} {
		t.Setenv("FAKE_FAIL", call+"=13")
		l := newFaked(t, b, folder, cudnn)
		if _, err := l.Workspace(c); err != nil {
			t.Fatal(err)
		}
		if made := l.Choices(); len(made) != 1 || len(made[0].Failed) != 1 || !strings.Contains(made[0].Failed[0], call+": FAKE_STATUS (13)") {
			t.Errorf("%s: %+v", call, made)
		}
	}
	t.Setenv("FAKE_FAIL", "cudnnSetTensor4dDescriptor=5003")
	if l := newFaked(t, b, folder, cudnn); len(l.candidates(window, newConvolution(window.Op.(kernels.Conv2D).Defaults(), window.In[0]))) != 1 {
		t.Error("a convolution that cannot be described is a candidate")
	}
	t.Setenv("FAKE_FAIL", "")
	tooSmall(t, b, newFaked(t, b, folder, cudnn), window)
	stops(t, b, newFaked(t, b, folder, cudnn), window)
}

// tooSmall launches a convolution with one byte too few.
func tooSmall(t *testing.T, b *bench, l *Library, c kernels.Call) {
	t.Helper()
	d, err := l.describe(c.Pass, newConvolution(c.Op.(kernels.Conv2D).Defaults(), c.In[0]))
	if err != nil || d.Workspace == 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	base, err := b.device.Address(runtime.Span{Bytes: benchBytes})
	if err != nil {
		t.Fatal(err)
	}
	o := nvidia.Operands{X: base, W: base, Y: base, Workspace: base, Bytes: d.Workspace - 1}
	err = b.device.Run(func() error {
		stream, err := cu.MakeStream(cu.NonBlocking)
		if err != nil {
			return err
		}
		return errors.Join(d.Launch(o).Issue(stream), stream.Destroy())
	})
	if err == nil || !strings.Contains(err.Error(), "cudnnConvolutionForward: FAKE_BAD_PARAM (2000)") {
		t.Errorf("too small a workspace: %v", err)
	}
}

// stops runs a call that fails after it was chosen.
func stops(t *testing.T, b *bench, l *Library, c kernels.Call) {
	t.Helper()
	workspace, err := l.Workspace(c)
	if err != nil {
		t.Fatal(err)
	}
	launch, err := l.Prepare(c, newRig(c, workspace, nil).operands)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_FAIL", "cudnnConvolutionForward=13")
	stream, err := b.device.NewStream("fails")
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(stream.Launch(launch), stream.Synchronize())
	if err == nil || !strings.Contains(err.Error(), "cudnn: cudnnConvolutionForward: FAKE_STATUS (13)") {
		t.Errorf("a call that fails: %v", err)
	}
}

// TestHandles: a library that loads and cannot start is an error where it is required, and noted where it is preferred.
func TestHandles(t *testing.T) {
	b, folder := newFakedBench(t)
	s := nvidia.Search{Folders: []string{folder}}
	for call, left := range map[string]string{
		"cudnnCreate": "libcublas.so.12", "cublasCreate": "libcudnn.so.9", "cublasSetMathMode": "libcudnn.so.9",
	} {
		t.Setenv("FAKE_FAIL", call+"=1001")
		if _, err := New(b.device, Options{Vendor: nvidia.Require, Search: s}); err == nil || !strings.Contains(err.Error(), call+": FAKE_STATUS (1001)") {
			t.Errorf("%s: %v", call, err)
		}
		l, err := New(b.device, Options{Vendor: nvidia.Prefer, Search: s})
		if err != nil {
			t.Fatal(err)
		}
		files, missing := l.Vendors()
		if !slices.Equal(files, []string{filepath.Join(folder, left)}) || len(missing) != 1 || !strings.Contains(missing[0].Error(), call) {
			t.Errorf("%s: uses %v without %v", call, files, missing)
		}
		t.Setenv("FAKE_FAIL", "")
	}
	for _, call := range []string{"cudnnDestroy", "cublasDestroy"} {
		devices, err := cuda.Open(cuda.Config{Memory: benchBytes})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(devices[0], Options{Vendor: nvidia.Require, Search: s}); err != nil {
			t.Error(err)
		}
		t.Setenv("FAKE_FAIL", call+"=4")
		if err := devices[0].Close(); err == nil || !strings.Contains(err.Error(), call) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestEmulatedRefusesVendors: on an emulated GPU, a library is used only if it says that it is made for one. Only the named folders are
// searched for it.
func TestEmulatedRefusesVendors(t *testing.T) {
	b, _ := newFakedBench(t)
	unmarked := []fake.Library{fake.CuDNN, fake.CuBLAS}
	for i := range unmarked {
		unmarked[i].Defines = append(slices.Clone(unmarked[i].Defines), "FAKE_UNMARKED")
	}
	folder := fake.Build(t, unmarked...)
	lib, err := library.Open(b.device, library.Options{VendorPath: folder})
	if err != nil {
		t.Fatal(err)
	}
	if files, missing := lib.(*Library).Vendors(); len(files) != 0 || len(missing) != 2 || strings.Contains(lib.Name(), "cudnn") {
		t.Errorf("%s uses %v without %v", lib.Name(), files, missing)
	}
	if _, err := library.Open(b.device, library.Options{Vendor: "require", VendorPath: folder}); err == nil || !strings.Contains(err.Error(), "emulated") {
		t.Errorf("required: %v", err)
	}
	if lib, err := library.Open(b.device, library.Options{Vendor: "refuse"}); err != nil || len(lib.(*Library).vendors.loaded.Missing()) != 0 {
		t.Errorf("refused: %v", err)
	}
	if _, err := library.Open(b.device, library.Options{Vendor: "maybe"}); err == nil || !strings.Contains(err.Error(), "maybe") {
		t.Errorf("maybe: %v", err)
	}
}

// TestVendorGraph: what a library of NVIDIA's computes can be captured and repeated.
func TestVendorGraph(t *testing.T) {
	b, folder := newFakedBench(t)
	for _, fastest := range []algorithm{cublas, cudnn} {
		l := newFaked(t, b, folder, fastest)
		c := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 1, KernelW: 1}, In: []kernels.Desc{kernels.F32(2, 6, 6, 16).As(kernels.BFloat16)}}
		workspace, err := l.Workspace(c)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(c, workspace, nil)
		launch, err := l.Prepare(c, r.operands)
		if err != nil {
			t.Fatal(err)
		}
		graph, err := b.device.Capture(b.stream, func() error { return b.stream.Launch(launch) })
		if err != nil {
			t.Fatal(err)
		}
		in := randomInputs(rand.New(rand.NewPCG(1, 2)), c)
		want := compute(t, b, l, c, in, nil)
		for range 2 {
			before := r.memory(in)
			sameBits(t, fastest.String()+" in a graph", r.outputs(t, before, b.run(t, before, graph)), want)
		}
	}
}

// TestAgreedChoices: a library repeats the choices of another process, over its own file, without a measurement; one that it cannot
// repeat is an error and no choice of its own.
func TestAgreedChoices(t *testing.T) {
	b, folder := newFakedBench(t)
	c := kernels.Call{Op: kernels.Conv2D{Out: 8, KernelH: 1, KernelW: 1}, In: []kernels.Desc{kernels.F32(2, 6, 6, 16)}}
	made := func(l *Library, exported json.RawMessage) (string, error) {
		if err := l.vendors.choices.adopt(l, exported); err != nil {
			return "", err
		}
		if _, err := l.Workspace(c); err != nil {
			return "", err
		}
		return l.Choices()[0].Algorithm, nil
	}
	first := newFaked(t, b, folder, cublas)
	if got, err := made(first, nil); got != "cublas" || err != nil {
		t.Fatalf("the first process chose %s, %v", got, err)
	}
	exported, err := first.ExportChoices()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "choices.json")
	own := newFaked(t, b, folder, ours)
	own.vendors.choices.file = file
	if got, err := made(own, nil); got != "ours" || err != nil {
		t.Fatalf("alone, another process chose %s, %v", got, err)
	}
	repeats := func() *Library {
		l := newFaked(t, b, folder, ours)
		l.vendors.choices.file = file
		l.vendors.time = func(algorithm, cuda.Launch) (float64, error) { return 0, errors.New("measured again") }
		return l
	}
	if got, err := made(repeats(), exported); got != "cublas" || err != nil {
		t.Errorf("told to repeat cublas, a process chose %s, %v", got, err)
	}
	if got, err := made(repeats(), nil); got != "ours" || err != nil { // the file is what it was
		t.Errorf("afterwards the file gives %s, %v", got, err)
	}
	elsewhere := strings.Replace(string(exported), first.device.Info().Model, "another GPU", 1)
	if got, err := made(repeats(), json.RawMessage(elsewhere)); got != "cublas" || err != nil {
		t.Errorf("told to repeat the choice of another GPU, a process chose %s, %v", got, err)
	}
	same := newFaked(t, b, folder, cublas) // its file says the same, and is not believed either
	same.vendors.choices.file = filepath.Join(t.TempDir(), "same.json")
	if _, err := made(same, nil); err != nil {
		t.Fatal(err)
	}
	again := newFaked(t, b, folder, ours)
	again.vendors.choices.file = same.vendors.choices.file
	again.prove = func(kernels.Call, algorithm) error { return ErrWrong }
	if got, err := made(again, exported); err == nil || !strings.Contains(err.Error(), "cublas computes wrongly here") {
		t.Errorf("a process whose file says the same, and that computes wrongly, chose %s, %v", got, err)
	}
	wrong := repeats()
	wrong.prove = func(kernels.Call, algorithm) error { return ErrWrong }
	for want, l := range map[string]*Library{"cublas computes wrongly here": wrong, "naive": repeats()} {
		told := exported
		if want == "naive" { // is believed, as no process may compute otherwise
			told = json.RawMessage(strings.Replace(string(exported), `"algorithm":"cublas"`, `"algorithm":"naive"`, 1))
		}
		if got, err := made(l, told); got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %s: got %s, %v", want, got, err)
		}
	}
	without := newFaked(t, b, folder, ours)
	without.vendors.multiplier = nil
	for says, told := range map[string]string{
		"cublas cannot be used here":   strings.Replace(string(exported), first.Name(), without.Name(), 1),
		`algorithm "magic" is unknown`: strings.Replace(string(exported), `"algorithm":"cublas"`, `"algorithm":"magic"`, 1),
		"one version of the program":   "{",
	} {
		if got, err := made(without, json.RawMessage(told)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: got %s, %v", says, got, err)
		}
	}
}

// TestRowClasses: classes take every row once, and in it columns that begin and end at whole vectors, all but less than a vector at each end.
func TestRowClasses(t *testing.T) {
	for _, vector := range []int64{4, 8} {
		for rows := int64(8); rows < 40; rows++ {
			for columns := int64(24); columns < 90; columns++ {
				checkRowClasses(t, rows, columns, vector)
			}
		}
	}
}

func checkRowClasses(t *testing.T, rows, columns, vector int64) {
	t.Helper()
	taken := map[int64]bool{}
	all := rowClasses(rows, columns, vector)
	for _, k := range all {
		tail := columns - k.head - k.main
		if (k.first*columns+k.head)%vector != 0 || k.main%vector != 0 || int64(len(all))*columns%vector != 0 || k.head < 0 || k.head >= vector || tail < 0 || tail >= vector {
			t.Fatalf("%d rows of %d columns: %+v of %d", rows, columns, k, len(all))
		}
		for i := range k.rows {
			taken[k.first+i*int64(len(all))] = true
		}
	}
	if int64(len(taken)) != rows || !taken[0] || !taken[rows-1] || all[0].head != 0 {
		t.Fatalf("%d rows of %d columns: %v", rows, columns, taken)
	}
}

// TestProductSpace: a small product gets little, a large one what NVIDIA recommends.
func TestProductSpace(t *testing.T) {
	for want, p := range map[int64]nvidia.Product{
		64 << 10:              {M: 4, N: 10, K: 1 << 20},
		4 * 256 * 1000:        {M: 256, N: 1000, K: 511},
		4 * 256 * 1000 * 2:    {M: 256, N: 1000, K: 512},
		4 * 100 * 1000 * 16:   {M: 100, N: 1000, K: 1 << 20},
		largeProductWorkspace: {M: 768, N: 768, K: 16384},
	} {
		if got := productSpace(p, largeProductWorkspace); got != want {
			t.Errorf("%+v gets %d bytes, want %d", p, got, want)
		}
	}
}
