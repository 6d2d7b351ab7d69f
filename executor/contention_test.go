package executor

import (
	"encoding/json"
	"math"
	"testing"

	"plimsoll/planner/chain"
)

// What copies take from computation is half of what they take in both directions, and nothing where it was not measured.
func TestContentionIsThatOfTheLink(t *testing.T) {
	for text, want := range map[string]float64{
		``: 0, `{"compute_slowdown":1}`: 0, `{"compute_slowdown":0.9}`: 0, `{"compute_slowdown":1.25}`: 0.1, `{"compute_slowdown":2}`: 0.25, `"nonsense"`: 0,
	} {
		c := &chain.Chain{Extra: map[string]json.RawMessage{}}
		if text != "" {
			c.Extra[LinkField] = json.RawMessage(text)
		}
		if got := ContentionOf(c); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
