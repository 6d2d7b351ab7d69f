package fields

import "fmt"

// FileError is a place in a file that cannot be read.
type FileError struct {
	File   string // as given to the reader; "" when there is none
	Line   int    // from 1; 0 for the file as a whole
	Field  string
	Value  string // as in the file; "" when it is missing
	Reason string
}

func (e *FileError) Error() string {
	where := e.File
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	what := fmt.Sprintf("field %q %s", e.Field, e.Reason)
	if e.Value != "" {
		what = fmt.Sprintf("field %q is %q, which %s", e.Field, brief(e.Value), e.Reason)
	}
	if where == "" {
		return what
	}
	return where + ": " + what
}
