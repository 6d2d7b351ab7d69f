// Package sources knows the CUDA sources of kernels/cuda: which are modules, what they are compiled for, and their hash.
package sources

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Set is the sources by file name.
type Set map[string]string

// HashFile is the file beside the PTX that has the hash of each module that it was compiled from.
const HashFile = "sources.sha256"

// PTXVersion is the version of the PTX that modules compile to: drivers of CUDA 12.0 accept it.
const PTXVersion = "8.0"

// Read reads all sources of a folder.
func Read(from fs.FS) (Set, error) {
	s := Set{}
	for _, pattern := range []string{"*.cu", "*.cuh", "*.h"} {
		names, err := fs.Glob(from, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := fs.ReadFile(from, name)
			if err != nil {
				return nil, err
			}
			s[name] = string(text)
		}
	}
	if len(s.Modules()) == 0 {
		return nil, fmt.Errorf("there are no CUDA sources in %v", from)
	}
	return s, nil
}

// Modules returns the names of the modules, a .cu file each, in order.
func (s Set) Modules() (names []string) {
	for name := range s {
		if path.Ext(name) == ".cu" {
			names = append(names, strings.TrimSuffix(name, ".cu"))
		}
	}
	slices.Sort(names)
	return names
}

// Headers returns the headers that modules include.
func (s Set) Headers() map[string]string {
	h := maps.Clone(s)
	maps.DeleteFunc(h, func(name, _ string) bool { return path.Ext(name) == ".cu" })
	return h
}

// Hash identifies a module: its source, the headers, and what it is compiled for.
func (s Set) Hash(module string) string {
	h := sha256.New()
	add := func(name, text string) { fmt.Fprintf(h, "%s %s %d\n%s\n", name, Architecture(name), len(text), text) }
	add(module+".cu", s[module+".cu"])
	headers := s.Headers()
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		add(name, headers[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Stale returns the modules whose hashes differ from those of a hash file.
func (s Set) Stale(file string) []string {
	lines := strings.Split(file, "\n")
	return slices.DeleteFunc(s.Modules(), func(name string) bool { return slices.Contains(lines, s.line(name)) })
}

// Hashes returns the hash file of the modules, but for those that are stale.
func (s Set) Hashes(stale []string) string {
	var file strings.Builder
	for _, name := range s.Modules() {
		if !slices.Contains(stale, name) {
			file.WriteString(s.line(name) + "\n")
		}
	}
	return file.String()
}

func (s Set) line(module string) string { return s.Hash(module) + "  " + module }

// Architecture returns the architecture that a module is compiled for: the oldest with all instructions of the module.
func Architecture(module string) string {
	switch strings.TrimSuffix(module, ".cu") {
	case "mma", "flashforward", "flashbackward", "flashanyforward", "flashanybackward":
		return "compute_80"
	case "wgmma":
		return "compute_90a"
	}
	return "compute_75"
}

// Options returns how NVRTC compiles a module. One whose text defines NO_CONTRACTION has its arithmetic as written; the emulator's
// build.sh reads the same line.
func (s Set) Options(module string) []string {
	if strings.Contains(s[module+".cu"], "\n#define NO_CONTRACTION\n") {
		return []string{"--fmad=false"}
	}
	return nil
}
