package fields

import (
	"encoding/json"
	"maps"
	"slices"
)

// List is a JSON object to be written, its fields in order.
type List []Field

// Field is one of them.
type Field struct {
	Name  string
	Value any
}

// With appends the fields of extra in alphabetical order, without those that the list has already.
func (l List) With(extra map[string]json.RawMessage) List {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if !slices.ContainsFunc(l, func(f Field) bool { return f.Name == name }) {
			l = append(l, Field{name, extra[name]})
		}
	}
	return l
}

// Unless appends a field if it does not have the value that means missing.
func Unless[T comparable](l List, missing T, name string, value T) List {
	if value == missing {
		return l
	}
	return append(l, Field{name, value})
}

// Optional appends a field if it has a value.
func Optional[T any](l List, name string, value *T) List {
	if value == nil {
		return l
	}
	return append(l, Field{name, *value})
}
