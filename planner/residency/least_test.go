package residency

import (
	"testing"

	"plimsoll/planner/chain"
	"plimsoll/planner/cycle"
)

// The plan with the least memory needs, in the order of its ops, the peak that it says; the same plan comes of other times.
func TestLeastIsOfSizesAlone(t *testing.T) {
	t.Parallel()
	host := 0.5
	c := &chain.Chain{Name: "five", InputBytes: 10, Layers: make([]chain.Layer, 9)}
	for i := range c.Layers {
		c.Layers[i] = chain.Layer{
			Name: "block", ForwardS: 1, BackwardS: 2, OutputBytes: 10, SavedBytes: int64(30 + 7*(i%3)), GradientBytes: 10, WeightBytes: int64(40 + 9*i),
			Update: chain.Update{StateBytes: 80, DeviceS: 0.5, HostS: &host},
		}
	}
	link := cycle.Link{ToDevice: 100, ToHost: 100, Duplex: true}
	for _, microbatches := range []int{1, 3} {
		var peaks []int64
		for _, level := range []Sparing{AllAway, NoActivations} {
			r := Request{Chain: c, Link: link, Microbatches: microbatches}
			seq, peak, err := Least(t.Context(), r, level)
			if err != nil {
				t.Fatal(err)
			}
			result, err := cycle.Simulate(c, seq, link, cycle.Limits{Memory: peak, Host: cycle.NoLimit})
			if err != nil || result.InOrderPeak != peak {
				t.Fatalf("level %d: %v, peak %+v in place of %d", level, err, result, peak)
			}
			slow := *c
			slow.Layers = append([]chain.Layer(nil), c.Layers...)
			for i := range slow.Layers {
				slow.Layers[i].ForwardS *= float64(9 - i)
			}
			r.Chain, r.Link = &slow, cycle.Link{ToDevice: 1, ToHost: 1}
			if other, _, err := Least(t.Context(), r, level); err != nil || other.String() != seq.String() {
				t.Errorf("level %d, other times: %v, %v in place of %v", level, err, other, seq)
			}
			peaks = append(peaks, peak)
		}
		if peaks[0] > peaks[1] {
			t.Errorf("%d microbatches: the more leaves, the more memory: %v", microbatches, peaks)
		}
	}
}
