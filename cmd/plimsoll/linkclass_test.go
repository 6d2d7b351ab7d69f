package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// measured is devices at places, "host/gpu", whose links have the bandwidths of their classes.
func measured(places []string, speeds [3]float64) *inventory {
	v := &inventory{links: map[[2]int]float64{}}
	for y, text := range places {
		host, gpu, _ := strings.Cut(text, "/")
		v.places, v.of = append(v.places, place{host, gpu}), append(v.of, y)
		v.figures = append(v.figures, deviceFigures{Name: text, MemoryBytes: 1 << 30, ToDevice: 1e9, ToHost: 1e9})
		for x := range y {
			v.links[[2]int{x, y}] = speeds[v.places[x].to(v.places[y])]
		}
	}
	return v
}

// Links of equal nodes become levels, in which any two devices keep their measured bandwidth to within a fifth. If nodes are unequal, or if
// the bandwidths of a class differ by more than a fifth, every link is listed by itself.
func TestLinkClasses(t *testing.T) {
	t.Parallel()
	two := strings.Fields("a/0 a/0 a/1 a/1 b/0 b/0 b/1 b/1")
	for _, c := range []struct {
		name   string
		places []string
		slow   float64 // the link of the first device to the last one, of its class
		levels string
		why    string
	}{
		{"GPUs in halves", two, 1, "[{2 9e+11} {2 1e+11} {2 2e+09}]", ""},
		{"nodes of GPUs", strings.Fields("a/0 a/1 a/2 b/0 b/1 b/2"), 0.9, "[{3 1e+11} {2 2e+09}]", ""},
		{"one of each node", strings.Fields("a/0 b/0 c/0"), 1, "[{3 2e+09}]", ""},
		{"one node without GPUs", strings.Fields("a a a"), 0.81, "[{3 1e+11}]", ""},
		{"nodes without GPUs", strings.Fields("a a b b"), 1, "[{2 1e+11} {2 2e+09}]", ""},
		{"a slow link", two, 0.7, "[]", `class "between nodes" has less than 80 %`},
		{"another order", strings.Fields("a/0 b/0 a/1 b/1"), 1, "[]", `class "same node" does not join equally many`},
		{"unequal nodes", strings.Fields("a/0 a/1 b/0"), 1, "[]", `class "same node" does not join equally many`},
		{"unequal GPUs", strings.Fields("a/0 a/0 a/1 a/2"), 1, "[]", `class "same GPU" does not join equally many`},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := measured(c.places, [3]float64{9e11, 1e11, 2e9})
			v.links[[2]int{0, len(c.places) - 1}] *= c.slow
			levels, why := v.levels()
			if fmt.Sprint(levels) != c.levels || why == "" != (levels != nil) || !strings.Contains(why, c.why) {
				t.Errorf("%v, %q", levels, why)
			}
			file := filepath.Join(t.TempDir(), "p.json")
			for _, forced := range []bool{false, true} {
				if forced {
					levels = nil
				}
				p, err := v.platform(units.Size{}, levels)
				if err == nil {
					err = p.Write(file)
				}
				if err != nil {
					t.Fatal(err)
				}
				if p, err = pipeline.ReadPlatform(file); err != nil || len(p.Levels) > 0 != (len(levels) > 1) {
					t.Fatalf("%+v, %v", p, err)
				}
				for y := range p.Devices {
					for x := range y {
						want := v.links[[2]int{x, y}]
						if got := p.Beta(x, y); levels == nil && got != want || math.Abs(got-want) > 0.2*got {
							t.Errorf("forced %v: link %d-%d of %g, measured %g", forced, x, y, got, want)
						}
					}
				}
			}
		})
	}
}

// The table has the median, the least and the most of each class.
func TestTableOfLinkClasses(t *testing.T) {
	t.Parallel()
	v := measured(strings.Fields("a/0 a/1 b/0 b/1"), [3]float64{0, 1e11, 2e9})
	v.links[[2]int{0, 3}] = 1e9
	all := v.classes()
	if fmt.Sprint(all) != "[{same node 2 100 GB/s 100 GB/s 100 GB/s} {between nodes 4 2.00 GB/s 1.00 GB/s 2.00 GB/s}]" {
		t.Errorf("%v", all)
	}
	var b strings.Builder
	all[1].write(&b)
	if b.String() != "between nodes\t4 links\t2.00 GB/s, from 1.00 GB/s to 2.00 GB/s\n" {
		t.Errorf("%q", b.String())
	}
}
