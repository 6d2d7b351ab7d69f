package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
)

var jsonlInfo = Info{
	Name:    "jsonl:PATH",
	Summary: "lines of JSON with text, with text and label, with prompt and completion, or with messages; a file, or the .jsonl files of a folder",
	Text:    true,
	Source:  "files of the user",
	Open: func(path string, o Options) (Dataset, error) {
		files, err := filesOf(path, ".jsonl")
		if err != nil {
			return nil, fmt.Errorf("data set jsonl: %w", err)
		}
		return openRecords("jsonl:"+path, o, linesOf(files))
	},
}

// linesOf are the rows of files, but the empty lines.
func linesOf(files []string) iter.Seq[row] {
	return func(yield func(row) bool) {
		read := 0
		for _, file := range files {
			all, err := readTextFile(file, mostText-read)
			if err != nil {
				yield(row{place: file, err: err})
				return
			}
			read += len(all)
			number := 0
			for text := range bytes.Lines(all) {
				number++
				if text = bytes.TrimSpace(text); len(text) > 0 && !yield(parseLine(fmt.Sprintf("%s, line %d", file, number), text)) {
					return
				}
			}
		}
	}
}

func parseLine(place string, text []byte) row {
	r := row{place: place}
	if err := json.Unmarshal(text, &r.fields); err != nil || r.fields == nil {
		r.err = fmt.Errorf("%w: the line is no object of JSON", ErrCorrupt)
		if err != nil {
			r.err = fmt.Errorf("%w: %w", r.err, err)
		}
	}
	return r
}
