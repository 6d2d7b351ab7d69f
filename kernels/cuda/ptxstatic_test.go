package cuda

import (
	goflag "flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/kernels"
)

var rewrite = goflag.Bool("update", false, "rewrite testdata")

// TestParametersAreThoseOfTheHeader: each kernel of the PTX takes one parameter as large as its struct of args.h. The kernel reads the
// parameter at the struct's fields alone, by each field's kind and size.
func TestParametersAreThoseOfTheHeader(t *testing.T) {
	t.Parallel()
	entries, loads, computed := 0, 0, 0
	eachEntry(t, func(e entry, fields []field) {
		entries++
		if want := fields[len(fields)-1].offset; e.parameters != 1 || e.bytes != want {
			t.Errorf("%v has %d parameters and takes %d bytes, its struct has %d", e, e.parameters, e.bytes, want)
		}
		e.parameterLoads(func(i instruction, offset int) {
			loads++
			if offset < 0 {
				computed++
			} else if err := fits(i, offset, fields); err != nil {
				t.Errorf("%v: %v", e, err)
			}
		})
	})
	if entries < 170 || loads < 3000 || computed > loads/20 {
		t.Errorf("%d kernels, %d loads, %d of them at offsets that are computed", entries, loads, computed)
	}
}

// fits refuses a load that begins at no field, or is of another kind or size. The lower half of an i64 may be all that is used, and a
// pair of words carries the bits of any.
func fits(i instruction, offset int, fields []field) error {
	kind := i.opcode[strings.LastIndex(i.opcode, ".")+1:]
	width := map[string]int{"u64": 8, "f64": 8, "u32": 4, "s32": 4, "f32": 4}[kind]
	for n := range 1 + strings.Count(i.operands[0], ",") {
		f, ok := fieldAt(fields, offset+n*width)
		pair := strings.Contains(i.opcode, ".v2.")
		if !ok || width == 0 || width > f.bytes || width < f.bytes && f.float || !pair && f.float != strings.HasPrefix(kind, "f") {
			return fmt.Errorf("%s at %d is no field, or one of another kind: %+v", i.opcode, offset+n*width, f)
		}
	}
	return nil
}

// TestOpcodes: the PTX uses no instruction that testdata/opcodes.txt does not list, with the modules that use it. An instruction of
// newer GPUs than a module is for, or a slow one, so comes to somebody's eyes: -update takes it in.
func TestOpcodes(t *testing.T) {
	t.Parallel()
	used := map[string]map[string]bool{}
	for module, text := range ptxText().modules {
		for line := range strings.Lines(text) {
			if i, ok := instructionOf(strings.TrimSpace(line)); ok {
				if used[i.opcode] == nil {
					used[i.opcode] = map[string]bool{}
				}
				used[i.opcode][module] = true
			}
		}
	}
	var b strings.Builder
	for _, opcode := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&b, "%s: %s\n", opcode, strings.Join(slices.Sorted(maps.Keys(used[opcode])), " "))
	}
	golden := filepath.Join("testdata", "opcodes.txt")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(string(want), "\n")
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSpace(line); !slices.Contains(listed, line) {
			t.Errorf("%s does not list %q: run with -update once it is known to be right for all GPUs of the module", golden, line)
		}
	}
	if string(want) != b.String() && !t.Failed() {
		t.Errorf("%s lists instructions that no module uses: run with -update", golden)
	}
}

// cached says what is read through the cache that does not see writes of the kernel that runs (ld.global.nc), and why nothing writes
// there meanwhile.
var cached = map[string]string{
	"window image":  "X or DY of a convolution or linear layer: no output of either may lie on an input (kernels.Op.Alias)",
	"window other":  "packed weights in the workspace, which pack wrote ahead on the stream",
	"pixel image":   "X: as in window",
	"pixel other":   "DY: as in window",
	"lookup table":  "the table of numbers of bytes, which only the host writes, ahead of a run",
	"rotary_table ": "coefficients of sine and cosine, constants of the module",
}

