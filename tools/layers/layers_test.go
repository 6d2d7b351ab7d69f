package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module writes a module of files (text by path, without the package clause) into a temporary folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, "go.mod", "module m\n\ngo 1.26\n")
	for path, text := range files {
		write(t, root, path, "package "+filepath.Base(filepath.Dir("p/"+path))+"\n\n"+text+"\n")
	}
	return root
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	file := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Arrows go to the files that declare what is named; circles and the arrows back are those that were drawn.
func TestCircles(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, a, b, c, arrows, circles, back string }{
		{name: "layers", a: "func a() { b(); c() }", b: "func b() { c() }", c: "func c() {}", arrows: "a>b a>c b>c"},
		{name: "locals and names of other packages", a: "func a() { b := max(1, 2); _ = b }", b: "func b() {}\n\ntype max2 int", c: "type c struct{ a int }"},
		{name: "constants and variables", a: "const x = y", b: "const y = 1\n\nvar v = w", c: "var w = x", arrows: "a>b b>c c>a", circles: "abc", back: "b>c"},
		{name: "types", a: "type x []y", b: "type y map[string]*x", arrows: "a>b b>a", circles: "ab", back: "a>b"},
		{name: "a method in another file", a: "type x int\n\nfunc a(v x) { v.run() }", b: "func (v x) run() {}", arrows: "a>b b>a", circles: "ab", back: "a>b"},
		{name: "a method of a pointer to a generic type", a: "type x[T any] struct{ v T }\n\nfunc a(v x[int]) { v.run() }", b: "func (v *x[T]) run() {}", arrows: "a>b b>a", circles: "ab", back: "a>b"},
		{name: "a method of an interface", a: "type x interface{ run() }\n\nfunc a(v x) { v.run() }", b: "type y int\n\nfunc (y) run() {}", c: "var v x = y(1)", arrows: "c>a c>b"},
		{name: "a field", a: "func a() { _ = b().v }", b: "func b() c { return c{} }", c: "type c struct{ v int }", arrows: "a>b a>c b>c"},
		{name: "a field of a generic type", a: "func a() int { return b().v }", b: "func b() c[int] { return c[int]{} }", c: "type c[T any] struct{ v T }", arrows: "a>b a>c b>c"},
		{name: "an embedded type's field", a: "func a(v b) int { return v.x }", b: "type b struct{ c }", c: "type c struct{ x int }", arrows: "a>b a>c b>c"},
		{name: "a key of a literal", a: "var a = b{v: 1}", b: "type b = c", c: "type c struct{ v int }", arrows: "a>b a>c b>c"},
		{name: "all use all", a: "func a() { b(); c() }", b: "func b() { a(); c() }", c: "func c() { a(); b() }", arrows: "a>b a>c b>a b>c c>a c>b", circles: "abc", back: "a>b a>c b>c"},
		{name: "one arrow in two circles", a: "func a() { b() }", b: "func b() { a(); c() }", c: "func c() { a() }", arrows: "a>b b>a b>c c>a", circles: "abc", back: "a>b"},
		{name: "names of C", a: "// typedef int word;\nimport \"C\"\n\nfunc a(v C.word) { b(int(v)) }", b: "func b(int) {}", arrows: "a>b"},
	}
	files := map[string]string{}
	for i, c := range cases {
		for name, text := range map[string]string{"a": c.a, "b": c.b, "c": c.c, "a_test": "var t = b"} {
			files[fmt.Sprintf("p%d/%s.go", i, name)] = text
		}
	}
	folders, err := load(module(t, files))
	if err != nil || len(folders) != len(cases) {
		t.Fatalf("%d packages, %v", len(folders), err)
	}
	for i, c := range cases {
		f := named(folders, fmt.Sprintf("p%d", i))
		var circles []string
		for _, circle := range f.circles() {
			circles = append(circles, strings.ReplaceAll(strings.ReplaceAll(f.names(circle), ".go", ""), " ", ""))
		}
		all := slices.Collect(maps.Keys(f.arrows))
		if got := short(f, all); got != c.arrows {
			t.Errorf("%s: arrows %s, want %s", c.name, got, c.arrows)
		}
		if got := strings.Join(circles, " "); got != c.circles {
			t.Errorf("%s: circles %s, want %s", c.name, got, c.circles)
		}
		if got := short(f, f.back()); got != c.back {
			t.Errorf("%s: back %s, want %s", c.name, got, c.back)
		}
	}
}

