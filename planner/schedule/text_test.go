package schedule

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestTextFormOfEveryKind(t *testing.T) {
	t.Parallel()
	seq := Sequence{{ForwardCheckpoint, 1}, {ForwardDiscard, 2}, {ForwardAll, 3}, {Offload, 1}, {Prefetch, 10}, {Backward, 3}}
	const text = "Fck1 F2 Fall3 O1 P10 B3"
	if got := seq.String(); got != text {
		t.Errorf("String: %q, want %q", got, text)
	}
	back, err := Parse("\n\tFck1 F2\r\n  Fall3 O1 P10 B3 ")
	if err != nil || !reflect.DeepEqual(back, seq) {
		t.Errorf("Parse: %v, %v", back, err)
	}
	data, err := json.Marshal(seq[:2])
	if want := `[{"op":"forward_checkpoint","layer":1},{"op":"forward_discard","layer":2}]`; err != nil || string(data) != want {
		t.Errorf("JSON: %s, %v", data, err)
	}
}

func TestKindNames(t *testing.T) {
	t.Parallel()
	for k, name := range []string{"forward_all", "forward_checkpoint", "forward_discard", "backward", "offload", "prefetch"} {
		got, err := ParseKind(name)
		if err != nil || got != Kind(k) || got.String() != name || got.Transfer() != (k >= 4) {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := ParseKind("forward"); !errors.Is(err, ErrUnknownOp) || !strings.Contains(err.Error(), `"forward"`) {
		t.Errorf("forward: %v", err)
	}
	if Kind(99).String() != "Kind(99)" || (Op{Kind(99), 4}).String() != "Kind(99)4" {
		t.Errorf("a kind outside the set: %v %v", Kind(99), Op{Kind(99), 4})
	}
}

func TestParseNamesTokenAndPosition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]ParseError{
		"Fall1 Fall":               {1, "Fall", "has no layer"},
		"B":                        {0, "B", "has no layer"},
		"F0":                       {0, "F0", "has a layer that is not a number from 1"},
		"F1x":                      {0, "F1x", "has a layer that is not a number from 1"},
		"F99999999999999999999999": {0, "F99999999999999999999999", "has a layer that is not a number from 1"},
		"Fall1 Fall2 f3":           {2, "f3", "is none of Fall, Fck, F, B, O, P with a layer"},
		"F-1":                      {0, "F-1", "is none of Fall, Fck, F, B, O, P with a layer"},
		"F+1":                      {0, "F+1", "is none of Fall, Fck, F, B, O, P with a layer"},
		"Fall1 Pw1":                {1, "Pw1", "is none of Fall, Fck, F, B, O, P with a layer"},
		"7":                        {0, "7", "is none of Fall, Fck, F, B, O, P with a layer"},
	} {
		_, err := Parse(text)
		var got *ParseError
		if !errors.As(err, &got) || *got != want {
			t.Errorf("%q: %v, want %v", text, err, &want)
		}
	}
}

func TestOpJSONNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`[{"op":"backward"}]`:                                         `op 0: field "layer" is missing`,
		`[{"op":"backward","layer":1},{"layer":1}]`:                   `op 1: field "op" is missing`,
		`[{"op":"back","layer":1}]`:                                   `op 0: unknown op "back"`,
		`[{"op":"backward","layer":1.5}]`:                             `op 0: field "layer" is 1.5, which is not a whole number`,
		`[{"op":"backward","layer":0}]`:                               `op 0: field "layer" is 0, which is not the number of a layer`,
		`[{"op":"backward","layer":"1"}]`:                             `op 0: field "layer" is "1", which is not a number`,
		`[{"op":"backward","layer":3000000000}]`:                      `op 0: field "layer" is 3000000000, which is not the number of a layer`,
		`[{"op":3,"layer":1}]`:                                        `op 0: field "op" is 3, which is not a string`,
		`[{"op":"fetch_weights","layer":1}]`:                          `op 0: field "op" is fetch_weights, which belongs to a cyclic plan, with weights and optimizer state`,
		`[7]`:                                                         `op 0: not a JSON object: 7`,
		`[{"op":"backward","layer":1,"layer":2}]`:                     `op 0: field "layer" occurs twice`,
		`{"op":"backward","layer":1}`:                                 `json: cannot unmarshal object into Go value of type []json.RawMessage`,
		`[{"op":"backward","layer":1},{"op":"offload","layer":null}]`: `op 1: field "layer" is missing`,
	} {
		var seq Sequence
		if err := json.Unmarshal([]byte(doc), &seq); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
}

// TestSequencesSurviveBothForms writes and reads random sequences as text and as JSON.
func TestSequencesSurviveBothForms(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		seq := make(Sequence, rng.IntN(40))
		for i := range seq {
			seq[i] = Op{Kind(rng.IntN(6)), 1 + rng.IntN(MaxLayer)}
		}
		fromText, err := Parse(seq.String())
		if err != nil || !reflect.DeepEqual(fromText, seq) {
			t.Fatalf("%s: text gives %s, %v", seq, fromText, err)
		}
		data, err := json.Marshal(seq)
		if err != nil {
			t.Fatal(err)
		}
		var fromJSON Sequence
		if err := json.Unmarshal(data, &fromJSON); err != nil || !reflect.DeepEqual(fromJSON, seq) {
			t.Fatalf("%s: JSON gives %s, %v", seq, fromJSON, err)
		}
	}
}
