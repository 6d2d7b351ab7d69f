package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sample() *Trace {
	compute := Track{Name: "compute", Slices: []Slice{
		{Name: "Fck1", Category: "forward", Start: 0, End: 0.5, Args: map[string]any{"layer": 1}},
		{Name: "conv", Category: "kernel", Start: 0.1, End: 0.3},
		{Name: "bn", Category: "kernel", Start: 0.3, End: 0.5},
		{Name: "B1", Category: "backward", Start: 0.5, End: 1.0 / 3 * 2},
	}}
	memory := Counter{Name: "memory", Unit: "bytes", Samples: []Sample{{0, 100}, {0.5, 250}, {0.5, 200}}}
	return &Trace{
		Meta: map[string]string{"model": "resnet56"},
		Processes: []Process{
			{Name: "cpu predicted", Tracks: []Track{compute, {Name: "offload"}}, Counters: []Counter{memory}},
			{Name: "cpu measured", Tracks: []Track{compute}, Counters: []Counter{memory}},
		},
	}
}

// parsed mirrors what a viewer reads.
type parsed struct {
	DisplayTimeUnit string            `json:"displayTimeUnit"`
	OtherData       map[string]string `json:"otherData"`
	TraceEvents     []parsedEvent     `json:"traceEvents"`
}

type parsedEvent struct {
	Ph   string         `json:"ph"`
	Pid  *int           `json:"pid"`
	Tid  *int           `json:"tid"`
	Name string         `json:"name"`
	Cat  string         `json:"cat"`
	TS   *float64       `json:"ts"`
	Dur  *float64       `json:"dur"`
	Args map[string]any `json:"args"`
}

func write(t testing.TB, trace *Trace) parsed {
	t.Helper()
	var b bytes.Buffer
	if err := trace.Write(&b); err != nil {
		t.Fatal(err)
	}
	var p parsed
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

// names returns the metadata of a kind by process and thread.
func (p parsed) names(kind string) map[[2]int]string {
	names := map[[2]int]string{}
	for _, e := range p.TraceEvents {
		if e.Ph == "M" && e.Name == kind {
			names[[2]int{*e.Pid, *e.Tid}], _ = e.Args["name"].(string)
		}
	}
	return names
}

// Every slice and sample of the trace comes back, in order, at its time, under its process and track.
func TestReadBack(t *testing.T) {
	t.Parallel()
	want := sample()
	p := write(t, want)
	if p.DisplayTimeUnit != "ms" || p.OtherData["model"] != "resnet56" {
		t.Errorf("header is %q, %v", p.DisplayTimeUnit, p.OtherData)
	}
	processes, threads := p.names("process_name"), p.names("thread_name")
	slices, samples := map[string][]Slice{}, map[string][]Sample{}
	for i, e := range p.TraceEvents {
		if e.Pid == nil || e.Tid == nil {
			t.Fatalf("event %d has no pid or tid", i)
		}
		process := processes[[2]int{*e.Pid, 0}]
		switch e.Ph {
		case "X":
			key := process + "/" + threads[[2]int{*e.Pid, *e.Tid}]
			slices[key] = append(slices[key], Slice{e.Name, e.Cat, *e.TS / 1e6, (*e.TS + *e.Dur) / 1e6, e.Args})
		case "C":
			key := process + "/" + e.Name
			samples[key] = append(samples[key], Sample{*e.TS / 1e6, e.Args["bytes"].(float64)})
		case "M":
		default:
			t.Errorf("event %d has phase %q", i, e.Ph)
		}
	}
	for _, process := range want.Processes {
		for _, track := range process.Tracks {
			compareSlices(t, slices[process.Name+"/"+track.Name], track.Slices)
		}
		for _, c := range process.Counters {
			compareSamples(t, samples[process.Name+"/"+c.Name], c.Samples)
		}
	}
}

func compareSlices(t *testing.T, got, want []Slice) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d slices came back of %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Name != w.Name || g.Category != w.Category || len(g.Args) != len(w.Args) ||
			math.Abs(g.Start-w.Start) > 1e-9 || math.Abs(g.End-w.End) > 1e-9 {
			t.Errorf("slice %d came back as %+v, want %+v", i, g, w)
		}
	}
}

func compareSamples(t *testing.T, got, want []Sample) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d samples came back of %d", len(got), len(want))
	}
	for i, w := range want {
		if math.Abs(got[i].Time-w.Time) > 1e-9 || got[i].Value != w.Value {
			t.Errorf("sample %d came back as %+v, want %+v", i, got[i], w)
		}
	}
}