// short writes arrows as "a>b", sorted.
func short(f *folder, arrows []arrow) string {
	var words []string
	for _, a := range arrows {
		words = append(words, strings.NewReplacer(".go", "", " -> ", ">").Replace(f.name(a)))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// A package that does not type-check is not measured.
func TestLoadRefusesFaults(t *testing.T) {
	t.Parallel()
	if _, err := load(module(t, map[string]string{"p/a.go": "var a = b"})); err == nil || !strings.Contains(err.Error(), "undefined: b") {
		t.Errorf("error %v", err)
	}
}

// No order of few files has fewer arrows back than exact finds, and search finds as few.
func TestFewestArrowsBack(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	tried := 0
	for n := 2; n <= 12; n++ {
		for range 20 {
			g := graph{make([][]int, n)}
			for i := range n {
				g.uses[i] = make([]int, n)
				for j := range n {
					if i != j && random.IntN(3) == 0 {
						g.uses[i][j] = 1
					}
				}
			}
			exact := g.back(g.exact())
			if n <= 6 {
				if want := fewest(g, nil); exact != want {
					t.Errorf("%v: exact has %d arrows back, the best order %d", g, exact, want)
				}
			}
			if found := g.back(g.search()); found != exact {
				t.Errorf("%v: search has %d arrows back, exact %d", g, found, exact)
			}
			tried++
		}
	}
	if tried != 220 {
		t.Errorf("%d circles tried", tried)
	}
}

// fewest tries all orders that begin with some files.
func fewest(g graph, order []int) int {
	if len(order) == len(g.uses) {
		return g.back(order)
	}
	least := len(g.uses) * len(g.uses)
	for v := range g.uses {
		if !slices.Contains(order, v) {
			least = min(least, fewest(g, append(slices.Clone(order), v)))
		}
	}
	return least
}

// Where the best order of a circle too large for exact is known, search finds it, the same one in every run. It is known of a ring, and of
// layers in which some pairs of files use each other: one arrow of each pair runs back.
func TestLargeCircles(t *testing.T) {
	t.Parallel()
	const n = 60
	random := rand.New(rand.NewPCG(5, 6))
	names := random.Perm(n)
	ring, layers := graph{make([][]int, n)}, graph{make([][]int, n)}
	for i := range n {
		ring.uses[i], layers.uses[i] = make([]int, n), make([]int, n)
	}
	pairs := 0
	for i, high := range names {
		ring.uses[high][names[(i+1)%n]] = 1
		for _, low := range names[:i] {
			if random.IntN(6) == 0 {
				layers.uses[high][low] = 1
				layers.uses[low][high] = random.IntN(5) / 4
				pairs += layers.uses[low][high]
			}
		}
	}
	for want, g := range map[int]graph{1: ring, pairs: layers} {
		order := g.search()
		if got := g.back(order); got != want || pairs < 20 {
			t.Errorf("%d arrows back, want %d", got, want)
		}
		if !slices.Equal(order, g.search()) {
			t.Errorf("another order of %d arrows back in a second run", want)
		}
	}
}

// Types of 41 methods, structs of 21 fields and lengths of functions are counted; one less of either needs no baseline.
func TestSizes(t *testing.T) {
	t.Parallel()
	methods, fields := "type t struct{ t2 }\n\ntype t2 int\n\n", "type s struct {\n\tt\n\ta, b int\n"
	for i := range 41 {
		methods += fmt.Sprintf("func (x *t) m%d() {}\n\n", i)
	}
	for i := range 40 {
		methods += fmt.Sprintf("func (x t2) n%d() {\n}\n\n", i)
	}
	for i := range 18 {
		fields += fmt.Sprintf("\tf%d int\n", i)
	}
	root := module(t, map[string]string{
		"p/a.go":      methods,
		"p/b.go":      fields + "}\n\n" + strings.Replace(fields, "type s struct {\n\tt\n", "type s2 struct {\n", 1) + "}",
		"p/sub/c.go":  "func c() {\n\t_ = 1\n}",
		"c_test.go":   "var c int",
		"p/c_test.go": "var c int",
	})
	write(t, root, "q/go.mod", "module q\n")
	write(t, root, "q/q.go", "package q\n\n\n")
	write(t, root, "p/testdata/x.go", "package x\n\n\n")
	folders, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := linesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	got := words(figuresOf(folders, lines).write())
	want := "./... lines 260|functions max 3 p50 1 p90 2|p.s fields 21|p.t methods 41|p/... lines 260 |"
	if got != want {
		t.Errorf("figures %s, want %s", got, want)
	}
}

// words returns the lines of a baseline without its heading and its columns.
func words(text []byte) string {
	lines := strings.ReplaceAll(strings.TrimPrefix(string(text), heading), "\n", " | ")
	return strings.ReplaceAll(strings.Join(strings.Fields(lines), " "), " | ", "|")
}

// The check names each figure that grows, with the circle's files and the new arrow. Flag -update writes smaller figures and no larger
// ones; -raise writes all.
func TestBaseline(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"p/a.go": "func a() { b() }", "p/b.go": "func b() { a() }", "p/c.go": "func c() {}", "p/d.go": "func d() { c() }",
	})
	write(t, root, "tools/layers/none", "")
	try := func(check, update, raise bool, wants ...string) {
		t.Helper()
		var out strings.Builder
		if err := run(&out, root, "", check, update, raise); err != nil {
			fmt.Fprintln(&out, err)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q lacks %q", out.String(), want)
			}
		}
		if len(wants) == 0 && out.String() != "" {
			t.Errorf("output %q", out.String())
		}
	}
	baseline := func(want string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, baselineFile))
		if got := words(text); err != nil || got != want {
			t.Errorf("baseline %q, %v, want %q", got, err, want)
		}
	}
	try(true, false, false, "baseline.txt")
	try(false, true, false, "baseline.txt")
	try(false, true, true)
	first := "./... lines 500|functions max 1 p50 1 p90 1|p back 1 circle 2|p/... lines 500 |"
	baseline(first)
	try(true, false, false)
	history := commit(t, root)

	write(t, root, "p/c.go", "package p\n\nfunc c() { a(); d() }\n")
	write(t, root, "p/d.go", "package p\n\nfunc d() {\n\tc()\n}\n")
	wants := []string{"functions: max 3, 1 in the baseline\n  p/d.go:3 d has 3 lines\n", "p: back 2, 1 in the baseline\n", "circle: a.go b.go\n", "circle: c.go d.go\n", "3 figures are above"}
	if history {
		wants = append(wants, "new: c.go -> d.go (c.go:3 uses d)")
	}
	try(true, false, false, wants...)
	try(false, true, false, "3 figures are above")
	baseline(first)
	write(t, root, "p/b.go", "package p\n\nfunc b() { a(); c() }\n")
	write(t, root, "p/c.go", "package p\n\nfunc c() { a() }\n")
	write(t, root, "p/d.go", "package p\n\nfunc d() { c() }\n")
	wants = []string{"p: circle 3, 2 in the baseline\n  circle: a.go b.go c.go\n", "1 figures are above"}
	if history {
		wants = append(wants, "  new: b.go -> c.go (b.go:3 uses c)\n  new: c.go -> a.go (c.go:3 uses a)\n")
	}
	try(true, false, false, wants...)
	var circles strings.Builder
	if err := run(&circles, root, "./p/", false, false, false); err != nil || circles.String() != explained {
		t.Errorf("circles %q, %v, want %q", circles.String(), err, explained)
	}
	if err := run(&circles, root, "none", false, false, false); err == nil || !strings.Contains(err.Error(), "no package of the module lies in none") {
		t.Errorf("error %v", err)
	}
	try(false, true, true)
	baseline(strings.Replace(first, "circle 2", "circle 3", 1))

	write(t, root, "p/b.go", "package p\n\nfunc b() {}\n")
	try(true, false, false, "layers: figures are below the baseline: lower it")
	try(false, true, false)
	baseline("./... lines 500|functions max 1 p50 1 p90 1|p/... lines 500 |")
	try(true, false, false)
}

const explained = `circle of 3 files, 4 arrows, 1 of them back, the highest file first: b.go c.go a.go
  back: a.go -> b.go (a.go:3 uses b)
  down: b.go -> a.go (b.go:3 uses a)
  down: b.go -> c.go (b.go:3 uses c)
  down: c.go -> a.go (c.go:3 uses a)
`

// commit puts the files into a repository, where git is.
func commit(t *testing.T, root string) bool {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		return false
	}
	for _, arguments := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"}} {
		cmd := exec.Command("git", arguments...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	return true
}

// A baseline with a name and no number is refused with its line.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, text := range []string{"p circle", "p circle two", "p circle 2 back"} {
		write(t, root, "b", "# heading\n\n"+text+"\n")
		if _, err := read(filepath.Join(root, "b")); err == nil || !strings.Contains(err.Error(), "b:3: ") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
