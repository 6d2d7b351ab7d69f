package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/bench/spread"
	"plimsoll/planner/residency"
)

// point is where all strategies planned: their times, without those that have no plan.
type point struct {
	model, size, link, limit string
	seconds                  map[string]float64
}

// best returns the fastest plan of the literature's strategies; "" where none has one.
func (p *point) best() (by string, seconds float64) {
	seconds = math.Inf(1)
	for _, name := range slices.Sorted(maps.Keys(p.seconds)) {
		if s := p.seconds[name]; name != residency.Auto && s < seconds {
			by, seconds = name, s
		}
	}
	return by, seconds
}

// gain returns how many times as long the fastest other plan takes.
func (p *point) gain() float64 {
	_, s := p.best()
	return s / p.seconds[residency.Auto]
}

// points reads the rows of a file.
func points(path string) (all []*point, err error) {
	rows, err := spread.Read(path)
	byKey := map[string]*point{}
	for _, r := range rows {
		key := strings.Join(r[:4], ",")
		if byKey[key] == nil {
			byKey[key] = &point{r[0], r[1], r[2], r[3], map[string]float64{}}
			all = append(all, byKey[key])
		}
		s, failure := strconv.ParseFloat(r[6], 64)
		if failure != nil {
			return nil, failure
		}
		if s > 0 {
			byKey[key].seconds[r[5]] = s
		}
	}
	return all, err
}

// printTable prints what residency gains, on the mean and where it gains most, and where it is slower.
func printTable(w io.Writer, path string) error {
	all, err := points(path)
	if err != nil {
		return err
	}
	var alone, slower, compared []*point
	for _, p := range all {
		by, _ := p.best()
		switch {
		case p.seconds[residency.Auto] == 0 && by != "":
			slower = append(slower, p)
		case by == "" && p.seconds[residency.Auto] > 0:
			alone = append(alone, p)
		case by != "":
			compared = append(compared, p)
			if p.gain() < 1-1e-9 {
				slower = append(slower, p)
			}
		}
	}
	fmt.Fprintf(w, "%d points. residency is slower than some other strategy, or has no plan where one has, in %d. It alone has a plan in %d.\n", len(all), len(slower), len(alone))
	fmt.Fprintf(w, "In the other %d the fastest other plan takes %.3f times as long on the (geometric) mean.\n\n", len(compared), mean(compared, (*point).gain))
	printStrategies(w, all)
	for _, by := range []struct {
		name string
		of   func(*point) string
	}{
		{"model", func(p *point) string { return p.model }}, {"tokens of a step (images: a 256th)", func(p *point) string { return p.size }},
		{"link, GB/s", func(p *point) string { return p.link }}, {"limit, from the smallest to resident", func(p *point) string { return p.limit }},
	} {
		printGains(w, by.name, compared, by.of)
	}
	slices.SortStableFunc(compared, func(a, b *point) int { return cmp.Compare(b.gain(), a.gain()) })
	printPoints(w, "It pays most here:", compared[:min(12, len(compared))])
	printPoints(w, "It is slower here:", slower)
	return nil
}

// mean returns the geometric mean.
func mean(all []*point, of func(*point) float64) float64 {
	sum := 0.0
	for _, p := range all {
		sum += math.Log(of(p))
	}
	return math.Exp(sum / float64(max(len(all), 1)))
}

// printStrategies compares residency with each other strategy where both have a plan.
func printStrategies(w io.Writer, all []*point) {
	fmt.Fprint(w, "| strategy | has a plan | residency also | takes times as long, mean | most |\n|---|---:|---:|---:|---:|\n")
	for _, s := range residency.Strategies() {
		if s.Name == residency.Auto {
			continue
		}
		has, most := 0, 0.0
		var both []*point
		ratio := func(p *point) float64 { return p.seconds[s.Name] / p.seconds[residency.Auto] }
		for _, p := range all {
			if p.seconds[s.Name] == 0 {
				continue
			}
			if has++; p.seconds[residency.Auto] > 0 {
				both = append(both, p)
				most = max(most, ratio(p))
			}
		}
		fmt.Fprintf(w, "| %s | %d | %d | %.3f | %.2f |\n", s.Name, has, len(both), mean(both, ratio), most)
	}
	fmt.Fprintln(w)
}

// printGains prints the mean gain of groups of points.
func printGains(w io.Writer, name string, all []*point, of func(*point) string) {
	groups, order := map[string][]*point{}, []string{}
	for _, p := range all {
		if groups[of(p)] == nil {
			order = append(order, of(p))
		}
		groups[of(p)] = append(groups[of(p)], p)
	}
	fmt.Fprintf(w, "| %s | points | the fastest other plan takes times as long |\n|---|---:|---:|\n", name)
	for _, key := range order {
		fmt.Fprintf(w, "| %s | %d | %.3f |\n", key, len(groups[key]), mean(groups[key], (*point).gain))
	}
	fmt.Fprintln(w)
}

func printPoints(w io.Writer, title string, all []*point) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "%s\n\n| model | tokens | link, GB/s | limit | residency, simulated | fastest other | by | ratio |\n|---|---:|---:|---|---:|---:|---|---:|\n", title)
	for _, p := range all {
		by, s := p.best()
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.4g s | %.4g s | %s | %.3f |\n", p.model, p.size, p.link, p.limit, p.seconds[residency.Auto], s, by, p.gain())
	}
	fmt.Fprintln(w)
}
