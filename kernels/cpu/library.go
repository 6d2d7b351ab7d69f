package cpu

// #include "job.h"
import "C"

import (
	"fmt"

	"plimsoll/internal/cores"
	"plimsoll/runtime"
)

// Memory gives the bytes of a device's spans; runtime/host's Device is one.
type Memory interface {
	Bytes(s runtime.Span) ([]byte, error)
}

// Options of a library. The zero value is the fastest path on all cores.
type Options struct {
	Threads int    // workers, the caller included; 0: cores.Count. Libraries with equal options share their workers
	Path    string // "plain", "avx2", "avx512"; "": the environment's PLIMSOLL_CPU_PATH, or the fastest
	// Apart takes none of the workers of libraries without it, so that both can compute at the same time.
	Apart bool
	// Subnormals computes with subnormal numbers, as GPUs do, and not with zeros in their place.
	Subnormals bool
}

// MaxThreads bounds Options.Threads.
const MaxThreads = 1024

// Library implements kernels.Library.
type Library struct {
	memory Memory
	path   Path
	dot    bool // the path and the processor have AVX512-BF16
	pool   *pool
}

// New returns the library for memory; nil will do for Workspace.
func New(memory Memory, o Options) (*Library, error) {
	path, err := choosePath(o.Path)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	if o.Threads < 0 || o.Threads > MaxThreads {
		return nil, fmt.Errorf("cpu: %w: %d is not from 0 (all cores) to %d", ErrThreads, o.Threads, MaxThreads)
	}
	if o.Threads == 0 {
		o.Threads = min(cores.Count(), MaxThreads)
	}
	pool, err := sharedPool(workers{o.Threads, o.Apart, o.Subnormals})
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	return &Library{memory: memory, path: path, dot: path == AVX512 && C.plimsoll_has(C.HALVES) != 0, pool: pool}, nil
}

// Name implements kernels.Library: "cpu/avx512".
func (l *Library) Name() string { return "cpu/" + l.path.String() }

// Path returns the instruction set in use.
func (l *Library) Path() Path { return l.path }

// Threads returns the number of workers.
func (l *Library) Threads() int { return l.pool.threads }
