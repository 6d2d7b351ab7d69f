package docs

import (
	"go/format"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plimsoll/kernels/cuda/sources"
)

// recipe is a section of adding.md: the addition that its patch makes, and what is run after it.
type recipe struct {
	section string
	patch   string // of examples/adding, without .patch
	proved  func(*copied)
}

var recipes = []recipe{
	{"A strategy", "strategy", strategyPlans},
	{"A schedule", "schedule", schedulePlans},
	{"An op", "op", opComputes},
	{"A model", "model", modelTrains},
	{"A device", "device", deviceTrains},
}

func strategyPlans(c *copied) {
	c.program()
	c.shows("A strategy")
	c.sh("go test -short -count=1 ./planner ./planner/remat")
}

func schedulePlans(c *copied) {
	c.program()
	c.shows("A schedule")
	c.sh("go test -short -count=1 ./planner/pipeline/flush")
}

// softsignPTX stands for PTX of map.cu where there is no NVRTC: the emulated driver reads the names alone.
const softsignPTX = `
.visible .entry softsign_forward_f32() { ret; }
.visible .entry softsign_forward_bf16() { ret; }
.visible .entry softsign_backward_f32() { ret; }
.visible .entry softsign_backward_bf16() { ret; }
`

// softsignOnGPU tests the op alone: the lists of kernels/cuda need the kernels of all ops.
const softsignOnGPU = `//go:build cuda && linux && amd64

package cuda

import (
	"math/rand/v2"
	"testing"

	"plimsoll/kernels"
)

func TestSoftsign(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, d := range types {
		r := rand.New(rand.NewPCG(1, uint64(d)))
		forward, backward := randomCalls(r, kernels.Softsign{Scale: 2}, []kernels.Desc{typed(d, 5001)})
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
	write(c.T, filepath.Join(c.dir, "kernels/cuda/softsign_test.go"), softsignOnGPU)
	if out, err := c.run("go test -count=1 -run TestPTXIsFresh ./kernels/cuda"); err == nil || !strings.Contains(out, "run make kernels") {
		c.Errorf("a test takes PTX that is older than its sources: %v\n%s", err, out)
	}
	if library := os.Getenv("PLIMSOLL_NVRTC"); library != "" {
		c.sh("make kernels NVRTC=" + library)
		c.sh("go test -count=1 -run TestOpcodes ./kernels/cuda -update")
		c.sh("go test -count=1 -run 'TestPTXIsFresh|TestParameters|TestOpcodes|TestCachedLoads' ./kernels/cuda")
	} else {
		folder := filepath.Join(c.dir, "kernels/cuda/ptx")
		ptx, err := sources.ReadPTX(os.DirFS(folder), "map")
		if err != nil {
			c.Fatal(err)
		}
		file, err := sources.CompressPTX(append(ptx, softsignPTX...))
		if err != nil {
			c.Fatal(err)
		}
		write(c.T, filepath.Join(folder, sources.PTXFile("map")), string(file))
	}
	c.sh(`mkdir -p out/src && cp kernels/cuda/src/map.cu kernels/cuda/src/*.h kernels/cuda/src/*.cuh out/src
		runtime/cuda/emulator/build.sh "$TREE/out/emulator" out/src
		LD_LIBRARY_PATH="$TREE/out/emulator" go test -tags cuda -count=1 -v -run TestSoftsign ./kernels/cuda`)
}

func modelTrains(c *copied) {
	c.sh("go build ./models && go test -short -count=1 ./models")
	c.program()
	c.shows("A model")
}

func deviceTrains(c *copied) {
	c.sh("go test -count=1 ./runtime/eager ./runtime/devices ./kernels/library")
	c.program()
	c.shows("A device")
}

// TestRecipesFitTheSources applies the patch of every section of adding.md. The section names each file of the patch, each piece of its code
// stands in one of them, and Go code is formatted.
func TestRecipesFitTheSources(t *testing.T) {
	t.Parallel()
	for _, r := range recipes {
		t.Run(r.section, func(t *testing.T) {
			t.Parallel()
			tree, text, all := t.TempDir(), textOf(t, r.section), ""
			for _, f := range r.files(t) {
				if old, err := os.ReadFile(filepath.Join("..", f)); err == nil {
					write(t, filepath.Join(tree, f), string(old))
				} else if !os.IsNotExist(err) {
					t.Fatal(err)
				}
				folder, name := path.Split(f)
				if !strings.Contains(text, "`"+f+"`") && !(strings.Contains(text, "`"+path.Clean(folder)+"`") && strings.Contains(text, "`"+name+"`")) {
					t.Errorf("the section does not name %s", f)
				}
			}
			r.apply(t, tree)
			for _, f := range r.files(t) {
				done, err := os.ReadFile(filepath.Join(tree, f))
				if err != nil {
					t.Fatal(err)
				}
				if all += string(done); filepath.Ext(f) != ".go" {
					continue
				}
				if tidy, err := format.Source(done); err != nil || string(tidy) != string(done) {
					t.Errorf("%s is not formatted: %v", f, err)
				}
			}
			pieces := code.FindAllStringSubmatch(text, -1)
			if len(pieces) == 0 && r.patch != "device" {
				t.Error("the section shows no code")
			}
			for _, m := range pieces {
				if !strings.Contains(all, m[1]) {
					t.Errorf("no file of the patch has\n%s", m[1])
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
			r.apply(t, c.dir)
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

var patched = regexp.MustCompile(`(?m)^diff --git a/(\S+) b/`)

// file returns where the patch is.
func (r *recipe) file(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("../examples/adding/" + r.patch + ".patch")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// files returns the files of the patch.
func (r *recipe) files(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(r.file(t))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range patched.FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	if len(all) == 0 {
		t.Fatalf("%s.patch has no files", r.patch)
	}
	return all
}

// apply applies the patch to a tree, which is no repository.
func (r *recipe) apply(t *testing.T, tree string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	x := exec.Command("git", "apply", r.file(t))
	x.Dir = tree
	x.Env = append(os.Environ(), "GIT_DIR=/dev/null")
	if out, err := x.CombinedOutput(); err != nil {
		t.Fatalf("git apply %s.patch: %v\n%s", r.patch, err, out)
	}
}

// write writes a file, and its folder.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