// TestCachedLoads: every ld.global.nc reads what the table justifies, and no kernel writes through the same parameter.
func TestCachedLoads(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	eachEntry(t, func(e entry, fields []field) {
		if !slices.ContainsFunc(e.code, instruction.cached) {
			return
		}
		from := e.addresses(fields)
		written := map[string]bool{}
		for _, i := range e.code {
			if i.writes() {
				maps.Copy(written, from.of(i.operands))
			}
		}
		for _, i := range e.code {
			if i.cached() {
				key, err := justified(e, from.of(i.operands[1:]), written)
				if seen[key] = true; err != nil {
					t.Errorf("%v: %s: %v", e, i.opcode, err)
				}
			}
		}
	})
	if len(seen) != len(cached) {
		t.Errorf("the PTX reads %v, the table has %d", seen, len(cached))
	}
	for _, op := range []kernels.Op{kernels.Conv2D{}, kernels.Linear{}} {
		if aliased(op) {
			t.Errorf("%s: an output may lie on an input", op.Kind())
		}
	}
}

func (i instruction) cached() bool { return strings.HasPrefix(i.opcode, "ld.global.nc") }

func (i instruction) writes() bool {
	return slices.ContainsFunc([]string{"st.global", "red.global", "atom.global"}, func(op string) bool { return strings.HasPrefix(i.opcode, op) })
}

// justified returns the row of the table for a load from these parameters of a kernel.
func justified(e entry, read, written map[string]bool) (key string, err error) {
	if len(read) != 1 {
		return "", fmt.Errorf("it reads at an address of %v, want one parameter", read)
	}
	for name := range read {
		kernel, _, _ := strings.Cut(e.name, "_")
		if name == "" {
			kernel = e.name
		}
		key = kernel + " " + name
		if written[name] && name != "" {
			err = fmt.Errorf("the kernel writes to %s", name)
		}
	}
	if cached[key] == "" {
		err = fmt.Errorf("nothing justifies %q", key)
	}
	return key, err
}

// aliased reports whether any output of an op may lie on an input.
func aliased(op kernels.Op) bool {
	for _, p := range []kernels.Pass{kernels.Forward, kernels.Backward, kernels.BackwardInput, kernels.BackwardParams} {
		for out := range kernels.Workspace {
			for in := range kernels.Workspace {
				if op.Alias(p, kernels.Operand{Role: out}, kernels.Operand{Role: in}) {
					return true
				}
			}
		}
	}
	return false
}

// origins are the address parameters that a register may come from; "": a constant of the module.
type origins map[string]map[string]bool

// of returns the origins of all registers of operands.
func (o origins) of(operands []string) map[string]bool {
	all := map[string]bool{}
	for _, text := range operands {
		for _, r := range registersOf(text) {
			maps.Copy(all, o[r])
		}
	}
	return all
}

// addresses follows address parameters through registers of 64 bits, until nothing changes.
func (e entry) addresses(fields []field) origins {
	from := origins{}
	put := func(to string, names map[string]bool) (changed bool) {
		for _, r := range registersOf(to) {
			if len(names) == 0 || !strings.HasPrefix(r, "%rd") {
				continue
			}
			if from[r] == nil {
				from[r] = map[string]bool{}
			}
			before := len(from[r])
			maps.Copy(from[r], names)
			changed = changed || len(from[r]) > before
		}
		return changed
	}
	e.parameterLoads(func(i instruction, offset int) {
		if f, ok := fieldAt(fields, offset); ok && f.address {
			put(i.operands[0], map[string]bool{f.name: true})
		}
	})
	for changed := true; changed; {
		changed = false
		for _, i := range e.code {
			if len(i.operands) < 2 || strings.HasPrefix(i.opcode, "ld.") || strings.HasPrefix(i.opcode, "st.") {
				continue
			}
			names := from.of(i.operands[1:])
			if i.opcode == "mov.u64" && strings.HasPrefix(i.operands[1], "__cudart") {
				names = map[string]bool{"": true}
			}
			changed = put(i.operands[0], names) || changed
		}
	}
	return from
}
