//go:build cgo

// Command peers times our code and its peers in turns, in one run, and prints one markdown table of medians and ratios. It compares our CPU
// kernels with OpenBLAS, oneDNN and PyTorch, our reader of pictures with Pillow, and bfloat16 with float32. The peers are separate
// processes; nothing of them is linked.
//
//	peers -onednn BIN -sgemm BIN -python PYTHON [-scripts src] [-only sgemm|conv|attention|jpeg|step|gpt2|bf16] [-threads 1,2]
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
	onednn, sgemm, python, scripts, only string
	threads                              []int
	batches                              []sequences
	rounds                               int
}

func main() {
	o, threads, batches := options{}, "", ""
	flag.StringVar(&o.onednn, "onednn", "", "built from onednn.cc")
	flag.StringVar(&o.sgemm, "sgemm", "", "built from sgemm.c")
	flag.StringVar(&o.python, "python", "", "Python with torch and torchvision")
	flag.StringVar(&o.scripts, "scripts", "peers/src", "folder of the scripts that time PyTorch and Pillow")
	flag.StringVar(&batches, "batches", "4x64,4x1024", "batches of GPT-2, sequences and their tokens")
	flag.StringVar(&o.only, "only", "", "one part alone: sgemm, conv, attention, jpeg, step, or gpt2 or bf16, which run in no other way")
	flag.StringVar(&threads, "threads", "1,2", "numbers of threads")
	flag.IntVar(&o.rounds, "rounds", 5, "turns of each side; medians count")
	flag.Parse()
	var err error
	if o.threads, err = list("-threads", threads, readThreads); err == nil {
		o.batches, err = list("-batches", batches, readSequences)
	}
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// list reads a list of a flag.
func list[T any](flag, text string, read func(string) (T, error)) (all []T, err error) {
	for _, s := range strings.Split(text, ",") {
		x, err := read(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = append(all, x)
	}
	return all, nil
}

func readThreads(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number of threads", text)
	}
	return n, nil
}

func run(o options) error {
	fmt.Printf("CPU: %s, %d cores. Medians of %d turns; ratio = median over the turns of peer's time / ours: above 1 we are faster.\n", cpuid.CPU.BrandName, cpuid.CPU.LogicalCores, o.rounds)
	parts := []struct {
		name  string
		peer  string
		alone bool // it is run when it is asked for
		run   func(options) error
	}{
		{"sgemm", o.sgemm, false, compareSGEMM}, {"conv", o.onednn, false, compareConv}, {"attention", o.python, false, compareAttention},
		{"jpeg", o.python, false, compareJPEG}, {"step", o.python, false, compareStep}, {"gpt2", o.python, true, compareGPT2}, {"bf16", "ourselves", true, compareBF16},
	}
	for _, p := range parts {
		if p.peer == "" || (o.only != "" && o.only != p.name) || (o.only == "" && p.alone) {
			continue
		}
		if err := p.run(o); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
