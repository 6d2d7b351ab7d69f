package pipeline_test

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"plimsoll/internal/fields"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/pipeline/pipelinetest"
)

func platform(t testing.TB, doc string) *pipeline.Platform {
	t.Helper()
	p, err := fields.Decode[pipeline.Platform](strings.NewReader(doc))
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return p
}

func TestPlatformIsRead(t *testing.T) {
	t.Parallel()
	p := platform(t, `{"devices":3,"memory_bytes":[1,null,3e3],"bandwidth_bytes_per_s":{"default":2,"0-2":null,"1-2":0},
		"duplex":true,"communication_buffers":false,"host_bandwidth_bytes_per_s":6,"ops_at_once":1.5,"rack":7}`)
	if !equal(p.Memory, []int64{1, pipeline.NoLimit, 3000}) || !p.Duplex || !p.NoBuffers || p.Host != 6 || p.OpsAtOnce != 1.5 || string(p.Extra["rack"]) != "7" {
		t.Errorf("%+v", p)
	}
	if p.Beta(1, 0) != 2 || !math.IsInf(p.Beta(2, 0), 1) || p.Beta(1, 2) != 0 {
		t.Errorf("bandwidths %v, %v", p.Bandwidth, p.Pairs)
	}
	if p.Seconds(8, 0, 1) != 4 || p.Seconds(8, 0, 2) != 0 || !math.IsInf(p.Seconds(8, 1, 2), 1) || p.Seconds(8, 1, 1) != 0 || p.Seconds(0, 1, 2) != 0 {
		t.Error("times of messages")
	}
	if p.Smallest() != 1 || p.Uniform() || p.WithMemory(5).Uniform() || !pipeline.NewPlatform(3, 5, 1).Uniform() {
		t.Error("what is alike")
	}
	p = platform(t, `{"devices":2}`)
	if p.Smallest() != pipeline.NoLimit || p.Beta(0, 1) != pipeline.Free() || p.Duplex || p.NoBuffers || p.Host != 0 {
		t.Errorf("defaults: %+v", p)
	}
}

// Levels give bandwidths from the inside out; a pair wins.
func TestLevels(t *testing.T) {
	t.Parallel()
	p := platform(t, `{"devices":8,"memory_bytes":9,"levels":[{"devices":2,"bandwidth_bytes_per_s":100},{"devices":4,"bandwidth_bytes_per_s":10}],
		"bandwidth_bytes_per_s":{"0-7":1}}`)
	for pair, want := range map[[2]int]float64{{0, 1}: 100, {6, 7}: 100, {1, 2}: 10, {7, 4}: 10, {0, 7}: 1, {7, 0}: 1} {
		if got := p.Beta(pair[0], pair[1]); got != want {
			t.Errorf("%v: %g, want %g", pair, got, want)
		}
	}
	if q := pipelinetest.WithLevels(9, p.Levels...); q.Devices != 8 || q.Beta(0, 7) != 10 || q.Validate() != nil {
		t.Errorf("%+v", q)
	}
}

// A platform comes back from its file as it was; readers that know no levels find all bandwidths.
func TestPlatformRoundTrip(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`{"devices":3,"memory_bytes":[1,null,3000],"bandwidth_bytes_per_s":{"default":2,"0-2":null,"0-1":0},"duplex":true,"communication_buffers":false,"host_bandwidth_bytes_per_s":12500000000,"ops_at_once":2,"rack":{"a":[1]}}`,
		`{"devices":1,"memory_bytes":null,"bandwidth_bytes_per_s":null}`,
		`{"devices":4,"memory_bytes":7,"levels":[{"devices":2,"bandwidth_bytes_per_s":5},{"devices":2,"bandwidth_bytes_per_s":2.5}]}`,
	} {
		p := platform(t, doc)
		path := filepath.Join(t.TempDir(), "platform.json")
		if err := p.Write(path); err != nil {
			t.Fatal(err)
		}
		q, err := pipeline.ReadPlatform(path)
		if err != nil {
			t.Fatal(err)
		}
		for x := range p.Devices {
			for y := range x {
				if p.Beta(x, y) != q.Beta(x, y) || len(p.Levels) > 0 && q.Pairs[[2]int{y, x}] != p.Beta(x, y) {
					t.Errorf("%s: link %d-%d: %g, %g", doc, y, x, p.Beta(x, y), q.Beta(x, y))
				}
			}
		}
		q.Pairs = p.Pairs
		if !reflect.DeepEqual(p, q) {
			t.Errorf("%+v\n%+v", p, q)
		}
	}
}

