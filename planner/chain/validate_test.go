package chain

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestValidateRefusesWhatNoFileCanSay: values that a program can make but JSON cannot.
func TestValidateRefusesWhatNoFileCanSay(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for want, spoil := range map[string]func(c *Chain){
		`layer 1 (conv): field "forward_s" is NaN`:                func(c *Chain) { c.Layers[0].ForwardS = nan },
		`layer 2 (loss): field "backward_s" is +Inf`:              func(c *Chain) { c.Layers[1].BackwardS = inf },
		`field "bandwidth_bytes_per_s" is 1e-101, which is next`:  func(c *Chain) { c.Bandwidth = 1e-101 },
		`field "bandwidth_bytes_per_s" is +Inf`:                   func(c *Chain) { c.Bandwidth = inf },
		`layer 1 (conv): field "backward_weight_s" is NaN`:        func(c *Chain) { c.Layers[0].BackwardWeightS = &nan },
		`layer 2 (loss): field "backward_s" is 1e+308, which mak`: func(c *Chain) { c.Layers[0].ForwardS, c.Layers[1].BackwardS = 1e308, 1e308 },
		`layer 2 (loss): field "weight_bytes" is 92233720`:        func(c *Chain) { c.Layers[1].WeightBytes = math.MaxInt64 },
		`field "layers" is []`:                                    func(c *Chain) { c.Layers = nil },
	} {
		c, err := Read("testdata/tiny.json")
		if err != nil {
			t.Fatal(err)
		}
		spoil(c)
		if err := c.Validate(); !errors.Is(err, ErrFormat) || !strings.HasPrefix(err.Error(), "bad chain: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
