package chain

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// trained is a chain with all costs of weights: a layer updated anywhere, one tied to it by name, a frozen one, the loss.
const trained = `{"format":"plimsoll.chain/v1","input_bytes":1,"host_memory_bandwidth_bytes_per_s":2e10,"layers":[
{"name":"embed","forward_s":1,"backward_s":2,"output_bytes":3,"weight_bytes":40,"weight_gradient_bytes":20,"state_bytes":80,"update_s":0.5,"host_update_s":4},
{"name":"frozen","forward_s":1,"backward_s":2,"output_bytes":3,"weight_bytes":7,"weight_gradient_bytes":0},
{"name":"head","forward_s":1,"backward_s":2,"output_bytes":3,"weights_of":"embed"},
{"name":"loss","forward_s":1,"backward_s":2,"output_bytes":3}]}`

func readTrained(t *testing.T) *Chain {
	t.Helper()
	c, err := decode(trained)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Plans for several devices count the weights of a chain without rounding, also where layers are grouped.
func TestUnroundedWeights(t *testing.T) {
	t.Parallel()
	c, err := decode(strings.Replace(trained, `"weight_bytes":7`, `"weight_bytes":7,"unrounded_weight_bytes":12`, 1))
	if err != nil {
		t.Fatal(err)
	}
	for l, want := range []int64{40, 12, 0, 0} {
		if got := c.Layer(l + 1).WideWeights(); got != want {
			t.Errorf("layer %d: %d, want %d", l+1, got, want)
		}
	}
	var out bytes.Buffer
	if err := c.Encode(&out); err != nil {
		t.Fatal(err)
	}
	if field := `"weight_bytes":7,"unrounded_weight_bytes":12,`; strings.Count(out.String(), "unrounded") != 1 || !strings.Contains(out.String(), field) {
		t.Errorf("%s is not written in\n%s", field, &out)
	}
}

func TestCostsOfWeightsAreReadAndWritten(t *testing.T) {
	t.Parallel()
	c := readTrained(t)
	gradient, none, host := int64(20), int64(0), 4.0
	want := []Update{{GradientBytes: &gradient, StateBytes: 80, DeviceS: 0.5, HostS: &host}, {GradientBytes: &none}, {WeightsOf: 1}, {}}
	for l := 1; l <= c.Len(); l++ {
		if got := c.Layer(l).Update; !reflect.DeepEqual(got, want[l-1]) {
			t.Errorf("layer %d: %+v, want %+v", l, got, want[l-1])
		}
		if owner := []int{1, 2, 1, 0}[l-1]; c.Owner(l) != owner {
			t.Errorf("layer %d reads the weights of %d, want %d", l, c.Owner(l), owner)
		}
		if bytes := []int64{20, 0, 0, 0}[l-1]; c.Layer(l).WeightGradient() != bytes {
			t.Errorf("the gradient of layer %d has %d bytes, want %d", l, c.Layer(l).WeightGradient(), bytes)
		}
	}
	if c.HostMemoryBandwidth != 2e10 {
		t.Errorf("host memory bandwidth %g", c.HostMemoryBandwidth)
	}
	var out bytes.Buffer
	if err := c.Encode(&out); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"weight_gradient_bytes":20,"state_bytes":80,"update_s":0.5,"host_update_s":4`, `"weights_of":1`, `"weight_gradient_bytes":0`,
		`"host_memory_bandwidth_bytes_per_s":20000000000`} {
		if !strings.Contains(out.String(), field) {
			t.Errorf("%s is not written in\n%s", field, &out)
		}
	}
	if again, err := Decode(&out); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

// A number names the owner like its name does; the owner may follow the tied layer.
func TestOwnersAreNamedOrNumbered(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{`"weights_of":"embed"`: `"weights_of":1`, `"name":"embed"`: `"name":"embed","note":0`} {
		c, err := decode(strings.Replace(trained, from, to, 1))
		if err != nil || c.Owner(3) != 1 {
			t.Errorf("%s: %v", to, err)
		}
	}
	c, err := decode(`{"format":"plimsoll.chain/v1","input_bytes":0,"layers":[
		{"forward_s":0,"backward_s":0,"output_bytes":1,"weights_of":"tail"},{"name":"tail","forward_s":0,"backward_s":0,"output_bytes":1,"weight_bytes":4}]}`)
	if err != nil || c.Owner(1) != 2 {
		t.Errorf("an owner behind: %v", err)
	}
}

func TestBadCostsOfWeightsAreRefused(t *testing.T) {
	t.Parallel()
	for change, want := range map[[2]string]string{
		{`"state_bytes":80`, `"state_bytes":-80`}:                            `layer 1 (embed): field "state_bytes" is -80, which is negative`,
		{`"state_bytes":80`, `"state_bytes":9.5`}:                            `layer 1 (embed): field "state_bytes" is 9.5, which is not a whole number`,
		{`"state_bytes":80`, `"state_bytes":9007199254740992`}:               `layer 1 (embed): field "state_bytes" is 9007199254740992, which makes the sum of all sizes exceed 2^53 bytes`,
		{`"weight_bytes":7`, `"weight_bytes":7,"unrounded_weight_bytes":6`}:  `layer 2 (frozen): field "unrounded_weight_bytes" is 6, which is less than weight_bytes, of the same parameters: leave it out where none is rounded`,
		{`"weight_bytes":7`, `"weight_bytes":7,"unrounded_weight_bytes":-1`}: `layer 2 (frozen): field "unrounded_weight_bytes" is -1, which is negative`,
		{`gradient_bytes":20`, `gradient_bytes":-1`}:                         `layer 1 (embed): field "weight_gradient_bytes" is -1, which is negative`,
		{`"update_s":0.5`, `"update_s":-0.5`}:                                `layer 1 (embed): field "update_s" is -0.5, which is negative or not finite`,
		{`"host_update_s":4`, `"host_update_s":"4"`}:                         `layer 1 (embed): field "host_update_s" is "4", which is not a number`,
		{`"host_update_s":4`, `"host_update_s":-4`}:                          `layer 1 (embed): field "host_update_s" is -4, which is negative or not finite`,
		{`"weight_bytes":40`, `"weight_bytes":0`}:                            `layer 1 (embed): field "weight_gradient_bytes" is 20, which belongs to a layer with weight_bytes above 0`,
		{`gradient_bytes":0`, `gradient_bytes":0,"state_bytes":1`}:           `layer 2 (frozen): field "state_bytes" is 1, which belongs to a layer that is updated: weight_bytes and weight_gradient_bytes above 0`,
		{`"weights_of":"embed"`, `"weights_of":"x"`}:                         `layer 3 (head): field "weights_of" is "x", which is the name of no layer`,
		{`"name":"frozen"`, `"name":"embed"`}:                                `layer 3 (head): field "weights_of" is "embed", which is the name of layers 1 and 2: give the number`,
		{`"weights_of":"embed"`, `"weights_of":0`}:                           `layer 3 (head): field "weights_of" is 0, which is not the number or the name of a layer`,
		{`"weights_of":"embed"`, `"weights_of":[1]`}:                         `layer 3 (head): field "weights_of" is [1], which is not the number or the name of a layer`,
		{`"weights_of":"embed"`, `"weights_of":5`}:                           `layer 3 (head): field "weights_of" is 5, which is not the number of another layer, of 1 to 4`,
		{`"weights_of":"embed"`, `"weights_of":-1`}:                          `layer 3 (head): field "weights_of" is -1, which is not the number of another layer, of 1 to 4`,
		{`"weights_of":"embed"`, `"weights_of":3`}:                           `layer 3 (head): field "weights_of" is 3, which is not the number of another layer, of 1 to 4`,
		{`"weights_of":"embed"`, `"weights_of":4`}:                           `layer 3 (head): field "weights_of" is 4, which is a layer without weights of its own`,
		{`"weights_of":"embed"`, `"weights_of":1,"weight_bytes":39`}:         `layer 3 (head): field "weights_of" is 1, which is a layer with weight_bytes 40, and this one has 39: leave them out here`,
		{`"weights_of":"embed"`, `"weights_of":1,"state_bytes":3`}:           `layer 3 (head): field "weights_of" is 1, which is a layer with another weight_gradient_bytes or state_bytes: leave them out here`,
		{`bandwidth_bytes_per_s":2e10`, `bandwidth_bytes_per_s":-2`}:         `field "host_memory_bandwidth_bytes_per_s" is -2, which is negative or not finite`,
		{`bandwidth_bytes_per_s":2e10`, `bandwidth_bytes_per_s":1e-200`}:     `field "host_memory_bandwidth_bytes_per_s" is 1e-200, which is next to nothing: times would be too long for numbers`,
	} {
		doc := strings.Replace(trained, change[0], change[1], 1)
		if doc == trained {
			t.Fatalf("%q is not in the chain", change[0])
		}
		if _, err := decode(doc); !errors.Is(err, ErrFormat) || err.Error() != "bad chain: "+want {
			t.Errorf("%s:\n%v, want\n%s", change[1], err, want)
		}
	}
}

// Groups add up what belongs to weights. Tied layers keep their tie where each is a group, and are refused otherwise.
func TestGroupsKeepCostsOfWeights(t *testing.T) {
	t.Parallel()
	c := readTrained(t)
	if same, err := Group(c, []int{1, 2, 3, 4}); err != nil || !reflect.DeepEqual(same.Layers, c.Layers) {
		t.Errorf("groups of one: %+v, %v", same, err)
	}
	for _, lasts := range [][]int{{2, 3, 4}, {1, 2, 4}, {1, 3, 4}} {
		if _, err := Group(c, lasts); !errors.Is(err, ErrGroups) || !strings.Contains(err.Error(), "layers 1 and 3 have the same weights") {
			t.Errorf("%v: %v", lasts, err)
		}
	}
	c.Layers[2].Update.WeightsOf, c.Layers[3].Update.WeightsOf = 0, 3
	c.Layers[2].WeightBytes = 5
	g, err := Group(c, []int{2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	gradient, host := int64(20), 4.0
	want := []Update{{GradientBytes: &gradient, StateBytes: 80, DeviceS: 0.5, HostS: &host}, {}, {WeightsOf: 2}}
	for i := range want {
		if !reflect.DeepEqual(g.Layers[i].Update, want[i]) {
			t.Errorf("group %d: %+v, want %+v", i+1, g.Layers[i].Update, want[i])
		}
	}
	c.Layers[3].Update.WeightsOf = 0
	if g, err = Group(c, []int{4}); err != nil || g.Layers[0].Update.HostS != nil || g.Layers[0].WeightGradient() != 25 {
		t.Errorf("a group with a layer that the host cannot update: %+v, %v", g, err)
	}
}

// Batch sizes of one model agree on its weights, and on what belongs to them.
func TestBatchSizesAgreeOnState(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(l *Layer){
		`field "state_bytes" is 81, which is not the chain's, 80`:           func(l *Layer) { l.Update.StateBytes++ },
		`field "weight_gradient_bytes" is 40, which is not the chain's, 20`: func(l *Layer) { l.Update.GradientBytes = nil },
		`field "weights_of" is 2, which is not the chain's, 0`:              func(l *Layer) { l.Update.WeightsOf = 2 },
	} {
		c, other := readTrained(t), readTrained(t)
		c.Batch, other.Batch = 1, 2
		c.Others = []*Chain{other}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(other.Layer(1))
		if err := c.Validate(); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "layer 1 (embed): other_batches[0]: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
