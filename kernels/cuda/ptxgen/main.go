//go:build cuda && linux && amd64

// Ptxgen compiles the modules of kernels/cuda/src that have changed to PTX in kernels/cuda/ptx: `make kernels`.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"plimsoll/kernels/cuda/nvrtc"
	"plimsoll/kernels/cuda/sources"
)

// newest is the last version whose output was tried as PTX of an older one; see relabel.
var newest = [2]int{12, 6}

func main() {
	library := flag.String("nvrtc", "libnvrtc.so.12", "NVRTC's library, of CUDA 12.6 at most")
	source := flag.String("src", "kernels/cuda/src", "the sources")
	out := flag.String("out", "kernels/cuda/ptx", "where the PTX goes")
	flag.Parse()
	if err := generate(*library, *source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "ptxgen:", err)
		os.Exit(1)
	}
}

func generate(library, source, out string) error {
	c, err := nvrtc.Load(library)
	if err != nil {
		return err
	}
	if c.Major > newest[0] || c.Major == newest[0] && c.Minor > newest[1] {
		return fmt.Errorf("%s is NVRTC %d.%d; take %d.%d or older, whose PTX older drivers are known to accept", library, c.Major, c.Minor, newest[0], newest[1])
	}
	all, err := sources.Read(os.DirFS(source))
	if err != nil {
		return err
	}
	hashes := filepath.Join(out, sources.HashFile)
	old, err := os.ReadFile(hashes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for stale := all.Stale(string(old)); len(stale) > 0; stale = stale[1:] {
		if err := compile(c, all, stale[0], out); err != nil {
			return err
		}
		if err := os.WriteFile(hashes, []byte(all.Hashes(stale[1:])), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile writes the PTX of a module.
func compile(c *nvrtc.Compiler, all sources.Set, name, out string) error {
	source, start := nvrtc.Source{Name: name + ".cu", Text: all[name+".cu"], Headers: all.Headers()}, time.Now()
	ptx, err := c.PTX(source, sources.Architecture(name), all.Options(name)...)
	if err != nil {
		return err
	}
	fmt.Printf("%s.ptx in %.1f s\n", name, time.Since(start).Seconds())
	file, err := sources.CompressPTX(relabel(tidy(ptx)))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, sources.PTXFile(name)), file, 0o644)
}

// relabel makes PTX 8.0 of it, which drivers of CUDA 12.0 take. Newer compilers only add a pragma that says which bytes of
// a load are used. The ptxas of CUDA 12.0 takes it, and would refuse an instruction that 8.0 lacks.
func relabel(ptx []byte) []byte {
	ptx = regexp.MustCompile(`(?m)^\s*\.pragma "used_bytes_mask \d+";\n`).ReplaceAll(ptx, nil)
	return regexp.MustCompile(`(?m)^\.version \d+\.\d+$`).ReplaceAll(ptx, []byte(".version "+sources.PTXVersion))
}

// tidy drops blank lines and comments, which are most of what changes from one compiler to the next.
func tidy(ptx []byte) []byte {
	var lines []string
	for line := range strings.Lines(string(ptx)) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "//") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}
