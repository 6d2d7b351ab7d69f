package resources

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed resources.txt
var committed string

// Usage has the resources that a kernel takes on one generation.
type Usage struct {
	Registers int // of a thread
	Shared    int // bytes that a block declares
	Resident  int // threads on a multiprocessor, before the shared memory that a launch adds
}

// Row is a kernel of the table.
type Row struct {
	Threads int              // of a block
	On      map[string]Usage // by the name of the generation
}

// Table is the kernels by module and name, with the version of the assembler that reported them.
type Table struct {
	Version string
	Rows    map[string]Row
}

// Committed returns the table of this version.
func Committed() (*Table, error) { return Read(committed) }

const titles = "# An assembler's report of each kernel: threads of a block; registers, declared bytes of shared memory and resident threads on"

// Read reads a table.
func Read(text string) (*Table, error) {
	t := &Table{Rows: map[string]Row{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if version, ok := strings.CutPrefix(line, "ptxas "); ok {
			t.Version = version
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 3+len(GPUs) {
			return nil, fmt.Errorf("the table of resources has %d words, want %d: %q", len(words), 3+len(GPUs), line)
		}
		row := Row{Threads: number(words[2]), On: map[string]Usage{}}
		for i, g := range GPUs {
			var u Usage
			if n, _ := fmt.Sscanf(words[3+i], "%d/%d/%d", &u.Registers, &u.Shared, &u.Resident); n == 3 {
				row.On[g.Name] = u
			}
		}
		t.Rows[words[0]+" "+words[1]] = row
	}
	return t, nil
}

// String returns the text that Read reads.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", titles)
	for _, g := range GPUs {
		fmt.Fprintf(&b, " %s", g.Name)
	}
	fmt.Fprintf(&b, "\nptxas %s\n", t.Version)
	for _, key := range slices.Sorted(maps.Keys(t.Rows)) {
		row := t.Rows[key]
		fmt.Fprintf(&b, "%s %d", key, row.Threads)
		for _, g := range GPUs {
			if u, ok := row.On[g.Name]; ok {
				fmt.Fprintf(&b, " %d/%d/%d", u.Registers, u.Shared, u.Resident)
			} else {
				b.WriteString(" -")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Add notes a kernel's report.
func (t *Table) Add(module string, g GPU, k Kernel, threads int) {
	key := module + " " + k.Name
	if _, known := t.Rows[key]; !known {
		t.Rows[key] = Row{Threads: threads, On: map[string]Usage{}}
	}
	t.Rows[key].On[g.Name] = g.usage(k, threads)
}

func (g GPU) usage(k Kernel, threads int) Usage {
	return Usage{k.Registers, k.Shared, threads * g.Resident(threads, k.Registers, k.Shared)}
}

// MostShared is the shared memory that a block may declare, in bytes.
const MostShared = 48 << 10

// framed are kernels with a local array that is no spill: the double cosine reduces large angles in it.
var framed = map[string]bool{"rotary_table": true}

// Judge returns one text for each fault of a kernel: a spill, a local array, too much shared memory, or more than the table allows. The table is
// asked only where the same version of the assembler reports.
func (t *Table) Judge(module, version string, g GPU, k Kernel, threads int) (wrong []string) {
	say := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s for %s: %s ", module, g.Name, k.Name)+fmt.Sprintf(format, args...))
	}
	if k.Spilled > 0 {
		say("spills registers: %d bytes of stores and loads", k.Spilled)
	}
	if k.Frame > 0 && !framed[k.Name] {
		say("has a local array: a stack frame of %d bytes", k.Frame)
	}
	if k.Shared > MostShared {
		say("declares %d bytes of shared memory, a block may declare %d", k.Shared, MostShared)
	}
	row, known := t.Rows[module+" "+k.Name]
	allowed, assembled := row.On[g.Name]
	switch has := g.usage(k, threads); {
	case version != t.Version:
	case !known || !assembled:
		say("is not in the table: run with -update")
	case threads != row.Threads:
		say("has blocks of %d threads, %d in the table", threads, row.Threads)
	case has.Resident < allowed.Resident:
		say("has %d threads resident on a multiprocessor, %d in the table", has.Resident, allowed.Resident)
	case has.Registers > allowed.Registers:
		say("takes %d registers, %d in the table", has.Registers, allowed.Registers)
	}
	return wrong
}
