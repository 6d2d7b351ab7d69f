// Command prose lists sentences that break the rule for sentences, in error messages, help texts, comments and documents, and fails if
// there are any.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	found, err := read(".")
	if err == nil {
		var inDocuments []breach
		inDocuments, err = documents(".")
		found = append(found, inDocuments...)
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
}

// read returns the breaches of all Go files below a folder, tests apart.
func read(root string) (all []breach, err error) {
	err = files(root, ".go", func(path string, source []byte) error {
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found, err := check(path, source)
		all = append(all, found...)
		return err
	})
	return all, err
}
