//go:build cgo

// Command peers times our CPU kernels beside OpenBLAS, oneDNN and PyTorch, in turns, in one run, and prints one
// markdown table of medians and ratios. The peers are separate processes; nothing of them is linked.
//
//	peers -onednn BIN -sgemm BIN -python PYTHON -step src/torch_step.py [-only sgemm|conv|attention|step] [-threads 1,2]
//
// See README.md in this folder.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

type options struct {
	onednn, sgemm, python, step, attention, only string
	threads                                      []int
	rounds                                       int
}

func main() {
	o, threads := options{}, ""
	flag.StringVar(&o.onednn, "onednn", "", "built from onednn.cc")
	flag.StringVar(&o.sgemm, "sgemm", "", "built from sgemm.c")
	flag.StringVar(&o.python, "python", "", "Python with torch and torchvision")
	flag.StringVar(&o.step, "step", "bench/peers/src/torch_step.py", "the script that times PyTorch")
	flag.StringVar(&o.attention, "attention", "bench/peers/src/torch_attention.py", "the script that times its attention")
	flag.StringVar(&o.only, "only", "", "one part alone: sgemm, conv, attention or step")
	flag.StringVar(&threads, "threads", "1,2", "numbers of threads")
	flag.IntVar(&o.rounds, "rounds", 5, "turns of each side; medians count")
	flag.Parse()
	if err := run(o, threads); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(o options, threads string) error {
	for _, s := range strings.Split(threads, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("-threads: %q is not a number of threads", s)
		}
		o.threads = append(o.threads, n)
	}
	fmt.Printf("CPU: %s, %d cores. Medians of %d turns; ratio = median over the turns of peer's time / ours: above 1 we are faster.\n", cpuid.CPU.BrandName, cpuid.CPU.LogicalCores, o.rounds)
	parts := []struct {
		name string
		bin  string
		run  func(options) error
	}{{"sgemm", o.sgemm, compareSGEMM}, {"conv", o.onednn, compareConv}, {"attention", o.python, compareAttention}, {"step", o.python, compareStep}}
	for _, p := range parts {
		if p.bin == "" || (o.only != "" && o.only != p.name) {
			continue
		}
		if err := p.run(o); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