// Metadata names every process and thread once, and numbers them in order.
func TestMetadata(t *testing.T) {
	t.Parallel()
	p := write(t, sample())
	count := map[string]int{}
	for _, e := range p.TraceEvents {
		if e.Ph == "M" {
			count[e.Name]++
		}
	}
	for name, want := range map[string]int{"process_name": 2, "process_sort_index": 2, "thread_name": 3, "thread_sort_index": 3} {
		if count[name] != want {
			t.Errorf("%d events %s, want %d", count[name], name, want)
		}
	}
	if got := p.names("process_name")[[2]int{2, 0}]; got != "cpu measured" {
		t.Errorf("process 2 is %q", got)
	}
	if got := p.names("thread_name")[[2]int{1, 2}]; got != "offload" {
		t.Errorf("thread 2 of process 1 is %q", got)
	}
}

// Slices that touch in seconds touch in the file, whatever the rounding.
func TestTouchingSlicesDoNotOverlap(t *testing.T) {
	t.Parallel()
	slices := 0
	rapid.Check(t, func(rt *rapid.T) {
		track := Track{Name: "compute"}
		end := 0.0
		for _, d := range rapid.SliceOf(rapid.Float64Range(0, 3)).Draw(rt, "durations") {
			track.Slices = append(track.Slices, Slice{Name: "F", Start: end, End: end + d})
			end += d
		}
		slices += len(track.Slices)
		var last int64
		for _, e := range write(t, &Trace{Processes: []Process{{Name: "p", Tracks: []Track{track}}}}).TraceEvents {
			if e.Ph != "X" {
				continue
			}
			start, duration := int64(math.Round(*e.TS*1000)), int64(math.Round(*e.Dur*1000))
			if start != last || duration < 0 {
				rt.Fatalf("a slice starts at %d ns, the one before ends at %d ns", start, last)
			}
			last = start + duration
		}
	})
	want := 100
	if testing.Short() {
		want = 20 // rapid draws a fifth
	}
	if slices < want {
		t.Errorf("only %d slices were drawn", slices)
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	track := func(s ...Slice) Process { return Process{Name: "p", Tracks: []Track{{"t", s}}} }
	counter := func(s ...Sample) Process { return Process{Name: "p", Counters: []Counter{{"m", "bytes", s}}} }
	cases := map[string]Process{
		"process \"\"":                {},
		"track \"\"":                  {Name: "p", Tracks: []Track{{}}},
		"slice 0 \"\"":                track(Slice{}),
		"start -1 s":                  track(Slice{Name: "a", Start: -1}),
		"end -1 s":                    track(Slice{Name: "a", End: -1}),
		"start NaN s":                 track(Slice{Name: "a", Start: nan}),
		"shows at most 9e+09 s":       track(Slice{Name: "a", End: 1e10}),
		"sample 0 is at 1e+10 s":      counter(Sample{1e10, 1}),
		"end +Inf s":                  track(Slice{Name: "a", End: math.Inf(1)}),
		"unsupported":                 track(Slice{Name: "a", Args: map[string]any{"x": func() {}}}),
		"before slice 0":              track(Slice{Name: "a", Start: 2, End: 2}, Slice{Name: "b", Start: 1, End: 1}),
		"within a slice":              track(Slice{Name: "a", End: 2}, Slice{Name: "b", Start: 1, End: 3}),
		"no name or no unit":          {Name: "p", Counters: []Counter{{Name: "m"}}},
		"NaN at 0 s":                  counter(Sample{0, nan}),
		"+Inf at 0 s":                 counter(Sample{0, math.Inf(1)}),
		"sample 1, 1 at 1 s":          counter(Sample{2, 1}, Sample{1, 1}),
		"sample 0, 1 at -1 s, is not": counter(Sample{-1, 1}),
	}
	for want, process := range cases {
		var b bytes.Buffer
		err := (&Trace{Processes: []Process{process}}).Write(&b)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
		if b.Len() > 0 {
			t.Errorf("%q: %d bytes were written", want, b.Len())
		}
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "trace.json")
	bad := &Trace{Processes: []Process{{}}}
	if err := bad.WriteFile(path); !errors.Is(err, ErrInvalid) {
		t.Errorf("an invalid trace: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("an invalid trace leaves %v", files)
	}
	if err := sample().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !json.Valid(text) {
		t.Errorf("the file is not JSON: %v", err)
	}
}

// The same trace is the same file, and one without anything is still one.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	var a, b, empty bytes.Buffer
	for w, trace := range map[*bytes.Buffer]*Trace{&a: sample(), &b: sample(), &empty: {}} {
		if err := trace.Write(w); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two writings differ")
	}
	if !json.Valid(empty.Bytes()) {
		t.Errorf("an empty trace is %s", empty.String())
	}
}
