package resources

import (
	"strings"
	"testing"
)

// report is the assembler's text about two kernels.
const report = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'sum_f32' for 'sm_90'
ptxas info    : Function properties for sum_f32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem, 404 bytes cmem[0]
ptxas info    : Compile time = 5.100 ms
ptxas info    : Compiling entry function 'rotary_table' for 'sm_90'
ptxas info    : Function properties for rotary_table
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 40 bytes cumulative stack size
`

const table = `ptxas 12.9.86
m rotary_table 256 - - - - 40/0/1536 -
m sum_f32 256 - - - - 32/1024/2048 -
`

func TestParse(t *testing.T) {
	t.Parallel()
	got := Parse(report)
	want := []Kernel{{Name: "sum_f32", Registers: 32, Shared: 1024}, {Name: "rotary_table", Registers: 40, Frame: 40}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestViolationsAreFound: the report passes as it is, and each planted violation is found.
func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ was, now, want string }{
		{"", "", ""},
		{"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", "8 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads", "m for sm_90: sum_f32 spills registers: 24 bytes of stores and loads"},
		{"    0 bytes stack frame", "    64 bytes stack frame", "m for sm_90: sum_f32 has a local array: a stack frame of 64 bytes"},
		{"1024 bytes smem", "65536 bytes smem", "m for sm_90: sum_f32 declares 65536 bytes of shared memory, a block may declare 49152"},
		{"1024 bytes smem", "32768 bytes smem", "m for sm_90: sum_f32 has 1536 threads resident on a multiprocessor, 2048 in the table"},
		{"Used 32 registers", "Used 33 registers", "m for sm_90: sum_f32 has 1536 threads resident on a multiprocessor, 2048 in the table"},
		{"Used 40 registers", "Used 41 registers", "m for sm_90: rotary_table has 1280 threads resident on a multiprocessor, 1536 in the table"},
		{"Used 40 registers", "Used 39 registers", ""},
		{"properties for sum_f32", "properties for product_f32", "m for sm_90: product_f32 is not in the table: run with -update"},
	} {
		if got := judge(t, strings.Replace(report, c.was, c.now, 1), 256); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q for %q: %q, want %q", c.now, c.was, got, c.want)
		}
	}
	if got := judge(t, report, 128); !strings.Contains(got, "sum_f32 has blocks of 128 threads, 256 in the table") {
		t.Errorf("other blocks: %q", got)
	}
}

// TestMoreRegistersAreFound: registers count also where as many threads stay resident.
func TestMoreRegistersAreFound(t *testing.T) {
	t.Parallel()
	text := strings.Replace(report, "Used 32 registers", "Used 30 registers", 1)
	known, err := Read(strings.Replace(table, "32/1024", "28/1024", 1))
	if err != nil {
		t.Fatal(err)
	}
	want := "m for sm_90: sum_f32 takes 30 registers, 28 in the table"
	if got := known.Judge("m", "12.9.86", Hopper, Parse(text)[0], 256); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := known.Judge("m", "13.0.1", Hopper, Parse(text)[0], 256); len(got) > 0 {
		t.Errorf("another assembler: %q", got)
	}
}

func judge(t *testing.T, text string, threads int) string {
	t.Helper()
	known, err := Read(table)
	if err != nil {
		t.Fatal(err)
	}
	var wrong []string
	for _, k := range Parse(text) {
		wrong = append(wrong, known.Judge("m", Version("Cuda compilation tools, release 12.9, V12.9.86"), Hopper, k, threads)...)
	}
	return strings.Join(wrong, "\n")
}

// TestResident: blocks are limited by threads, registers, shared memory, or their number. The registers of 168 a thread allow three
// blocks of 128 threads on every generation.
func TestResident(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gpu                        GPU
		threads, registers, shared int
		want                       int
	}{
		{Hopper, 256, 16, 0, 8}, {Hopper, 128, 168, 0, 3}, {Hopper, 128, 255, 0, 2}, {Hopper, 256, 32, 48 << 10, 4}, {Hopper, 32, 16, 0, 32},
		{Hopper, 1024, 32, 0, 2}, {Hopper, 1024, 64, 0, 1}, {GPUs[0], 256, 16, 0, 4}, {GPUs[0], 128, 168, 0, 3}, {GPUs[2], 128, 16, 40 << 10, 2}, {Hopper, 33, 16, 0, 32},
	} {
		if got := c.gpu.Resident(c.threads, c.registers, c.shared); got != c.want {
			t.Errorf("%s: %d threads, %d registers, %d bytes: %d blocks, want %d", c.gpu.Name, c.threads, c.registers, c.shared, got, c.want)
		}
	}
}

// TestCommittedTable: the table reads as it is written, and every kernel in it stays within the architecture.
func TestCommittedTable(t *testing.T) {
	t.Parallel()
	all, err := Committed()
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != committed {
		t.Error("the table is not written as it reads")
	}
	for key, row := range all.Rows {
		for on, u := range row.On {
			if u.Registers < 1 || u.Registers > 255 || u.Shared > MostShared || u.Resident < row.Threads {
				t.Errorf("%s on %s: %+v, blocks of %d threads", key, on, u, row.Threads)
			}
		}
	}
	if len(all.Rows) < 350 {
		t.Errorf("%d kernels", len(all.Rows))
	}
	if _, err := Read("m sum 256 1/2/3"); err == nil {
		t.Error("a short row is read")
	}
}

// TestThreads: a bound of a kernel is its block, and a kernel without one has the usual block.
func TestThreads(t *testing.T) {
	t.Parallel()
	const free = ".visible .entry a(\n\t.param .align 8 .b8 a_param_0[8]\n)\n{\n}\n"
	bound := strings.ReplaceAll(free, "a(", "b(")
	bound = strings.Replace(bound, ")\n{", ")\n.maxntid 32, 8, 2\n.minnctapersm 2\n{", 1)
	got, err := Threads(free + bound)
	if err != nil || len(got) != 2 || got["a"] != UsualThreads || got["b"] != 512 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Threads(".visible .entry a;"); err == nil {
		t.Error("a kernel without a body is read")
	}
}
