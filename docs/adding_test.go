package docs

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step is what a recipe does with a file: a text goes in front of the place, behind it, in its place, or at the end where there is none. A
// text that is empty is the next piece of code of the section. The section says the step in words, ahead of that piece.
type step struct {
	says     string
	file     string
	place    string
	ahead    bool
	replaces bool
	text     string
}

// recipe is a section of adding.md: the steps that it tells, in its order, and what is run behind them.
type recipe struct {
	section string
	steps   []step
	proved  func(*copied)
}

var recipes = []recipe{
	{"A strategy", aStrategy, strategyPlans},
	{"An op", anOp, opComputes},
	{"A model", aModel, modelTrains},
	{"A device", aDevice, deviceTrains},
}

var aStrategy = []step{
	{says: "`planner/remat/sqrt.go`:", file: "planner/remat/sqrt.go"},
	{says: "in `remat.go`, behind periodic:", file: "planner/remat/remat.go", place: "\t\t\tSolve: solvePeriodic,\n\t\t},\n"},
}

func strategyPlans(c *copied) {
	c.program()
	c.shows("A strategy")
	c.sh("go test -short -count=1 ./planner ./planner/remat")
}

var anOp = []step{
	{says: "`kernels/leakyrelu.go`;", file: "kernels/leakyrelu.go"},
	{says: "At the end of `kernels/ref/elementwise.go`:", file: "kernels/ref/elementwise.go"},
	{says: "its case in `kernel` of `library.go`, ahead of that of `Multiply`:", file: "kernels/ref/library.go", place: "\tcase kernels.Multiply:\n", ahead: true},
	{says: "In `kernels/cpu`, `LEAKY_FORWARD, LEAKY_BACKWARD,` at the beginning of `enum kernel` of `job.h`", file: "kernels/cpu/job.h", place: "enum kernel {\n", text: "\tLEAKY_FORWARD, LEAKY_BACKWARD,\n"},
	{says: "`float slope;` at the end of its `struct map_args`", file: "kernels/cpu/job.h", place: "\tfloat most; // of a ReLU, 0: any\n", text: "\tfloat slope;\n"},
	{says: "in the table of `kernels.h`, ahead of `RELU_FORWARD`:", file: "kernels/cpu/kernels.h", place: "\t[RELU_FORWARD]", ahead: true},
	{says: "the kernels at the end of `map.h`", file: "kernels/cpu/map.h"},
	{says: "the launcher at the end of `map.go`:", file: "kernels/cpu/map.go"},
	{says: "its case in `build` of `cpu.go`, ahead of `default`:", file: "kernels/cpu/cpu.go", place: "\tdefault:\n\t\tif !addArrangement", ahead: true},
	{says: "In `kernels/cuda`, `float slope;` at the end of `struct map_args` of `src/args.h`", file: "kernels/cuda/src/args.h", place: "\tfloat most; // of a ReLU, 0: any\n", text: "\tfloat slope;\n"},
	{says: "the kernels at the end of `src/map.cu`", file: "kernels/cuda/src/map.cu"},
	{says: "the launcher at the end of `map.go`:", file: "kernels/cuda/map.go"},
	{says: "its case in `buildAs` of `build.go`, ahead of `default`:", file: "kernels/cuda/build.go", place: "\tdefault:\n\t\tif !addArrangement", ahead: true},
	{says: "At the end of `models/builder.go`:", file: "models/builder.go"},
	{says: "At the end of `everyOp` of `kernels/infer_test.go`:", file: "kernels/infer_test.go", place: "\tRotary{Heads: 4, Dim: 4}, Attention{Heads: 4, KVHeads: 2, Table: 3, Masks: 2},\n"},
	{says: "of `ops` of `kernels/ref/ref_test.go`:", file: "kernels/ref/ref_test.go", place: "\t{kernels.Attention{Heads: 4, KVHeads: 2}, []kernels.Desc{kernels.F32(2, 5, 8*3)}},\n"},
	{says: "of `gradientCalls` of `kernels/cpu/gradient_test.go`:", file: "kernels/cpu/gradient_test.go", place: "{Shape: kernels.Shape{2, 3, 4}, DType: kernels.Int32}}},\n"},
	{says: "of `largeCalls` of `kernels/cpu/ops_test.go`:", file: "kernels/cpu/ops_test.go", place: "\t{kernels.Attention{Heads: 1}, []kernels.Desc{kernels.F32(1, 129, 3*130)}},\n"},
	{says: "of `largeCalls` of `kernels/cuda/ops_test.go`:", file: "kernels/cuda/ops_test.go", place: "\t{kernels.Attention{Heads: 4, KVHeads: 2}, []int{1, 200, 8 * 130}},\n"},
	{says: "at the end of `kernels/cpu/reference_test.go`:", file: "kernels/cpu/reference_test.go"},
	{says: "its case in `reference`, ahead of that of `Add`:", file: "kernels/cpu/reference_test.go", place: "\tcase kernels.Add:\n", ahead: true},
	{says: "`TestGradients` of `kernels/ref` then compares 122 gradients, not 121", file: "kernels/ref/ref_test.go", place: "compared != 121", replaces: true, text: "compared != 122"},
	{
		says: "`TestAliases` tries 128 aliases of each type, not 126", file: "kernels/ref/ref_test.go",
		place: "aliases[kernels.Float32] != 126 || aliases[kernels.BFloat16] != 126", replaces: true, text: "aliases[kernels.Float32] != 128 || aliases[kernels.BFloat16] != 128",
	},
}

