package main

import (
	"fmt"
	"strings"
)

// cSources are the endings of files in C, C++ and CUDA.
var cSources = []string{".c", ".h", ".cpp", ".cu", ".cuh"}

// inC returns the breaches of the comments of all files in C, C++ and CUDA below a folder.
func inC(root string) (all []breach, err error) {
	for _, ending := range cSources {
		err := files(root, ending, func(path string, source []byte) error {
			all = append(all, cSource(path, string(source))...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// cSource returns the breaches of the comments of a file that stand in lines of their own. Such lines in a row are one text.
func cSource(file, source string) []breach {
	r := documentReader{file: file}
	end := func() {
		if len(r.lines) > 0 && predicates.MatchString(strings.TrimSpace(r.lines[0])) {
			r.found = append(r.found, breach{fmt.Sprintf("%s:%d", file, r.first), predicate, r.lines[0]})
		}
		r.end()
	}
	for n, line := range strings.Split(source, "\n") {
		text, is := strings.CutPrefix(strings.TrimSpace(line), "//")
		switch {
		case !is || strings.TrimSpace(text) == "":
			end()
		case len(r.lines) == 0:
			r.first, r.lines = n+1, []string{text}
		default:
			r.lines = append(r.lines, text)
		}
	}
	end()
	return r.found
}