func TestBadPlatforms(t *testing.T) {
	t.Parallel()
	for doc, says := range map[string]string{
		`[]`:                                      "not a JSON object",
		`{"devices":1}x`:                          "line 1",
		`{}`:                                      `"devices" is missing`,
		`{"devices":0}`:                           `"devices" is 0, which is not between 1 and`,
		`{"devices":99999999}`:                    `is not between 1 and`,
		`{"devices":2.5}`:                         "not a whole number",
		`{"devices":2,"memory_bytes":[1]}`:        `"memory_bytes" has 1 entries for 2 devices`,
		`{"devices":2,"memory_bytes":-1}`:         `"memory_bytes" is -1, which is negative`,
		`{"devices":2,"memory_bytes":[1,"x"]}`:    `"memory_bytes[1]" is "x", which is not a number`,
		`{"devices":2,"memory_bytes":{}}`:         `"memory_bytes" is {}`,
		`{"devices":2,"bandwidth_bytes_per_s":0}`: "nothing joins device 0 and device 1",
		`{"devices":3,"bandwidth_bytes_per_s":{"0-1":1}}`:                        "nothing joins device 0 and device 2",
		`{"devices":2,"bandwidth_bytes_per_s":-3}`:                               `"bandwidth_bytes_per_s" is -3`,
		`{"devices":2,"bandwidth_bytes_per_s":{"default":1,"1-0":2}}`:            "the link 1-0",
		`{"devices":2,"bandwidth_bytes_per_s":{"default":1,"0-2":2}}`:            "the link 0-2",
		`{"devices":2,"bandwidth_bytes_per_s":{"default":1,"0-01":2}}`:           `"0-01" is neither "default" nor two devices`,
		`{"devices":2,"bandwidth_bytes_per_s":{"0-1":"fast"}}`:                   `"0-1" is "fast"`,
		`{"devices":2,"host_bandwidth_bytes_per_s":-1}`:                          `"host_bandwidth_bytes_per_s" is -1`,
		`{"devices":2,"ops_at_once":0.5}`:                                        `"ops_at_once" is 0.5: give a number from 1 on`,
		`{"devices":2,"bandwidth_bytes_per_s":5e-324}`:                           `"bandwidth_bytes_per_s" is 5e-324, which is negative, next to nothing`,
		`{"devices":2,"bandwidth_bytes_per_s":{"0-1":1e-200}}`:                   "the link 0-1",
		`{"devices":2,"levels":[{"devices":2,"bandwidth_bytes_per_s":1e-101}]}`:  "level 0 has the bandwidth 1e-101",
		`{"devices":2,"duplex":1}`:                                               `"duplex" is 1`,
		`{"devices":4,"levels":[{"devices":2,"bandwidth_bytes_per_s":1}]}`:       `"levels" multiplies to 2`,
		`{"devices":2,"levels":[{"devices":2,"bandwidth_bytes_per_s":0}]}`:       "level 0 has the bandwidth 0",
		`{"devices":2,"levels":[{"bandwidth_bytes_per_s":1}]}`:                   `level 0: field "devices" is missing`,
		`{"devices":2,"levels":[{"devices":-2,"bandwidth_bytes_per_s":1}]}`:      "level 0 has -2 devices",
		`{"devices":9,"levels":[{"devices":900},{"devices":900},{"devices":0}]}`: `"levels" multiplies to 810000`,
	} {
		p, err := fields.Decode[pipeline.Platform](strings.NewReader(doc))
		if !errors.Is(err, pipeline.ErrPlatform) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v, want %q", doc, p, err, says)
		}
	}
	if _, err := pipeline.ReadPlatform(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a missing file was read")
	}
	if err := pipeline.NewPlatform(0, 1, 1).Write(filepath.Join(t.TempDir(), "p.json")); !errors.Is(err, pipeline.ErrPlatform) {
		t.Errorf("a bad platform was written: %v", err)
	}
	if err := pipeline.NewPlatform(2, 1, math.NaN()).Validate(); !errors.Is(err, pipeline.ErrPlatform) {
		t.Errorf("NaN: %v", err)
	}
}

// FuzzPlatform: nothing panics; what is accepted is written and read again as the same links.
func FuzzPlatform(f *testing.F) {
	f.Add([]byte(`{"devices":3,"memory_bytes":[1,null,3000],"bandwidth_bytes_per_s":{"default":2,"0-2":null,"0-1":0},"duplex":true}`))
	f.Add([]byte(`{"devices":4,"memory_bytes":7,"levels":[{"devices":2,"bandwidth_bytes_per_s":5},{"devices":2,"bandwidth_bytes_per_s":2.5}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := new(pipeline.Platform)
		if p.UnmarshalJSON(data) != nil || p.Devices > 64 {
			return
		}
		var b bytes.Buffer
		if err := p.Encode(&b); err != nil {
			t.Fatal(err)
		}
		q, err := fields.Decode[pipeline.Platform](&b)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for x := range p.Devices {
			for y := range x {
				if p.Beta(x, y) != q.Beta(x, y) {
					t.Fatalf("%s: link %d-%d", data, y, x)
				}
			}
		}
	})
}
