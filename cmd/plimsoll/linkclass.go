package main

import (
	"fmt"
	"io"
	"slices"

	"plimsoll/internal/units"
	"plimsoll/planner/pipeline"
)

// linkClass is the closest place that two devices share, the closest first.
type linkClass int

const (
	sameGPU linkClass = iota
	sameNode
	betweenNodes
)

var linkClasses = [...]string{sameGPU: "same GPU", sameNode: "same node", betweenNodes: "between nodes"}

// alike is how much slower than the fastest one the slowest link of a class is at most where one bandwidth stands for all of them.
const alike = 0.8

// to returns the class of the link between two devices.
func (p place) to(q place) linkClass {
	switch {
	case p.Host != q.Host:
		return betweenNodes
	case p.GPU != "" && p.GPU == q.GPU:
		return sameGPU
	}
	return sameNode
}

// classFigure holds the measurements of the links of a class.
type classFigure struct {
	Class  string `json:"class"`
	Pairs  int    `json:"pairs"`
	Median rate   `json:"median_bytes_per_s"`
	Least  rate   `json:"least_bytes_per_s"`
	Most   rate   `json:"most_bytes_per_s"`
}

func (c *classFigure) write(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s\t%v, from %v to %v\n", c.Class, units.Count(c.Pairs, "link"), c.Median, c.Least, c.Most)
}

// classes returns the classes of links that there are between the devices, the closest first.
func (v *inventory) classes() (all []classFigure) {
	speeds := make([][]float64, len(linkClasses))
	for y, at := range v.places {
		for x := range y {
			if speed, joined := v.links[[2]int{v.of[x], v.of[y]}]; joined {
				c := v.places[x].to(at)
				speeds[c] = append(speeds[c], speed)
			}
		}
	}
	for c, list := range speeds {
		if n := len(list); n > 0 {
			slices.Sort(list)
			all = append(all, classFigure{linkClasses[c], n, rate(list[n/2]), rate(list[0]), rate(list[n-1])})
		}
	}
	return all
}

// levels returns the classes as levels of a platform. Nodes have equally many GPUs of equally many devices, in the order of the
// ranks. Links have the median bandwidth of their class. Else it says why they are none.
func (v *inventory) levels() (levels []pipeline.Level, why string) {
	size := 1
	for _, f := range v.classes() {
		if float64(f.Least) < alike*float64(f.Most) {
			return nil, fmt.Sprintf("the slowest link of class %q has less than %.0f %% of the fastest one's bandwidth", f.Class, 100*alike)
		}
		c := linkClass(slices.Index(linkClasses[:], f.Class))
		n := 1
		for _, q := range v.places[1:] {
			if v.places[0].to(q) <= c {
				n++
			}
		}
		if !v.regular(c, n) {
			return nil, fmt.Sprintf("class %q does not join equally many devices each time, in the order of their numbers", f.Class)
		}
		levels, size = append(levels, pipeline.Level{Devices: n / size, Bandwidth: float64(f.Median)}), n
	}
	return levels, ""
}

// regular reports whether devices have links of a class, or closer ones, just within each n of them that follow each other.
func (v *inventory) regular(c linkClass, n int) bool {
	for y, at := range v.places {
		for x := range y {
			if (v.places[x].to(at) <= c) != (x/n == y/n) {
				return false
			}
		}
	}
	return len(v.places)%n == 0
}
