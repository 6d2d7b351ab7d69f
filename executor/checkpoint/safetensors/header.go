package safetensors

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"plimsoll/internal/fields"
)

// entry is a tensor of a file with its place in the data: bytes [begin, end).
type entry struct {
	Info
	begin, end int64
}

// header is the description that a file has of itself.
type header struct {
	metadata map[string]string
	entries  []entry // in the order of their data
}

// parseHeader reads a header for data of the given length. Errors are *Error without a file.
func parseHeader(text []byte, length int64) (*header, error) {
	switch {
	case !utf8.Valid(text):
		return nil, whole("the header is not UTF-8")
	case len(text) == 0 || text[0] != '{':
		return nil, whole("the header does not begin with '{'")
	}
	o, err := fields.Parse(text)
	if err != nil {
		return nil, whole("the header: %w", err)
	}
	h := &header{}
	if h.metadata, err = parseMetadata(o); err != nil {
		return nil, whole("%w", err)
	}
	rest := o.Rest()
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		e, err := parseEntry(name, rest[name])
		if err != nil {
			return nil, &Error{Tensor: name, Err: fmt.Errorf("%w: %w", ErrFormat, err)}
		}
		h.entries = append(h.entries, e)
	}
	return h, h.tile(length)
}

// whole is an error about a file as a whole.
func whole(format string, args ...any) error {
	return &Error{Err: fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)}
}

func parseMetadata(o *fields.Object) (map[string]string, error) {
	inner := o.Object(metadataName)
	if err := o.Err(); err != nil {
		return nil, err
	}
	metadata := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(inner.Rest())) {
		inner.Require(name) // null is no string
		metadata[name] = inner.Text(name, "")
	}
	if err := inner.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", metadataName, err)
	}
	return metadata, nil
}

func parseEntry(name string, raw json.RawMessage) (e entry, err error) {
	o, err := fields.Parse(raw)
	if err != nil {
		return e, err
	}
	o.Require("dtype", "shape", "data_offsets")
	e.Name, e.DType = name, DType(o.String("dtype", ""))
	shape, offsets := o.Array("shape"), o.Array("data_offsets")
	if err := o.Err(); err != nil {
		return e, err
	}
	if e.Shape, err = parseInts("shape", shape); err != nil {
		return e, err
	}
	ends, err := parseInts("data_offsets", offsets)
	if err != nil {
		return e, err
	}
	bytes, err := e.Bytes()
	if err != nil {
		return e, err
	}
	if len(ends) != 2 || ends[0] > ends[1] {
		return e, fmt.Errorf("data_offsets is %v, want a begin and an end not before it", ends)
	}
	e.begin, e.end = int64(ends[0]), int64(ends[1])
	if e.end-e.begin != bytes {
		return e, fmt.Errorf("data_offsets is %v, %d bytes, but %s %v takes %d", ends, e.end-e.begin, e.DType, e.Shape, bytes)
	}
	return e, nil
}

// parseInts reads whole numbers from 0.
func parseInts(field string, list []json.RawMessage) ([]int, error) {
	ints := make([]int, len(list))
	for i, raw := range list {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s[%d] is %.40s, want a whole number from 0", field, i, raw)
		}
		ints[i] = int(n)
	}
	return ints, nil
}

// tile puts the entries in the order of their data and refuses data that belongs to no tensor or to two.
func (h *header) tile(length int64) error {
	slices.SortFunc(h.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.Name, b.Name))
	})
	at, before := int64(0), ""
	for _, e := range h.entries {
		switch {
		case e.begin > at:
			return misplaced(e, "bytes %d to %d belong to no tensor", at, e.begin)
		case e.begin < at:
			return misplaced(e, "it overlaps tensor %q, which ends at %d", before, at)
		}
		at, before = e.end, e.Name
	}
	switch {
	case at > length:
		return whole("it is truncated: its tensors take %d bytes, and %d follow the header", at, length)
	case at < length:
		return whole("%d bytes follow the last tensor", length-at)
	}
	return nil
}

func misplaced(e entry, format string, args ...any) error {
	place := fmt.Errorf("data_offsets is [%d %d]: "+format, append([]any{e.begin, e.end}, args...)...)
	return &Error{Tensor: e.Name, Err: fmt.Errorf("%w: %w", ErrFormat, place)}
}

// encode writes a header, filled up with spaces so that the data after it is aligned to 8 bytes.
func (h *header) encode() ([]byte, error) {
	list := fields.List{}
	if len(h.metadata) > 0 {
		list = append(list, fields.Field{Name: metadataName, Value: h.metadata})
	}
	for _, e := range h.entries {
		list = append(list, fields.Field{Name: e.Name, Value: struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{e.DType, append([]int{}, e.Shape...), [2]int64{e.begin, e.end}}})
	}
	text, err := list.MarshalJSON()
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if err == nil && len(text) > MaxHeader {
		err = errors.New("the header is longer than the format allows")
	}
	return text, err
}
