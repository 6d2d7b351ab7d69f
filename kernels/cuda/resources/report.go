// Package resources holds what a multiprocessor gives to each CUDA kernel: the registers and the shared memory that NVIDIA's assembler
// reports, and the number of blocks that fit at once.
//
// The table in resources.txt has a row a kernel. `make test-ptxas` compares it with the assembler's reports, and
// `go test ./kernels/cuda -run PTXAssembles -update` writes it.
package resources

import (
	"fmt"
	"regexp"
	"strconv"
)

// Kernel has the figures that the assembler reports about one kernel. Sizes are bytes.
type Kernel struct {
	Name      string
	Registers int // of a thread
	Shared    int // that a block declares
	Frame     int // of a thread's local memory
	Spilled   int // stores and loads of registers in local memory
}

var (
	reportOf   = regexp.MustCompile(`Function properties for (\w+)\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n.*Used (\d+) registers(.*)`)
	sharedOf   = regexp.MustCompile(`(\d+) bytes smem`)
	boundsOf   = regexp.MustCompile(`\.visible \.entry (\w+)\(\n[^{]*?\n\)\n(?:\.maxntid (\d+), (\d+), (\d+)\n)?`)
	versionOf  = regexp.MustCompile(`release \S+, V(\S+)`)
	declaredOf = regexp.MustCompile(`(?m)^\.visible \.entry `)
)

// Parse reads the assembler's verbose report of a module.
func Parse(report string) (all []Kernel) {
	for _, m := range reportOf.FindAllStringSubmatch(report, -1) {
		k := Kernel{Name: m[1], Frame: number(m[2]), Spilled: number(m[3]) + number(m[4]), Registers: number(m[5])}
		if shared := sharedOf.FindStringSubmatch(m[6]); shared != nil {
			k.Shared = number(shared[1])
		}
		all = append(all, k)
	}
	return all
}

// Version reads the version of the assembler from what it says of itself; "" when it says none.
func Version(text string) string {
	if m := versionOf.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// UsualThreads is the size of a block of a kernel that states no bound.
const UsualThreads = 256

// Threads reads the threads of a block of each kernel of a module from its PTX.
func Threads(ptx string) (map[string]int, error) {
	threads := map[string]int{}
	for _, m := range boundsOf.FindAllStringSubmatch(ptx, -1) {
		threads[m[1]] = UsualThreads
		if m[2] != "" {
			threads[m[1]] = number(m[2]) * number(m[3]) * number(m[4])
		}
	}
	if declared := len(declaredOf.FindAllString(ptx, -1)); declared != len(threads) {
		return nil, fmt.Errorf("the PTX declares %d kernels, the bounds of %d were read", declared, len(threads))
	}
	return threads, nil
}

// number reads digits that a pattern has matched.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
