package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/bench/spread"
)

// point is where all strategies planned.
type point struct {
	key     []string           // chain, devices, memory, links
	seconds map[string]float64 // of those that have a plan
	winner  string             // the schedule that auto-flush took
	late    []string           // strategies whose time for planning had ended
}

// fixed returns the fastest schedule that is fixed; "" and +Inf where none has a plan.
func (p *point) fixed() (by string, seconds float64) {
	seconds = math.Inf(1)
	for _, name := range slices.Sorted(maps.Keys(p.seconds)) {
		if s := p.seconds[name]; s < seconds && name != automatic && name != copies && name != stale {
			by, seconds = name, s
		}
	}
	return by, seconds
}

// ratio returns how many times as long as auto-flush a strategy takes; ok is false where one of both has no plan.
func (p *point) ratio(strategy string) (times float64, ok bool) {
	auto, s := p.seconds[automatic], p.seconds[strategy]
	if strategy == bestFixed {
		_, s = p.fixed()
	}
	return s / auto, auto > 0 && s > 0 && !math.IsInf(s, 1)
}

// bestFixed stands for the fastest of the schedules that are fixed, whichever it is at a point.
const bestFixed = "the best fixed schedule"

// slower reports whether some schedule with a flush is faster than auto-flush, or has a plan where that has none.
func (p *point) slower() bool {
	_, fixed := p.fixed()
	best := fixed
	if s := p.seconds[copies]; s > 0 {
		best = min(best, s)
	}
	auto := p.seconds[automatic]
	return auto == 0 && !math.IsInf(best, 1) || auto > best*(1+1e-8)
}

// points reads the rows of a file.
func points(path string) (all []*point, err error) {
	rows, err := spread.Read(path)
	byKey := map[string]*point{}
	for i, r := range rows {
		key := strings.Join(r[:4], ",")
		p := byKey[key]
		if p == nil {
			p = &point{key: r[:4], seconds: map[string]float64{}}
			byKey[key], all = p, append(all, p)
		}
		s, failure := strconv.ParseFloat(r[5], 64)
		switch {
		case failure != nil:
			return nil, fmt.Errorf("%s: row %d: seconds %q is no number", path, i+1, r[5])
		case r[6] == late:
			p.late = append(p.late, r[4])
		case s > 0:
			p.seconds[r[4]] = s
			if r[4] == automatic {
				p.winner = r[6]
			}
		}
	}
	return all, err
}
