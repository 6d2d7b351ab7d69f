package fields

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func object(t *testing.T, doc string) *Object {
	t.Helper()
	o, err := Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFieldsAreTaken(t *testing.T) {
	t.Parallel()
	o := object(t, `{"s":"x","b":true,"f":-1.5,"n":-3,"big":9007199254740993,"sci":12e9,"a":[1,2],"o":{"k":1},"null":null,"rest":{"x" : 1}}`)
	o.Require("s", "b", "f")
	if o.String("s", "") != "x" || !o.Bool("b", false) || o.Float("f", 0) != -1.5 || o.Int("n", 0) != -3 {
		t.Error("plain values")
	}
	if o.Int("big", 0) != 9007199254740993 || o.Int("sci", 0) != 12e9 {
		t.Error("whole numbers")
	}
	if a := o.Array("a"); len(a) != 2 || string(a[1]) != "2" || o.Object("o").Int("k", 0) != 1 {
		t.Error("arrays and objects")
	}
	if o.String("null", "default") != "default" || o.Size("none", 7) != 7 || o.OptionalFloat("none") != nil || o.Has("none") {
		t.Error("missing fields")
	}
	rest := o.Rest()
	if o.Err() != nil || len(rest) != 1 || string(rest["rest"]) != `{"x" : 1}` {
		t.Errorf("rest %s, %v", rest, o.Err())
	}
	if rest := object(t, `{}`).Rest(); rest != nil {
		t.Errorf("rest of nothing: %v", rest)
	}
}

func TestRawAndOf(t *testing.T) {
	t.Parallel()
	o := object(t, `{"raw":[1, {}],"null":null}`)
	if string(o.Raw("raw")) != "[1, {}]" || o.Raw("null") != nil || o.Raw("none") != nil || o.Rest() != nil {
		t.Error("raw fields")
	}
	inner := Of(map[string]json.RawMessage{"entry 2": json.RawMessage("-1")})
	if inner.Size("entry 2", 0); inner.Err() == nil || !strings.Contains(inner.Err().Error(), `"entry 2" is -1`) {
		t.Errorf("an element: %v", inner.Err())
	}
}

func TestTheFirstErrorStays(t *testing.T) {
	t.Parallel()
	o := object(t, `{"a":"x","b":-1,"long":"`+strings.Repeat("x", 100)+`"}`)
	if o.Int("a", 5) != 5 || o.Size("b", 6) != 6 {
		t.Error("a bad value gives the default")
	}
	o.Require("c")
	want := Error{Field: "a", Value: `"x"`, Reason: "is not a number"}
	var got *Error
	if !errors.As(o.Err(), &got) || *got != want {
		t.Errorf("%v, want %v", o.Err(), &want)
	}
	o = object(t, `{"long":"`+strings.Repeat("x", 100)+`"}`)
	if o.Float("long", 0); len(o.Err().Error()) > 110 {
		t.Errorf("a long value is shortened: %v", o.Err())
	}
}

func TestNumbersThatDoNotFit(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"9223372036854775808":         "is too large",
		"1e16":                        "is too large",
		"-1e16":                       "is too large",
		"1e999":                       "is too large",
		"1e-3":                        "is not a whole number",
		"0.5":                         "is not a whole number",
		"[]":                          "is not a number",
		"99999999999999999999999.125": "is too large",
	} {
		o := object(t, `{"n":`+value+`}`)
		o.Int("n", 0)
		var got *Error
		if !errors.As(o.Err(), &got) || got.Reason != want || got.Value != value {
			t.Errorf("%s: %v, want %s", value, o.Err(), want)
		}
	}
}

func TestWriting(t *testing.T) {
	t.Parallel()
	x := 0.5
	l := List{{"first", "a<b"}, {"list", []int{1, 2}}}
	l = Optional(l, "half", &x)
	l = Optional[int](l, "nothing", nil)
	l = Unless(l, "", "empty", "")
	l = Unless(l, 0, "n", 3)
	l = l.With(map[string]json.RawMessage{"z": json.RawMessage("1"), "a": json.RawMessage("[{}]"), "first": json.RawMessage("0")})
	data, err := l.MarshalJSON()
	if want := `{"first":"a<b","list":[1,2],"half":0.5,"n":3,"a":[{}],"z":1}`; err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
	var b strings.Builder
	err = l[:2].WriteLines(&b, "list")
	if want := "{\n \"first\":\"a<b\",\n \"list\":[\n  1,\n  2\n ]\n}\n"; err != nil || b.String() != want {
		t.Errorf("%q, %v; want %q", b.String(), err, want)
	}
	if err := (List{{"f", func() {}}}).WriteLines(&b); err == nil {
		t.Error("a function was written")
	}
	if err := (List{{"f", 1}}).WriteLines(&b, "f"); err == nil {
		t.Error("a number was written as an array")
	}
}

// FuzzParse: nothing panics, and all fields of an accepted object come back.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":[null,1e9]}}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`{"\u0061":1}x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Parse(data)
		if err != nil {
			return
		}
		out, err := List{}.With(o.Rest()).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil || len(again.Rest()) != len(o.Rest()) {
			t.Fatalf("%s written as %s: %v", data, out, err)
		}
	})
}