// leakyPTX is what stands for ptx/map.ptx where there is no NVRTC: the emulated driver reads the names alone.
const leakyPTX = `.visible .entry leaky_forward_f32() { ret; }
.visible .entry leaky_forward_bf16() { ret; }
.visible .entry leaky_backward_f32() { ret; }
.visible .entry leaky_backward_bf16() { ret; }
`

// leakyOnGPU is a test of the op by what the tests of kernels/cuda use: their lists need the kernels of all ops.
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

// opComputes tests the op on the CPU, and its kernel on the emulated driver. With NVRTC's library in PLIMSOLL_NVRTC the PTX is made as the
// section says.
func opComputes(c *copied) {
	c.sh("go build ./models && go test -short -count=1 ./kernels ./kernels/ref && go test -count=1 -run 'Large|FiniteDifferences|NotFinite' ./kernels/cpu")
	write(c.T, filepath.Join(c.dir, "kernels/cuda/leaky_test.go"), leakyOnGPU, nil)
	if out, err := c.run("go test -count=1 -run TestPTXIsFresh ./kernels/cuda"); err == nil || !strings.Contains(out, "run make kernels") {
		c.Errorf("a test takes PTX that is older than its sources: %v\n%s", err, out)
	}
	if library := os.Getenv("PLIMSOLL_NVRTC"); library != "" {
		c.sh("make kernels NVRTC=" + library)
		c.sh("go test -count=1 -run TestOpcodes ./kernels/cuda -update")
		c.sh("go test -count=1 -run 'TestPTXIsFresh|TestParameters|TestOpcodes|TestCachedLoads' ./kernels/cuda")
	} else {
		put(c.T, filepath.Join(c.dir, "kernels/cuda/ptx/map.ptx"), step{}, leakyPTX)
	}
	c.sh(`mkdir -p out/src && cp kernels/cuda/src/map.cu kernels/cuda/src/*.h kernels/cuda/src/*.cuh out/src
		runtime/cuda/emulator/build.sh "$TREE/out/emulator" out/src
		LD_LIBRARY_PATH="$TREE/out/emulator" go test -tags cuda -count=1 -v -run TestLeakyReLU ./kernels/cuda`)
}

