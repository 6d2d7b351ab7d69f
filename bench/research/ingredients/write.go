package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"plimsoll/bench/report"
	"plimsoll/bench/sweep"
	"plimsoll/internal/units"
)

// page is the tables of points.
type page []sweep.PipelinePoint

// view is a way to divide the points.
type view struct {
	title string
	of    func(p *sweep.PipelinePoint) float64
	name  func(p *sweep.PipelinePoint) string
}

var views = []view{
	{"memory", func(p *sweep.PipelinePoint) float64 { return float64(p.MemoryBytes) }, func(p *sweep.PipelinePoint) string { return units.Bytes(p.MemoryBytes) }},
	{"devices", func(p *sweep.PipelinePoint) float64 { return float64(p.Devices) }, func(p *sweep.PipelinePoint) string { return fmt.Sprint(p.Devices) }},
	{"links", func(p *sweep.PipelinePoint) float64 { return p.Bandwidth }, func(p *sweep.PipelinePoint) string { return units.Rate(p.Bandwidth, "B") }},
	{"chain", nil, func(p *sweep.PipelinePoint) string { return p.Chain }},
}

// part is the points of one row.
type part struct {
	name   string
	at     float64
	points []sweep.PipelinePoint
}

// parts divides points; rows without a number stay in the order of the points.
func (v *view) parts(points []sweep.PipelinePoint) (all []part) {
	for i := range points {
		p := &points[i]
		name := v.name(p)
		k := slices.IndexFunc(all, func(x part) bool { return x.name == name })
		if k < 0 {
			k, all = len(all), append(all, part{name: name})
			if v.of != nil {
				all[k].at = v.of(p)
			}
		}
		all[k].points = append(all[k].points, *p)
	}
	slices.SortStableFunc(all, func(a, b part) int { return cmp.Compare(a.at, b.at) })
	return all
}

// fits returns at how many points joint has a plan.
func fits(points []sweep.PipelinePoint) (n int) {
	for _, p := range points {
		if p.Strategy == all && p.Fits {
			n++
		}
	}
	return n
}

func (points page) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# What stages, replicas and recomputation are worth

Question: how much slower is the best plan that lacks stages, replicas or recomputation?

    make paper-ingredients

Simulated: plans are checked, and their times follow from the costs of PipeDream's profiles of a V100 (MIT licence). Nothing ran. A number is
the time of the best plan that lacks something over the time of joint, as a geometric mean. In brackets: points without such a plan, of the
points where joint has one. Minibatches in flight hold everything that the layers save.
`)
	for i := range views {
		v := &views[i]
		fmt.Fprintf(&b, "\n| %s |", v.title)
		for _, x := range lacking {
			fmt.Fprintf(&b, " %s |", x.name)
		}
		fmt.Fprintf(&b, " points |\n|---|%s---|\n", strings.Repeat("---|", len(lacking)))
		for _, row := range v.parts(points) {
			fmt.Fprintf(&b, "| %s |", row.name)
			for _, x := range lacking {
				d := sweep.Compare(row.points, all, x.name)
				if d.Both == 0 {
					fmt.Fprintf(&b, " none (%d) |", d.OnlyA)
					continue
				}
				fmt.Fprintf(&b, " %.3f (%d) |", d.Ratio, d.OnlyA)
			}
			fmt.Fprintf(&b, " %d |\n", fits(row.points))
		}
	}
	b.WriteString("\n")
	for _, x := range lacking {
		fmt.Fprintf(&b, "- %v\n", sweep.Compare(points, all, x.name))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// picture is the first table's numbers, by memory.
func picture(points []sweep.PipelinePoint) *report.Chart {
	c := &report.Chart{
		Title: "What a plan loses without an ingredient (simulated)", Subtitle: "time over that of joint, geometric mean where both fit", Wide: true,
		X: report.Axis{Label: "memory of each device, GiB", Tight: true}, Y: report.Axis{Label: "times as slow", Tight: true},
	}
	for i, x := range lacking {
		s := report.Series{Name: x.name, Shape: report.Dots, Color: i}
		for _, row := range views[0].parts(points) {
			if d := sweep.Compare(row.points, all, x.name); d.Both > 0 {
				s.Points = append(s.Points, report.Point{X: row.at / (1 << 30), Y: d.Ratio})
			}
		}
		c.Series = append(c.Series, s)
	}
	return c
}
