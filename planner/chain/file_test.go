package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"plimsoll/internal/shared"
)

func tiny(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decode(doc string) (*Chain, error) { return Decode(strings.NewReader(doc)) }

// TestChainSurvivesRewriting: what is read and written again is the same, byte for byte, unknown fields included.
func TestChainSurvivesRewriting(t *testing.T) {
	t.Parallel()
	c, err := Read("testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c.json")
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != tiny(t) {
		t.Errorf("rewritten:\n%s", got)
	}
	again, err := Read(path)
	if err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("read again: %+v, %v", again, err)
	}
	line, err := json.Marshal(*c)
	var embedded Chain
	if err == nil {
		err = json.Unmarshal(line, &embedded)
	}
	if twice, _ := json.Marshal(embedded); err != nil || !bytes.Equal(twice, line) {
		t.Errorf("through one line: %s\ninstead of %s, %v", twice, line, err)
	}
}

func TestEveryFieldIsRead(t *testing.T) {
	t.Parallel()
	c, err := Read("testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	discard, overhead, half, rest := 0.0005, int64(5), 0.0015, 0.0005
	want := &Chain{
		Name: "tiny", InputBytes: 400, Bandwidth: 12e9, Device: "by hand", DType: "float32", Batch: 8,
		Layers: []Layer{
			{
				Name: "conv", ForwardS: 0.001, BackwardS: 0.002, OutputBytes: 300, SavedBytes: 500, GradientBytes: 350,
				ForwardOverheadBytes: 10, BackwardOverheadBytes: 20, WeightBytes: 1000,
				DiscardForwardS: &discard, DiscardOverheadBytes: &overhead, BackwardInputS: &half, BackwardWeightS: &rest,
				Extra: map[string]json.RawMessage{"nodes": json.RawMessage(`["a","b"]`)},
			},
			{Name: "loss", BackwardS: 0.25, OutputBytes: 4, SavedBytes: 4, GradientBytes: 4},
		},
		Extra: map[string]json.RawMessage{
			"measured": json.RawMessage(`{"by":"Ω & co","on":2020}`), "version": json.RawMessage(`null`),
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("read\n%+v\nwant\n%+v", c, want)
	}
	if c.Layer(1).DiscardSeconds() != 0.0005 || c.Layer(1).DiscardOverhead() != 5 || c.Layer(2).DiscardOverhead() != 0 {
		t.Error("cost of a forward that saves nothing")
	}
	if c.Gradient(0) != 400 || c.Gradient(1) != 350 || c.Gradient(2) != 0 || c.Saved(0) != 400 || c.Saved(1) != 500 || c.Activation(2) != 4 {
		t.Error("sizes by index")
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := decode(`{"format":"plimsoll.chain/v1","input_bytes":1e9,"bandwidth_bytes_per_s":null,
		"layers":[{"forward_s":3,"backward_s":1e-3,"output_bytes":2.5e3,"gradient_bytes":null},
		{"forward_s":0,"backward_s":0,"output_bytes":2,"saved_bytes":3}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := &Chain{InputBytes: 1000000000, Layers: []Layer{
		{ForwardS: 3, BackwardS: 0.001, OutputBytes: 2500, SavedBytes: 2500, GradientBytes: 2500},
		{OutputBytes: 2, SavedBytes: 3, GradientBytes: 2},
	}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// TestBadChainsNameWhatIsWrong changes one place of the tiny chain at a time.
func TestBadChainsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	for change, want := range map[[2]string]string{
		{`"format":"plimsoll.chain/v1",`, ``}:           `field "format" is missing`,
		{`chain/v1`, `plan/v1`}:                         `field "format" is "plimsoll.plan/v1", which is not "plimsoll.chain/v1"`,
		{`"input_bytes":400,`, ``}:                      `field "input_bytes" is missing`,
		{`"layers"`, `"lairs"`}:                         `field "layers" is missing`,
		{`"forward_s":0.001,`, ``}:                      `layer 1 (conv): field "forward_s" is missing`,
		{`"backward_s":0.25,`, ``}:                      `layer 2 (loss): field "backward_s" is missing`,
		{`"output_bytes":300`, `"output_bytes":null`}:   `layer 1 (conv): field "output_bytes" is missing`,
		{`"name":"conv","forward_s":0.001,`, ``}:        `layer 1: field "forward_s" is missing`,
		{`"name":"conv"`, `"name":{}`}:                  `layer 1: field "name" is {}, which is not a string`,
		{`"input_bytes":400`, `"input_bytes":-400`}:     `field "input_bytes" is -400, which is negative`,
		{`"input_bytes":400`, `"input_bytes":"400"`}:    `field "input_bytes" is "400", which is not a number`,
		{`"input_bytes":400`, `"input_bytes":true`}:     `field "input_bytes" is true, which is not a number`,
		{`"output_bytes":300`, `"output_bytes":300.5`}:  `layer 1 (conv): field "output_bytes" is 300.5, which is not a whole number`,
		{`"saved_bytes":500`, `"saved_bytes":1e300`}:    `layer 1 (conv): field "saved_bytes" is 1e300, which is too large`,
		{`"saved_bytes":500`, `"saved_bytes":299`}:      `layer 1 (conv): field "saved_bytes" is 299, which is less than output_bytes, 300: the saved set contains the output`,
		{`weight_bytes":1000`, `weight_bytes":1e16`}:    `layer 1 (conv): field "weight_bytes" is 1e16, which is too large`,
		{`weight_bytes":0`, `weight_bytes":1` + zeros}:  `layer 2 (loss): field "weight_bytes" is 10000000000000000, which makes the sum of all sizes exceed 2^53 bytes`,
		{`weight_bytes":0`, `weight_bytes":` + almost}:  `layer 2 (loss): field "weight_bytes" is 9007199254740000, which makes the sum of all sizes exceed 2^53 bytes`,
		{`overhead_bytes":10`, `overhead_bytes":-1`}:    `layer 1 (conv): field "forward_overhead_bytes" is -1, which is negative`,
		{`overhead_bytes":5`, `overhead_bytes":-5`}:     `layer 1 (conv): field "discard_overhead_bytes" is -5, which is negative`,
		{`discard_forward_s":`, `discard_forward_s":-`}: `layer 1 (conv): field "discard_forward_s" is -0.0005, which is negative or not finite`,
		{`"forward_s":0,`, `"forward_s":-1,`}:           `layer 2 (loss): field "forward_s" is -1, which is negative or not finite`,
		{`"forward_s":0,`, `"forward_s":1e999,`}:        `layer 2 (loss): field "forward_s" is 1e999, which is too large`,
		{`"forward_s":0,`, `"forward_s":NaN,`}:          `line 11, column 30: invalid character 'N' looking for beginning of value`,
		{`12000000000`, `-1`}:                           `field "bandwidth_bytes_per_s" is -1, which is negative or not finite`,
		{`"batch":8`, `"batch":-8`}:                     `field "batch" is -8, which is negative or not finite`,
		{`"dtype":"float32"`, `"dtype":32`}:             `field "dtype" is 32, which is not a string`,
		{`"batch"`, `"name"`}:                           `field "name" occurs twice`,
		{`"nodes"`, `"forward_s"`}:                      `layer 1: field "forward_s" occurs twice`,
		{"null\n}", "null\n}]"}:                         `line 15, column 2: invalid character ']' after top-level value`,
		{"null\n}", "null\n"}:                           `line 15, column 1: unexpected end of JSON input`,
	} {
		doc := strings.Replace(tiny(t), change[0], change[1], 1)
		if doc == tiny(t) {
			t.Fatalf("%q is not in the chain", change[0])
		}
		path := filepath.Join(t.TempDir(), "bad.json")
		if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Read(path)
		if want := path + ": bad chain: " + want; !errors.Is(err, ErrFormat) || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", change[1], err, want)
		}
	}
}

const (
	zeros  = "0000000000000000"
	almost = "9007199254740000" // 2^53 - 992
)

func TestNotAChain(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		``:     `line 1, column 1: unexpected end of JSON input`,
		`[]`:   `not a JSON object: []`,
		`null`: `not a JSON object: null`,
		`{"format":"plimsoll.chain/v1","input_bytes":1,"layers":{}}`:  `field "layers" is {}, which is not an array`,
		`{"format":"plimsoll.chain/v1","input_bytes":1,"layers":[]}`:  `field "layers" is [], which must hold at least the loss`,
		`{"format":"plimsoll.chain/v1","input_bytes":1,"layers":[1]}`: `layer 1: not a JSON object: 1`,
	} {
		if _, err := decode(doc); err == nil || err.Error() != "bad chain: "+want {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestBadReadLeavesChain: a chain that is read into keeps its value when the file is bad.
func TestBadReadLeavesChain(t *testing.T) {
	t.Parallel()
	c := &Chain{Name: "before"}
	if err := json.Unmarshal([]byte(strings.Replace(tiny(t), "300", "-300", 1)), c); err == nil || c.Name != "before" || c.Layers != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestBadChainIsNotWritten: no file appears, and one that is there stays.
func TestBadChainIsNotWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.json")
	c := &Chain{Layers: []Layer{{Name: "loss", OutputBytes: 2, SavedBytes: 1}}}
	if err := c.Write(path); !errors.Is(err, ErrFormat) {
		t.Errorf("written: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file exists: %v", err)
	}
}

// TestSharedChainsAreRead reads the profiles of real networks and every chain embedded in the known answers.
func TestSharedChainsAreRead(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob(filepath.Join(shared.Chains(t), "*.json"))
	vectors, _ := filepath.Glob(filepath.Join(shared.Path(t, "vectors"), "*.json"))
	read := 0
	for _, file := range append(files, vectors...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range embeddedChains(t, data) {
			read++
			c := new(Chain)
			if err := json.Unmarshal(doc, c); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			var out bytes.Buffer
			if err := c.Encode(&out); err != nil {
				t.Fatal(err)
			}
			if again, err := Decode(&out); err != nil || !reflect.DeepEqual(again, c) {
				t.Errorf("%s: %s written and read again: %v", file, c.Name, err)
			}
		}
	}
	if len(files) != 4 || read < 700 {
		t.Errorf("%d profiles, %d chains", len(files), read)
	}
}

// embeddedChains finds the chains in a JSON document.
func embeddedChains(t *testing.T, data []byte) (chains []json.RawMessage) {
	t.Helper()
	var object map[string]json.RawMessage
	var array []json.RawMessage
	switch {
	case json.Unmarshal(data, &object) == nil:
		if string(object["format"]) == `"`+Format+`"` {
			return []json.RawMessage{data}
		}
		for _, value := range object {
			chains = append(chains, embeddedChains(t, value)...)
		}
	case json.Unmarshal(data, &array) == nil:
		for _, value := range array {
			chains = append(chains, embeddedChains(t, value)...)
		}
	}
	return chains
}

// FuzzDecode: nothing panics; what is accepted is valid and survives rewriting.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(tiny(f)))
	f.Add([]byte(trained))
	f.Add([]byte(`{"format":"plimsoll.chain/v1","input_bytes":0,"layers":[{"name":"a","weights_of":"a"},{"weights_of":-0,"host_update_s":1e300}]}`))
	f.Add([]byte(`{"format":"plimsoll.chain/v1","input_bytes":1e9,"layers":[{"forward_s":3,"backward_s":1e-3,"output_bytes":2.5e3}]}`))
	f.Add([]byte(`{"format":"plimsoll.chain/v1","input_bytes":-0,"layers":[{},{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("undocumented: %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		var out, twice bytes.Buffer
		if err := c.Encode(&out); err != nil {
			t.Fatal(err)
		}
		again, err := Decode(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("%v in what was written:\n%s", err, out.Bytes())
		}
		if err := again.Encode(&twice); err != nil || twice.String() != out.String() {
			t.Fatalf("written again (%v):\n%s\ninstead of\n%s", err, twice.String(), out.String())
		}
	})
}
