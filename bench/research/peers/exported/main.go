//go:build cgo

// Command exported compares models that are read from .pt2 archives and ONNX files with the PyTorch models that were exported: the same
// weights, images and labels; the losses of three steps of gradient descent.
//
//	exported FOLDER...
//
// Folders are those that bench/research/peers/src/torch_export.py writes. It prints one row of a table for each, and ends with 1 if a loss differs
// by more than 1e-4 of it.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "exported: give folders that torch_export.py has written")
		os.Exit(2)
	}
	fmt.Println("| model | parameters | layers | image | batch | first loss | last | losses differ by at most |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	failed := false
	for _, folder := range os.Args[1:] {
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
