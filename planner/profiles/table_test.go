package profiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/planner/chain"
)

const someTable = `name,forward_ms,backward_us,output_mib,saved_bytes,weight_kb,flops,note
input,,,3,,,,
conv1,1.5,3000,2,5242880,37.6,1e9,"a, b"
conv2,0.25,500,1,,,,
`

// A table has times and sizes in its own units, defaults where cells are empty, and a loss in the end.
func TestTable(t *testing.T) {
	t.Parallel()
	c, err := ParseTable("some/net.csv", []byte(someTable))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "net" || c.InputBytes != 3<<20 || c.Len() != 3 {
		t.Fatalf("%+v", c)
	}
	first, second, loss := c.Layers[0], c.Layers[1], c.Layers[2]
	if first.Name != "conv1" || first.ForwardS != 0.0015 || first.BackwardS != 0.003 || first.OutputBytes != 2<<20 || first.SavedBytes != 5<<20 || first.WeightBytes != 37600 {
		t.Errorf("%+v", first)
	}
	if second.SavedBytes != 1<<20 || second.GradientBytes != 1<<20 || second.WeightBytes != 0 || second.DiscardForwardS != nil {
		t.Errorf("%+v", second)
	}
	if loss.Name != "loss" || loss.ForwardS != 0 || loss.OutputBytes != 0 {
		t.Errorf("%+v", loss)
	}
	own := strings.Replace(someTable, "conv2", "Loss", 1)
	if c, err := ParseTable("net.csv", []byte("\ufeff"+own)); err != nil || c.Len() != 2 || c.Layers[1].ForwardS != 0.00025 {
		t.Errorf("a loss of its own: %+v, %v", c, err)
	}
}

func TestTablesRefused(t *testing.T) {
	t.Parallel()
	cases := map[string][2]string{
		`net.csv: field "row" is missing`:                                                {someTable, ""},
		`net.csv:1: field "column" is "forward", which is missing`:                       {"forward_ms", "f"},
		`did you mean backward_ms?`:                                                      {"backward_us", "backward"},
		`net.csv:1: field "column" is "save_bytes", which is no column with a unit: did`: {"saved_bytes", "save_bytes"},
		`which is there twice`:                                                           {"saved_bytes", "output_bytes"},
		`net.csv:3: field "forward_ms" is "fast", which is not a number from 0`:          {"1.5", "fast"},
		`field "forward_ms" is "-1", which is not a number`:                              {"1.5", "-1"},
		`field "weight_kb" is "1e300", which is too large`:                               {"37.6", "1e300"},
		`net.csv:4: field "row" cannot be read: wrong number of fields`:                  {"conv2,", "conv2,,"},
		`net.csv:3: field "row" cannot be read: extraneous`:                              {`b"`, `b"x`},
		`net.csv:4: field "backward" is missing in the row of layer "conv2"`:             {"500", ""},
		`saved_bytes`: {"5242880", "1"},
	}
	for want, change := range cases {
		_, err := ParseTable("net.csv", []byte(strings.Replace(someTable, change[0], change[1], 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", change, err, want)
		}
	}
}

// Each form of a chain is read as what it is, whatever the file is called, and anything else says what there is.
func TestReadSource(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(folder, "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	graph, err := os.ReadFile("testdata/pipedream/vgg16.graph.txt")
	if err != nil {
		t.Fatal(err)
	}
	for text, layers := range map[string]int{
		string(graph): 40, someTable: 3,
		`{"format":"plimsoll.chain/v1","input_bytes":1,"layers":[{"forward_s":1,"backward_s":1,"output_bytes":1}]}`: 1,
	} {
		s, err := ReadSource(write(text))
		if err != nil || s.Chain.Len() != layers {
			t.Errorf("%.40s: %v, want %d layers", text, err, layers)
		}
	}
	for text, want := range map[string]error{"0F0,0B0": ErrNoChain, "": ErrNoChain, `{"format":"plimsoll.plan/v1"}`: chain.ErrFormat} {
		if _, err := ReadSource(write(text)); !errors.Is(err, want) || !strings.Contains(err.Error(), "file") {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func FuzzChain(f *testing.F) {
	for _, s := range []string{someTable, "name,forward_s,backward_s,output_bytes\n", "a\tb", "node1 -- Input0 -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1", "{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSource("file", data)
		if err != nil {
			return
		}
		if err := s.Chain.Validate(); err != nil {
			t.Errorf("a chain that was read is bad: %v", err)
		}
	})
}
