package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step is what a recipe does with a file: a text goes in front of the place, behind it, or at the end where there is none. A text that
// is empty is the next piece of code of the section.
type step struct {
	file  string
	place string
	ahead bool
	text  string
}

// anOp are the steps of the section "An op", in its order.
var anOp = []step{
	{file: "kernels/leakyrelu.go"},
	{file: "kernels/ref/elementwise.go"},
	{file: "kernels/ref/library.go", place: "\tcase kernels.Multiply:\n", ahead: true},
	{file: "kernels/cpu/job.h", place: "enum kernel {\n", text: "\tLEAKY_FORWARD, LEAKY_BACKWARD,\n"},
	{file: "kernels/cpu/job.h", place: "\tfloat most; // of a ReLU, 0: any\n", text: "\tfloat slope;\n"},
	{file: "kernels/cpu/kernels.h", place: "\t[RELU_FORWARD]", ahead: true},
	{file: "kernels/cpu/map.h"},
	{file: "kernels/cpu/map.go"},
	{file: "kernels/cpu/cpu.go", place: "\tdefault:\n\t\tb.err", ahead: true},
	{file: "kernels/cuda/src/args.h", place: "\tfloat most; // of a ReLU, 0: any\n", text: "\tfloat slope;\n"},
	{file: "kernels/cuda/src/map.cu"},
	{file: "kernels/cuda/map.go"},
	{file: "kernels/cuda/cuda.go", place: "\tdefault:\n\t\tb.fail(\"%w\", kernels.NoKernel", ahead: true},
	{file: "models/builder.go"},
}

// What make kernels would add to ptx/map.ptx: the emulated driver reads the names alone.
const leakyPTX = `.visible .entry leaky_forward_f32() { ret; }
.visible .entry leaky_forward_bf16() { ret; }
.visible .entry leaky_backward_f32() { ret; }
.visible .entry leaky_backward_bf16() { ret; }
`

// Tests of the op, by what its libraries' own tests use.
const leakyOnCPU = `package cpu

import (
	"slices"
	"testing"

	"plimsoll/kernels"
)

func TestLeakyReLU(t *testing.T) {
	t.Parallel()
	for _, path := range testedPaths() {
		l := newLibrary(t, path, 2)
		for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
			if d == kernels.BFloat16 && l.lacksBFloat16() != nil {
				continue
			}
			c := kernels.Call{Op: kernels.LeakyReLU{Slope: 0.25}, In: []kernels.Desc{{Shape: kernels.Shape{3}, DType: d}}, Train: true}
			y := run(t, l, c, data{operand(kernels.X, 0): {4, -8, 1}})[opY]
			c.Pass = kernels.Backward
			dx := run(t, l, c, data{opY: y, operand(kernels.DY, 0): {3, 2, -1}})[operand(kernels.DX, 0)]
			if !slices.Equal(y, []float32{4, -2, 1}) || !slices.Equal(dx, []float32{3, 0.5, -1}) {
				t.Errorf("%v, %v: %v, %v", path, d, y, dx)
			}
		}
	}
}
`

const leakyOnGPU = `//go:build cuda && linux && amd64

package cuda

import (
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

func TestLeakyReLU(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, d := range types {
		r := rand.New(rand.NewPCG(1, uint64(d)))
		forward, backward := randomCalls(r, kernels.LeakyReLU{Slope: 0.25}, []kernels.Desc{typed(d, 5001)})
		if _, n := check(t, b, libraries(t, b)[0], forward, backward, randomInputs(r, forward)); n != 2 {
			t.Errorf("ran %d calls", n)
		}
	}
}
`

// TestRecipeOfAnOp follows the section "An op" in a copy of the sources, and runs the op that it adds on both devices: no other test
// finds that a step is missing. It compiles the CPU's and the emulated driver's kernels, which takes minutes: make test-recipes.
func TestRecipeOfAnOp(t *testing.T) {
	t.Parallel()
	if os.Getenv("PLIMSOLL_RECIPES") == "" {
		t.Skip("minutes of compiling: set PLIMSOLL_RECIPES")
	}
	tree := t.TempDir()
	sh := func(command string) {
		t.Helper()
		c := exec.Command("sh", "-ec", command)
		c.Dir, c.Env = tree, append(os.Environ(), "TREE="+tree, "CGO_CFLAGS=-O2 -g -I"+tree+"/runtime/cuda/include", "CGO_LDFLAGS=-O2 -g -L"+tree+"/runtime/cuda/lib")
		if out, err := c.CombinedOutput(); err != nil || strings.Contains(string(out), "no tests to run") || strings.Contains(string(out), "SKIP") {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	sh("cd " + here + ` && git ls-files -z -co --exclude-standard | xargs -0 cp -p --parents -t "$TREE"`)
	follow(t, tree, "adding.md", "## An op\n", anOp)
	sh("gofmt -l kernels models >unformatted; cat unformatted >&2; ! [ -s unformatted ]")
	for file, text := range map[string]string{"kernels/cpu/leaky_test.go": leakyOnCPU, "kernels/cuda/leaky_test.go": leakyOnGPU} {
		put(t, filepath.Join(tree, file), step{text: text}, text)
	}
	put(t, filepath.Join(tree, "kernels/cuda/ptx/map.ptx"), step{}, leakyPTX)
	sh("go vet ./kernels ./kernels/ref ./models && go test -v -run TestLeakyReLU ./kernels/cpu")
	sh(`mkdir -p out/src && cp kernels/cuda/src/map.cu kernels/cuda/src/*.h kernels/cuda/src/*.cuh out/src
		runtime/cuda/emulator/build.sh "$TREE/out/emulator" out/src
		LD_LIBRARY_PATH="$TREE/out/emulator" go test -tags cuda -v -run TestLeakyReLU ./kernels/cuda`)
}

// follow makes the steps of a section of a document.
func follow(t *testing.T, tree, document, section string, steps []step) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), section)
	rest, _, _ = strings.Cut(rest, "\n## ")
	code := regexp.MustCompile("(?s)```(?:go|c)\n(.*?)```").FindAllStringSubmatch(rest, -1)
	for _, s := range steps {
		piece := s.text
		if piece == "" {
			if len(code) == 0 {
				t.Fatalf("%s has no code for %s", document, s.file)
			}
			piece, code = code[0][1], code[1:]
		}
		put(t, filepath.Join(tree, s.file), s, piece)
	}
	if len(code) > 0 {
		t.Errorf("%d pieces of code belong to no step", len(code))
	}
}

// put puts a piece into a file, which may be new.
func put(t *testing.T, path string, s step, piece string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	text := string(old)
	switch {
	case s.place == "" && text == "":
		text = piece
	case s.place == "":
		text += "\n" + piece
	case strings.Count(text, s.place) != 1:
		t.Fatalf("%s has %q %d times", path, s.place, strings.Count(text, s.place))
	case s.ahead:
		text = strings.Replace(text, s.place, piece+s.place, 1)
	default:
		text = strings.Replace(text, s.place, s.place+piece, 1)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
