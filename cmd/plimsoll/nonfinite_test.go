package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"plimsoll/bench/receipt"
	"plimsoll/bench/report"
	"plimsoll/bench/sweep"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/executor/train"
	"plimsoll/internal/fields"
)

// fill sets every float that JSON shows to x, and gives every list, map and pointer something to hold.
func fill(v reflect.Value, x float64, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		v.SetFloat(x)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), x, depth+1)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte("1"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), x, depth+1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), x, depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(value, x, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), x, depth+1)
			}
		}
	}
}

// filled returns a value of a type with all floats x.
func filled(of any, x float64) any {
	v := reflect.New(reflect.TypeOf(of))
	fill(v.Elem(), x, 0)
	return v.Interface()
}

// TestNoFloatStopsJSON fills every object that is printed or written with infinities and with what is no number: it is printed all the
// same, with null where another number would be.
func TestNoFloatStopsJSON(t *testing.T) {
	t.Parallel()
	types := maps.Clone(printedTypes)
	for name, of := range map[string]any{
		"a step of log.jsonl": train.Record{}, "an evaluation of log.jsonl": train.Evaluation{}, "report.json": report.Page{}, "a point of bench": sweep.Point{},
		"a receipt": receipt.Receipt{}, "a summary": train.Summary{},
	} {
		types[name] = of
	}
	const finite = 12345.5
	nulls := 0
	for name, of := range types {
		var want bytes.Buffer
		if err := (&app{stdout: &want, json: true}).print(filled(of, finite), nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := strings.ReplaceAll(want.String(), "12345.5", "null")
		for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			var got bytes.Buffer
			if err := (&app{stdout: &got, json: true}).print(filled(of, x), nil); err != nil {
				t.Errorf("%s with %v: %v", name, x, err)
			} else if got.String() != text {
				t.Errorf("%s with %v prints %s, want %s", name, x, got.String(), text)
			}
			nulls += strings.Count(got.String(), "null")
			if _, err := train.Line(filled(of, x)); err != nil {
				t.Errorf("%s with %v as a line: %v", name, x, err)
			}
		}
	}
	if nulls < 500 {
		t.Errorf("%d nulls were printed", nulls)
	}
}

// TestReportsWithoutNumbers checks that report.json, and fields of other files, take floats that are no numbers.
func TestReportsWithoutNumbers(t *testing.T) {
	t.Parallel()
	if err := filled(report.Page{}, math.NaN()).(*report.Page).Encode(io.Discard); err != nil {
		t.Error(err)
	}
	if text, err := (fields.List{{Name: "x", Value: []float64{math.Inf(1), 1}}}).MarshalJSON(); err != nil || string(text) != `{"x":[null,1]}` {
		t.Errorf("%s, %v", text, err)
	}
}

// spoil writes a copy of a file of weights with one tensor times x.
func spoil(t *testing.T, from, to, tensor string, x float32) {
	t.Helper()
	f, err := safetensors.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []safetensors.Tensor
	for _, info := range f.Tensors() {
		if info.DType != safetensors.F32 {
			continue
		}
		bytes, err := info.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, bytes/4)
		if err := f.Float32(info.Name, values); err != nil {
			t.Fatal(err)
		}
		if info.Name == tensor {
			for i := range values {
				values[i] *= x
			}
		}
		all = append(all, safetensors.Tensor{Info: info, Data: func(w io.Writer) error { return safetensors.WriteFloat32(w, values) }})
	}
	var b strings.Builder
	if err := safetensors.Write(&b, f.Metadata(), all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWeightsThatAreNoNumbers checks that evaluate prints an object for weights that are infinite, no numbers or huge, and that generate
// ends with an error that names the file.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	model := []string{"-m", "gpt2-1-16", "--length", "8", "--debug", "threads=1", "-q"}
	works(t, slices.Concat([]string{"train", "--batch", "8", "--steps", "1", "--option", "profile.steps=1", "--strategy", "store-all", "--out", filepath.Join(dir, "run")}, model)...)
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), 1e6, 3e38} {
		bad := filepath.Join(dir, "bad.safetensors")
		spoil(t, filepath.Join(dir, "run", "final.safetensors"), bad, "lm_head.weight", x)
		out := object(t, slices.Concat([]string{"evaluate", "--weights", bad, "--batch", "64"}, model)...)
		if loss, there := out["loss"]; !there || out["perplexity"] != nil || x != x && loss != nil {
			t.Errorf("weights times %v: loss %v, perplexity %v", x, loss, out["perplexity"])
		}
		if x != x && out["correct"] != 0.0 {
			t.Errorf("weights times %v predict %v tokens right", x, out["correct"])
		}
		if x-x == 0 { // outputs are finite
			if loss, is := out["loss"].(float64); !is || loss < 1000 {
				t.Errorf("weights times %v: loss %v", x, out["loss"])
			}
			continue
		}
		for _, more := range [][]string{nil, {"--temperature", "1"}, {"--json"}} {
			got := plimsoll(t, slices.Concat([]string{"generate", "--weights", bad, "--prompt", "a", "--tokens", "3"}, model, more)...)
			if got.code != exitFailed || !strings.Contains(got.err, bad) || !strings.Contains(got.err, "not numbers") {
				t.Errorf("weights times %v, %v: exit code %d, %q, %q", x, more, got.code, got.out, got.err)
			}
		}
	}
}

// TestTrainingFromWeightsThatAreNoNumbers checks that train ends with an error in one object, or prints nulls when it skips such steps.
// If weights are no numbers, only this test finds a train that prints invalid JSON.
func TestTrainingFromWeightsThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, bad := filepath.Join(dir, "run", "final.safetensors"), filepath.Join(dir, "bad.safetensors")
	model := []string{"train", "-m", "gpt2-1-16", "--length", "8", "--debug", "threads=1", "-q", "--batch", "8", "--steps", "2", "--option", "profile.steps=1"}
	works(t, slices.Concat(model, []string{"--strategy", "store-all", "--out", filepath.Dir(first)})...)
	spoil(t, first, bad, "lm_head.weight", float32(math.NaN()))
	for _, way := range [][]string{{"--strategy", "store-all"}, {"--devices", "cpu*2", "--strategy", "1f1b-flush"}} {
		args := slices.Concat(model, way, []string{"--init", bad})
		got := plimsoll(t, append(slices.Clone(args), "--json")...)
		var failure struct {
			Kind string
			Code int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(got.err), &failure); err != nil || got.code != exitFailed || failure.Code != exitFailed || failure.Kind != "failed" {
			t.Errorf("%v: exit code %d, %v, %q", way, got.code, err, got.err)
		}
		out := object(t, append(args, "--on-nan", "skip")...)
		for _, field := range []string{"loss", "test_loss"} {
			if v, there := out[field]; !there || v != nil {
				t.Errorf("%v: %s is %v", way, field, v)
			}
		}
		if out["skipped"] != 2.0 {
			t.Errorf("%v: %v steps were skipped", way, out["skipped"])
		}
	}
}
