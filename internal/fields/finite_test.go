package fields

import (
	"encoding/json"
	"math"
	"testing"
)

// TestMarshal checks that floats that are not finite are null, wherever they are, and that all else is what json.Marshal writes.
func TestMarshal(t *testing.T) {
	t.Parallel()
	type inner struct {
		X float64 `json:"x"`
		Y float32 `json:",omitempty"`
	}
	type left struct{ Z float64 }
	type outer struct {
		inner
		*left  `json:"-"`
		Left   *float64           `json:"left,omitempty"`
		Zero   float64            `json:"zero,omitzero"`
		Any    any                `json:"any"`
		Map    map[string]float64 `json:"map"`
		Rows   [][2]float64       `json:"rows"`
		Nested []inner            `json:"nested"`
		Text   []byte             `json:"text"`
		Raw    json.RawMessage    `json:"raw"`
		Empty  []float64          `json:"empty"`
		hidden float64
	}
	of := func(x float64) outer {
		return outer{
			inner: inner{X: x}, Any: []any{x, "a<b", nil}, Map: map[string]float64{"b": 1, "a": x}, Rows: [][2]float64{{x, 1}},
			Nested: []inner{{x, 2}}, Text: []byte("t"), Raw: json.RawMessage(`{"k":1}`), hidden: x,
		}
	}
	const want = `{"x":null,"any":[null,"a\u003cb",null],"map":{"a":null,"b":1},"rows":[[null,1]],"nested":[{"x":null,"Y":2}],"text":"dA==","raw":{"k":1},"empty":null}`
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got, err := Marshal(of(x)); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", x, got, err, want)
		}
	}
	plain, err := json.Marshal(of(0.5))
	if got, same := Marshal(of(0.5)); err != nil || same != nil || string(got) != string(plain) {
		t.Errorf("%s, %v; want %s", got, same, plain)
	}
	if got, err := Marshal(math.NaN()); err != nil || string(got) != "null" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := Marshal(func() {}); err == nil {
		t.Error("a function was written")
	}
}
