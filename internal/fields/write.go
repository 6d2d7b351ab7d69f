package fields

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"slices"
)

// MarshalJSON writes the object on one line.
func (l List) MarshalJSON() ([]byte, error) { return l.marshal("", "") }

// WriteLines writes the object with one field a line, and one element a line for the fields named in long,
// whose values marshal to arrays.
func (l List) WriteLines(w io.Writer, long ...string) error {
	spread := slices.Clone(l)
	for i, f := range spread {
		if slices.Contains(long, f.Name) {
			lines, err := elementLines(f.Value)
			if err != nil {
				return err
			}
			spread[i].Value = verbatim(lines)
		}
	}
	data, err := spread.marshal("\n ", "\n")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// verbatim is JSON that keeps its line breaks.
type verbatim []byte

func (l List) marshal(before, after string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range l {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(before)
		name, err := marshal(f.Name)
		if err != nil {
			return nil, err
		}
		value, err := marshal(f.Value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteString(after)
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is Marshal without the escapes that only HTML needs.
func marshal(v any) ([]byte, error) {
	if lines, ok := v.(verbatim); ok {
		return lines, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	if notFinite(err) {
		err = enc.Encode(finite(reflect.ValueOf(v)))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func elementLines(array any) ([]byte, error) {
	data, err := marshal(array)
	if err != nil {
		return nil, err
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i, e := range elements {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(e)
	}
	b.WriteString("\n ]")
	return b.Bytes(), nil
}
