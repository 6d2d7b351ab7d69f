// Package fields reads and writes the JSON objects of Plimsoll's files field by field. Every refusal names the
// field and its value, duplicate fields are refused, and fields that the reader does not know are kept.
package fields

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"plimsoll/internal/bounded"
	"plimsoll/internal/visible"
)

// Error says which field of an object cannot be used and why.
type Error struct {
	Field  string
	Value  string // as in the file; empty when the field is missing
	Reason string
}

func (e *Error) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("field %q %s", e.Field, e.Reason)
	}
	return fmt.Sprintf("field %q is %s, which %s", e.Field, e.Value, e.Reason)
}

// file is a type that is read from JSON.
type file[T any] interface {
	*T
	json.Unmarshaler
}

// ReadFile reads what a file holds. Errors name the file.
func ReadFile[T any, P file[T]](path string) (*T, error) {
	data, err := bounded.ReadFile(path)
	return parse[T, P](path, data, err)
}

// dir is a folder whose files are read (folder.Dir).
type dir interface {
	ReadFile(name string) ([]byte, error)
	Path(name string) string
}

// ReadIn is ReadFile of a file in a folder.
func ReadIn[T any, P file[T]](at dir, name string) (*T, error) {
	data, err := at.ReadFile(name)
	return parse[T, P](at.Path(name), data, err)
}

