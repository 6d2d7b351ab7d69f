// Command prose lists sentences that break the rule for sentences, in error messages, help texts, documents and the comments of Go, C and CUDA, and fails if
// there are any.
package main

import (
	"fmt"
	"os"
)

func main() {
	var found []breach
	var err error
	for _, look := range []func(root string) ([]breach, error){read, documents, inC} {
		var some []breach
		if some, err = look("."); err != nil {
			break
		}
		found = append(found, some...)
	}
	for _, b := range found {
		fmt.Println(b)
	}
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%d sentences break the rule (style: a named subject, one idea, at most %d words): write them anew", len(found), mostWords)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
	fmt.Println("prose: 0 sentences break the rule")
}

// read returns the breaches of all Go files below a folder. Of tests it reads the comments alone.
func read(root string) (all []breach, err error) {
	err = files(root, ".go", func(path string, source []byte) error {
		found, err := check(path, source)
		all = append(all, found...)
		return err
	})
	return all, err
}
