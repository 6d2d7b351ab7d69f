//go:build cgo

// Command exported compares models that are read from .pt2 archives and ONNX files with the PyTorch models that were exported. Both
// have the same weights, images and labels; the losses of three steps of gradient descent are compared.
//
//	exported FOLDER...
//	exported -step RATE -weights FILE FOLDER
//
// Folders are those that bench/research/peers/src/torch_export.py writes. It prints one row of a table for each, and ends with 1 if a loss differs
// by more than 1e-4 of it. With -weights it takes one step and writes the weights, from which torch_gradients.py has the gradient.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	rate := flag.Float64("step", 1, "the rate of the step of -weights")
	weights := flag.String("weights", "", "take one step, and write the weights to this `file`")
	flag.Parse()
	if flag.NArg() < 1 || *weights != "" && flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "exported: give folders that torch_export.py has written, and with -weights one")
		os.Exit(2)
	}
	if *weights != "" {
		if err := writeStepped(flag.Arg(0), *weights, float32(*rate)); err != nil {
			fmt.Fprintln(os.Stderr, "exported:", flag.Arg(0)+":", err)
			os.Exit(1)
		}
		return
	}
	fmt.Println("| model | parameters | layers | image | batch | first loss | last | losses differ by at most |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	failed := false
	for _, folder := range flag.Args() {
		r, err := compare(folder)
		if err == nil {
			fmt.Println(r)
			err = r.check()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "exported:", folder+":", err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
