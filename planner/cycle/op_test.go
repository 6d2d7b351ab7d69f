package cycle

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"plimsoll/planner/schedule"
)

func TestTextFormOfEveryKind(t *testing.T) {
	t.Parallel()
	const text = "Fall1.1 Fck2.12 F3 B4.3 O5 P6.2 Pw7 Ow8 Dw9 Ps10' Os11 Ds12 Og13' Pg14 U15' H16"
	seq, err := Parse("\n\t" + strings.ReplaceAll(text, " ", " \r\n "))
	if err != nil || seq.String() != text || len(seq) != 16 {
		t.Fatalf("%s, %v", seq, err)
	}
	for i, want := range map[int]Op{1: {schedule.ForwardCheckpoint, false, 12, 2}, 9: {schedule.FetchState, true, 0, 10}, 15: {schedule.HostUpdate, false, 0, 16}} {
		if seq[i] != want {
			t.Errorf("op %d: %+v, want %+v", i, seq[i], want)
		}
	}
	data, err := json.Marshal(Sequence{seq[1], seq[9], seq[6]})
	want := `[{"op":"forward_checkpoint","layer":2,"microbatch":12},{"op":"fetch_state","layer":10,"prime":true},{"op":"fetch_weights","layer":7}]`
	if err != nil || string(data) != want {
		t.Errorf("JSON: %s, %v", data, err)
	}
}

// TestSequencesSurviveBothForms writes and reads random sequences as text and as JSON.
func TestSequencesSurviveBothForms(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 30))
	for range 200 {
		seq := make(Sequence, rng.IntN(40))
		for i := range seq {
			seq[i] = Op{Kind: schedule.Kind(rng.IntN(int(schedule.HostUpdate) + 1)), Layer: 1 + rng.IntN(schedule.MaxLayer)}
			switch ofState := seq[i].Kind.OfState(); {
			case ofState:
				seq[i].Prime = rng.IntN(2) == 0
			case rng.IntN(2) == 0:
				seq[i].Microbatch = 1 + rng.IntN(schedule.MaxLayer)
			}
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

func TestParseNamesTokenAndPosition(t *testing.T) {
	t.Parallel()
	const noOp = "is no op: Fall, Fck, F, B, O, P, Pw, Ow, Dw, Ps, Os, Ds, Og, Pg, U or H, with a layer"
	for text, want := range map[string]ParseError{
		"Fall1 Fall":     {1, "Fall", "has a layer that is not a number from 1"},
		"U0":             {0, "U0", "has a layer that is not a number from 1"},
		"Pw2147483648":   {0, "Pw2147483648", "has a layer that is not a number from 1"},
		"H1'x":           {0, "H1'x", "has a layer that is not a number from 1"},
		"H1''":           {0, "H1''", "has a layer that is not a number from 1"},
		"F1.":            {0, "F1.", "has a microbatch that is not a number from 1"},
		"F1.0":           {0, "F1.0", "has a microbatch that is not a number from 1"},
		"F1.2.3":         {0, "F1.2.3", "has a microbatch that is not a number from 1"},
		"F1.-2":          {0, "F1.-2", "has a microbatch that is not a number from 1"},
		"Pq1":            {0, "Pq1", noOp},
		"1":              {0, "1", noOp},
		"'":              {0, "'", noOp},
		"pw1":            {0, "pw1", noOp},
		"U1 B1'":         {1, "B1'", "has a prime, which is for ops of weights, gradients and state"},
		"Fall1.1 Pw1.1":  {1, "Pw1.1", "has a microbatch, and the weights, gradient and state of a layer belong to all"},
		"Fall1.1 Pw1.1'": {1, "Pw1.1'", "has a microbatch, and the weights, gradient and state of a layer belong to all"},
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
		`[{"op":"update"}]`: `op 0: field "layer" is missing`,
		`[{"op":"update","layer":1},{"op":"upgrade","layer":1}]`: `op 1: unknown op "upgrade"`,
		`[{"op":"update","layer":0}]`:                            `op 0: field "layer" is 0, which is not the number of a layer`,
		`[{"op":"update","layer":3000000000}]`:                   `op 0: field "layer" is 3000000000, which is not the number of a layer`,
		`[{"op":"update","layer":1,"prime":1}]`:                  `op 0: field "prime" is 1, which is neither true nor false`,
		`[{"op":"backward","layer":1,"prime":true}]`:             `op 0: field "op" is backward, which has a prime, which is for ops of weights, gradients and state`,
		`[{"op":"update","layer":1,"microbatch":1}]`:             `op 0: field "op" is update, which has a microbatch, and the weights, gradient and state of a layer belong to all`,
		`[{"op":"backward","layer":1,"microbatch":0}]`:           `op 0: field "microbatch" is 0, which is not a number from 1`,
		`[{"op":"backward","layer":1,"microbatch":-1}]`:          `op 0: field "microbatch" is -1, which is not a number from 1`,
		`[{"op":"backward","layer":1,"microbatch":"1"}]`:         `op 0: field "microbatch" is "1", which is not a number`,
		`[{"op":"backward","layer":1,"microbatch":3000000000}]`:  `op 0: field "microbatch" is 3000000000, which is not a number from 1`,
		`[7]`:                         `op 0: not a JSON object: 7`,
		`{"op":"backward","layer":1}`: `json: cannot unmarshal object into Go value of type []json.RawMessage`,
	} {
		var seq Sequence
		if err := json.Unmarshal([]byte(doc), &seq); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
}
