package cpu

// #include "job.h"
import "C"

import (
	"fmt"
	"os"
	"strings"
)

// Path is an instruction set that all kernels are compiled for. Paths give the same bits in everything but products in float32
// (Conv2D, Linear, Attention): there AVX2 and AVX-512 agree, and the plain path, which rounds twice, differs. In bfloat16 all paths agree.
type Path int

const (
	Plain  Path = C.PLAIN
	AVX2   Path = C.AVX2
	AVX512 Path = C.AVX512
)

var pathNames = [...]string{Plain: "plain", AVX2: "avx2", AVX512: "avx512"}

func (p Path) String() string {
	if p < 0 || int(p) >= len(pathNames) {
		return fmt.Sprintf("path(%d)", int(p))
	}
	return pathNames[p]
}

// Paths returns the paths that this machine has, the fastest last.
func Paths() []Path {
	var have []Path
	for p := Plain; p < C.PATHS; p++ {
		if C.plimsoll_has(C.int32_t(p)) != 0 {
			have = append(have, p)
		}
	}
	return have
}

// PathVariable names the environment variable that forces a path by its name.
const PathVariable = "PLIMSOLL_CPU_PATH"

// choosePath returns the path called name, the variable's when name is empty, the fastest when that is empty too.
func choosePath(name string) (Path, error) {
	if name == "" {
		name = os.Getenv(PathVariable)
	}
	have := Paths()
	if name == "" {
		return have[len(have)-1], nil
	}
	for _, p := range have {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("%w %q: this machine has %s", ErrPath, name, strings.Trim(fmt.Sprint(have), "[]"))
}