// parse returns the value in the text of a file, unless err says why the file could not be read.
func parse[T any, P file[T]](path string, text []byte, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := P(out).UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// Decode reads what one JSON value says; nothing but white space may follow it.
func Decode[T any, P file[T]](r io.Reader) (*T, error) {
	data, err := bounded.ReadAll(r, "the input")
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := P(out).UnmarshalJSON(data); err != nil {
		return nil, err
	}
	return out, nil
}

// Object is a JSON object whose fields are taken one by one. The first error stays; later calls return defaults.
type Object struct {
	left map[string]json.RawMessage // not yet taken
	err  error
}

// Parse reads one JSON object. Errors: bad JSON with line and column, a value that is no object, anything after
// it, a field that occurs twice.
func Parse(data []byte) (*Object, error) {
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, locate(data, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: %s", brief(raw))
	}
	o := &Object{left: map[string]json.RawMessage{}}
	for dec.More() {
		name, value, err := member(dec)
		if err != nil {
			return nil, err
		}
		if _, twice := o.left[name]; twice {
			return nil, &Error{Field: name, Reason: "occurs twice"}
		}
		o.left[name] = value
	}
	return o, nil
}

func member(dec *json.Decoder) (name string, value json.RawMessage, err error) {
	tok, err := dec.Token()
	if err != nil {
		return "", nil, err
	}
	name, ok := tok.(string)
	if !ok {
		return "", nil, fmt.Errorf("field name %v is no string", tok)
	}
	return name, value, dec.Decode(&value)
}

// locate adds line and column to a syntax error.
func locate(data []byte, err error) error {
	syntax, ok := err.(*json.SyntaxError)
	if !ok {
		return err
	}
	before := data[:min(max(syntax.Offset-1, 0), int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

// Of returns an object of the given fields, for values that a caller found elsewhere, such as the elements of an array.
func Of(members map[string]json.RawMessage) *Object { return &Object{left: members} }

// Err returns the first error.
func (o *Object) Err() error { return o.err }

// Has reports whether a field is there and not null; it does not take it.
func (o *Object) Has(name string) bool {
	raw, ok := o.left[name]
	return ok && string(raw) != "null"
}

// Refuse records that a field has a value that its reader cannot use.
func (o *Object) Refuse(field, value, reason string) { o.fail(field, value, reason) }

// Format takes the field "format" and refuses any other value than want.
func (o *Object) Format(want string) {
	o.Require("format")
	if got := o.String("format", want); got != want {
		o.fail("format", strconv.Quote(got), fmt.Sprintf("is not %q", want))
	}
}

// Require refuses an object in which one of the fields is missing or null.
func (o *Object) Require(names ...string) {
	for _, name := range names {
		if !o.Has(name) {
			o.fail(name, "", "is missing")
		}
	}
}

// String takes a string that may be shown: what would control a terminal or a page is written out in it (visible.Text).
func (o *Object) String(name, missing string) string { return visible.Text(o.Text(name, missing)) }

// Text takes a string as it is.
func (o *Object) Text(name, missing string) string {
	return take(o, name, missing, func(raw json.RawMessage) (s string, reason string) {
		if json.Unmarshal(raw, &s) != nil {
			return "", "is not a string"
		}
		return s, ""
	})
}

// Bool takes true or false.
func (o *Object) Bool(name string, missing bool) bool {
	return take(o, name, missing, func(raw json.RawMessage) (b bool, reason string) {
		if json.Unmarshal(raw, &b) != nil {
			return false, "is neither true nor false"
		}
		return b, ""
	})
}

// Float takes a number.
func (o *Object) Float(name string, missing float64) float64 {
	return take(o, name, missing, parseFloat)
}

// Int takes a whole number, which may be written as 1e9 when it is below 2^53.
func (o *Object) Int(name string, missing int64) int64 {
	return take(o, name, missing, parseInt)
}

// NotNegative takes a number that is at least 0.
func (o *Object) NotNegative(name string, missing float64) float64 {
	return take(o, name, missing, notNegative(parseFloat))
}

// Size takes a whole number that is at least 0.
func (o *Object) Size(name string, missing int64) int64 {
	return take(o, name, missing, notNegative(parseInt))
}

// OptionalFloat takes a number; nil when the field is missing.
func (o *Object) OptionalFloat(name string) *float64 {
	if !o.Has(name) {
		return nil
	}
	x := o.Float(name, 0)
	return &x
}

// OptionalInt takes a whole number; nil when the field is missing.
func (o *Object) OptionalInt(name string) *int64 {
	if !o.Has(name) {
		return nil
	}
	x := o.Int(name, 0)
	return &x
}

// Array takes an array and returns its elements unread; nil when the field is missing.
func (o *Object) Array(name string) []json.RawMessage {
	return take(o, name, nil, func(raw json.RawMessage) (elements []json.RawMessage, reason string) {
		if json.Unmarshal(raw, &elements) != nil {
			return nil, "is not an array"
		}
		return elements, ""
	})
}

// Object takes an object; an empty one when the field is missing. Its errors are the caller's to check.
func (o *Object) Object(name string) *Object {
	return take(o, name, &Object{}, func(raw json.RawMessage) (*Object, string) {
		inner, err := Parse(raw)
		if err != nil {
			return &Object{}, "cannot be used: " + err.Error()
		}
		return inner, ""
	})
}

// Raw takes a field unread; nil when it is missing or null.
func (o *Object) Raw(name string) json.RawMessage {
	return take(o, name, nil, func(raw json.RawMessage) (json.RawMessage, string) { return raw, "" })
}

// Rest returns the fields that nobody took; nil when there are none.
func (o *Object) Rest() map[string]json.RawMessage {
	if len(o.left) == 0 {
		return nil
	}
	return o.left
}

// take removes a field and reads it; null counts as missing.
func take[T any](o *Object, name string, missing T, read func(json.RawMessage) (T, string)) T {
	raw, ok := o.left[name]
	delete(o.left, name)
	if !ok || string(raw) == "null" {
		return missing
	}
	value, reason := read(raw)
	if reason != "" {
		o.fail(name, brief(raw), reason)
		return missing
	}
	return value
}

func (o *Object) fail(field, value, reason string) {
	if o.err == nil {
		o.err = &Error{field, value, reason}
	}
}

// isNumber tells JSON numbers from the other JSON values by their first byte.
func isNumber(raw json.RawMessage) bool {
	return raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9'
}

func parseFloat(raw json.RawMessage) (x float64, reason string) {
	if !isNumber(raw) {
		return 0, "is not a number"
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, "is too large"
	}
	return x, ""
}

func notNegative[T int64 | float64](parse func(json.RawMessage) (T, string)) func(json.RawMessage) (T, string) {
	return func(raw json.RawMessage) (T, string) {
		x, reason := parse(raw)
		if reason == "" && x < 0 {
			reason = "is negative"
		}
		return x, reason
	}
}

func parseInt(raw json.RawMessage) (n int64, reason string) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, ""
	}
	x, reason := parseFloat(raw)
	switch {
	case reason != "":
		return 0, reason
	case x != math.Trunc(x):
		return 0, "is not a whole number"
	case math.Abs(x) > 1<<53:
		return 0, "is too large"
	}
	return int64(x), ""
}

// brief shortens a value for an error message.
func brief[T ~string | ~[]byte](raw T) string {
	const most = 60
	if len(raw) <= most {
		return string(raw)
	}
	return string(raw[:most]) + "..."
}
