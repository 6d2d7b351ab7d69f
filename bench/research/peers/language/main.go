//go:build cgo

// Command language compares our language models with PyTorch's. Both have the same weights, in files with Hugging Face's names, and
// tokens. The losses of ten steps of gradient descent, and the gradients of all tensors, are compared.
//
//	language FOLDER...
//
// Folders are those that bench/research/peers/src/torch_language.py writes. It prints one row of a table for each. It ends with 1 if a loss
// differs by more than 1e-4 of it, or a gradient by more than 1e-3 of its tensor's largest.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "language: give folders that torch_language.py has written")
		os.Exit(2)
	}
	fmt.Println("| model | parameters | losses | first | last | losses differ by at most | gradients | differ by at most | in |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	failed := false
	for _, folder := range os.Args[1:] {
		r, err := compare(folder)
		if err != nil {
			fmt.Fprintln(os.Stderr, "language:", err)
			os.Exit(1)
		}
		fmt.Println(r)
		if err := r.check(); err != nil {
			fmt.Fprintln(os.Stderr, "language:", folder+":", err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