var aModel = []step{
	{says: "at the end of `models/resnet.go`", file: "models/resnet.go"},
	{says: "its entry in `Zoo` of `models/zoo.go`, behind `resnet1001`:", file: "models/zoo.go", place: "32, 10, preActivation(1001)},\n"},
	{says: "`models/plain_test.go` holds it to a published number:", file: "models/plain_test.go"},
}

func modelTrains(c *copied) {
	c.sh("go build ./models && go test -short -count=1 ./models")
	c.program()
	c.shows("A model")
}

var aDevice = []step{
	{says: "<code>runtime/eager/eager.go</code>", file: "runtime/eager/eager.go"},
	{says: "`runtime/eager/eager_test.go`", file: "runtime/eager/eager_test.go"},
	{says: "`runtime/devices/eager.go`", file: "runtime/devices/eager.go"},
	{says: "`kernels/library/eager.go`", file: "kernels/library/eager.go"},
	{says: "`eager` stands behind `null` there", file: "runtime/devices/devices_test.go", place: `"known are cpu, null, fake"`, replaces: true, text: `"known are cpu, null, eager, fake"`},
	{says: "`eager` stands behind `null` there", file: "runtime/devices/devices_test.go", place: `"cpu", "null", "fake"}`, replaces: true, text: `"cpu", "null", "eager", "fake"}`},
}

func deviceTrains(c *copied) {
	c.sh("go test -count=1 ./runtime/eager ./runtime/devices ./kernels/library")
	c.program()
	c.shows("A device")
}

// TestRecipesFitTheSources follows every section of adding.md as far as files go: each piece of code has a step that the section says in
// words, each place in the sources is there once, and Go code is formatted.
func TestRecipesFitTheSources(t *testing.T) {
	t.Parallel()
	for _, r := range recipes {
		t.Run(r.section, func(t *testing.T) {
			t.Parallel()
			tree := t.TempDir()
			for _, s := range r.steps {
				text, err := os.ReadFile(filepath.Join("..", s.file))
				if os.IsNotExist(err) {
					continue
				}
				write(t, filepath.Join(tree, s.file), string(text), err)
			}
			r.follow(t, tree)
			for _, s := range r.steps {
				path := filepath.Join(tree, s.file)
				text, err := os.ReadFile(path)
				if err == nil && filepath.Ext(path) == ".go" {
					var done []byte
					if done, err = format.Source(text); err == nil && string(done) != string(text) {
						t.Errorf("%s is not formatted", s.file)
					}
				}
				if err != nil {
					t.Errorf("%s: %v", s.file, err)
				}
			}
		})
	}
}

// TestRecipes follows every section of adding.md in a copy of the sources, builds what it adds and runs it: no other test finds that a step
// is missing. It compiles the CPU's and the emulated driver's kernels, which takes minutes: make test-recipes.
func TestRecipes(t *testing.T) {
	t.Parallel()
	if os.Getenv("PLIMSOLL_RECIPES") == "" {
		t.Skip("minutes of compiling: set PLIMSOLL_RECIPES")
	}
	for _, r := range recipes {
		t.Run(r.section, func(t *testing.T) {
			c := copyTree(t)
			r.follow(t, c.dir)
			r.proved(c)
		})
	}
}

// copied is a copy of the sources.
type copied struct {
	*testing.T
	from, dir string
}

// copyTree copies the files that git tracks, or would.
func copyTree(t *testing.T) *copied {
	t.Helper()
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	c := &copied{t, here, t.TempDir()}
	c.sh("cd " + here + ` && git ls-files -z -co --exclude-standard | xargs -0 cp -p --parents -t "$TREE"`)
	return c
}

