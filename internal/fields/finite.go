package fields

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
)

// Marshal is json.Marshal, but floats that are not finite, which JSON has no numbers for, are null.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if notFinite(err) {
		return json.Marshal(finite(reflect.ValueOf(v)))
	}
	return text, err
}

// MarshalIndent is Marshal for people, with two spaces a level.
func MarshalIndent(v any) ([]byte, error) {
	text, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, text, "", "  ")
	return b.Bytes(), err
}

// Indented returns a function that writes MarshalIndent's text and the end of a line.
func Indented(v any) func(io.Writer) error {
	return func(w io.Writer) error {
		text, err := MarshalIndent(v)
		if err != nil {
			return err
		}
		_, err = w.Write(append(text, '\n'))
		return err
	}
}

// notFinite reports whether json.Marshal has met a float that is not finite.
func notFinite(err error) bool {
	_, is := errors.AsType[*json.UnsupportedValueError](err)
	return is
}

var (
	marshaler = reflect.TypeFor[json.Marshaler]()
	anything  = reflect.TypeFor[any]()
)

// finite returns a value that has the same JSON as v, with nil in the places of floats that are not finite. Types that write themselves
// stay as they are.
func finite(v reflect.Value) any {
	if !v.IsValid() || v.Type().Implements(marshaler) {
		return valueOf(v)
	}
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if x := v.Float(); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
	case reflect.Pointer, reflect.Interface:
		return finite(v.Elem())
	case reflect.Slice, reflect.Array:
		return finiteList(v)
	case reflect.Map:
		return finiteMap(v)
	case reflect.Struct:
		return finiteStruct(v)
	}
	return v.Interface()
}

// valueOf returns the content of a value; nil: nothing.
func valueOf(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	return v.Interface()
}

func finiteList(v reflect.Value) any {
	if v.Kind() == reflect.Slice && (v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8) { // null, or a text
		return v.Interface()
	}
	all := make([]any, v.Len())
	for i := range all {
		all[i] = finite(v.Index(i))
	}
	return all
}

func finiteMap(v reflect.Value) any {
	if v.IsNil() {
		return nil
	}
	all := reflect.MakeMap(reflect.MapOf(v.Type().Key(), anything))
	for _, key := range v.MapKeys() {
		value := reflect.New(anything).Elem()
		if x := finite(v.MapIndex(key)); x != nil {
			value.Set(reflect.ValueOf(x))
		}
		all.SetMapIndex(key, value)
	}
	return all.Interface()
}

// finiteStruct lists the fields of a struct as json.Marshal does, with those of embedded structs in the place of these. No embedded
// struct has a field of a name that another one has.
func finiteStruct(v reflect.Value) (l List) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		x := v.Field(i)
		switch {
		case f.Anonymous && name == "":
			if x = reflect.Indirect(x); x.IsValid() {
				l = append(l, finiteStruct(x)...)
			}
			continue
		case !f.IsExported() || name == "-" || leftOut(x, options):
			continue
		case name == "":
			name = f.Name
		}
		l = append(l, Field{name, finite(x)})
	}
	return l
}

// leftOut reports whether json.Marshal leaves a field out.
func leftOut(v reflect.Value, options string) bool {
	for o := range strings.SplitSeq(options, ",") {
		switch {
		case o == "omitzero" && v.IsZero():
			return true
		case o == "omitempty":
			switch v.Kind() {
			case reflect.Struct, reflect.Array:
				return v.Kind() == reflect.Array && v.Len() == 0
			case reflect.Slice, reflect.Map, reflect.String:
				return v.Len() == 0
			}
			return v.IsZero()
		}
	}
	return false
}