// sh runs a command in the copy and returns what it prints. It fails when the command does, and when a test is skipped or not there.
func (c *copied) sh(command string) string {
	c.Helper()
	out, err := c.run(command)
	if err != nil || strings.Contains(out, "no tests to run") || strings.Contains(out, "SKIP") {
		c.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// run runs a command in the copy, with the flags of the Makefile, by which packages without a change are compiled once.
func (c *copied) run(command string) (string, error) {
	x := exec.Command("sh", "-ec", command)
	x.Dir = c.dir
	x.Env = append(os.Environ(), "TREE="+c.dir, "XDG_CACHE_HOME="+filepath.Join(c.dir, "out/cache"), "GOFLAGS=-trimpath", "CGO_ENABLED=1",
		"CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations -I"+c.from+"/runtime/cuda/include", "CGO_LDFLAGS=-O2 -g -L"+c.from+"/runtime/cuda/lib")
	out, err := x.CombinedOutput()
	return string(out), err
}

// program builds the program.
func (c *copied) program() {
	c.Helper()
	c.sh("go build -o out/bin/plimsoll ./cmd/plimsoll")
}

var (
	shown   = regexp.MustCompile("(?s)```\n(\\$ .*?)```")
	figures = regexp.MustCompile(`[-+]?\b\d[\d.,]*\b`)
	blanks  = regexp.MustCompile(`( |─)+`)
)

// shows compares what the section's blocks of commands show with what the program in the copy prints. Figures and the width of columns
// depend on the machine, but for those of plans.
func (c *copied) shows(section string) {
	c.Helper()
	blocks := shown.FindAllStringSubmatch(textOf(c.T, section), -1)
	if len(blocks) == 0 {
		c.Errorf("%s shows no commands", section)
	}
	words := func(text string) string { return blanks.ReplaceAllString(figures.ReplaceAllString(text, "#"), "$1") }
	for _, m := range blocks {
		for _, part := range strings.Split("\n"+m[1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(part, "\n")
			got := c.sh(`export PATH="$TREE/out/bin:$PATH"; ` + line)
			c.Logf("$ %s\n%s", line, got)
			if exact := strings.HasPrefix(line, "plimsoll plan "); exact && !agree(want, got) || !agree(words(want), words(got)) {
				c.Errorf("%s: %s shows\n%s\nand prints\n%s", section, line, want, got)
			}
		}
	}
}

// agree compares texts. "..." on a line of its own stands for any lines.
func agree(shown, got string) bool {
	parts := strings.Split("\n"+strings.TrimSuffix(shown, "\n")+"\n", "\n...\n")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, `\n(?:.*\n)?`) + `$`).MatchString("\n" + strings.TrimSuffix(got, "\n") + "\n")
}

// textOf returns a section of adding.md.
func textOf(t *testing.T, section string) string {
	t.Helper()
	text, err := os.ReadFile("adding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	if !found {
		t.Fatalf("adding.md has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

var code = regexp.MustCompile("(?s)```(?:go|c)\n(.*?)```")

// follow makes the steps of the recipe in a tree.
func (r *recipe) follow(t *testing.T, tree string) {
	t.Helper()
	rest := textOf(t, r.section)
	for _, s := range r.steps {
		at := code.FindStringSubmatchIndex(rest)
		words, piece := rest, s.text
		if at != nil {
			words = rest[:at[0]]
		}
		if !strings.Contains(strings.Join(strings.Fields(words), " "), s.says) {
			t.Fatalf("%s does not say %q ahead of its next piece of code:\n%s", r.section, s.says, words)
		}
		if piece == "" {
			if at == nil {
				t.Fatalf("%s has no code for %s", r.section, s.file)
			}
			piece, rest = rest[at[2]:at[3]], rest[at[1]:]
		}
		put(t, filepath.Join(tree, s.file), s, piece)
	}
	if left := code.FindAllString(rest, -1); len(left) > 0 {
		t.Errorf("%s: %d pieces of code belong to no step, the first\n%s", r.section, len(left), left[0])
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
	case s.replaces:
		text = strings.Replace(text, s.place, piece, 1)
	case s.ahead:
		text = strings.Replace(text, s.place, piece+s.place, 1)
	default:
		text = strings.Replace(text, s.place, s.place+piece, 1)
	}
	write(t, path, text, nil)
}

// write writes a file, and its folder, unless there is an error already.
func write(t *testing.T, path, text string, err error) {
	t.Helper()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
