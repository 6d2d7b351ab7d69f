package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// printTable prints what auto-flush takes, and how much longer others are.
func printTable(w io.Writer, path string) error {
	all, err := points(path)
	if err != nil {
		return err
	}
	late := slices.DeleteFunc(slices.Clone(all), func(p *point) bool { return !slices.Contains(p.late, automatic) })
	all = slices.DeleteFunc(all, func(p *point) bool { return slices.Contains(p.late, automatic) })
	none := slices.DeleteFunc(slices.Clone(all), func(p *point) bool { return p.seconds[automatic] > 0 || p.slower() })
	slower := slices.DeleteFunc(slices.Clone(all), func(p *point) bool { return !p.slower() })
	fmt.Fprintf(w, "%d points. auto-flush is slower than some schedule, or has no plan where one has, in %d. No schedule has a plan in %d.\n", len(all), len(slower), len(none))
	fmt.Fprintf(w, "Left out are %d points at which auto-flush was late. Updates are counted, except those of joint.\n\n", len(late))
	printWinners(w, all)
	printStrategies(w, all)
	for i, name := range []string{"chain", "devices", "GiB of a device", "links, GB/s"} {
		printGroups(w, name, i, all)
	}
	slices.SortStableFunc(all, func(a, b *point) int { return cmp.Compare(gain(b), gain(a)) })
	printPoints(w, "It gains most here:", all[:min(10, len(all))])
	printPoints(w, "It is slower here:", slower)
	printPoints(w, "It was late here:", late)
	return nil
}

// gain returns how many times as long the best fixed schedule takes; 0 where there is none.
func gain(p *point) float64 {
	times, ok := p.ratio(bestFixed)
	if !ok {
		return 0
	}
	return times
}

// printWinners counts the schedules that auto-flush took.
func printWinners(w io.Writer, all []*point) {
	count := map[string]int{}
	for _, p := range all {
		if p.winner != "" {
			count[p.winner]++
		}
	}
	names := slices.Sorted(maps.Keys(count))
	slices.SortStableFunc(names, func(a, b string) int { return count[b] - count[a] })
	fmt.Fprint(w, "| auto-flush takes | points |\n|---|---:|\n")
	for _, name := range names {
		fmt.Fprintf(w, "| %s | %d |\n", name, count[name])
	}
	fmt.Fprintln(w)
}

// statistics are of the points at which a strategy and auto-flush have a plan.
type statistics struct {
	n                 int
	mean, most, least float64 // times as long as auto-flush; the mean is the geometric one
	faster            int     // points at which the strategy is faster
}

func compare(all []*point, strategy string) (s statistics) {
	s.least = math.Inf(1)
	sum := 0.0
	for _, p := range all {
		times, ok := p.ratio(strategy)
		if !ok {
			continue
		}
		s.n++
		sum += math.Log(times)
		s.most, s.least = max(s.most, times), min(s.least, times)
		if times < 1-1e-8 {
			s.faster++
		}
	}
	s.mean = math.Exp(sum / float64(max(s.n, 1)))
	return s
}

// printStrategies compares every strategy with auto-flush where both have a plan.
func printStrategies(w io.Writer, all []*point) {
	fmt.Fprint(w, "| strategy | both have a plan | takes times as long as auto-flush, mean | least | most | is faster at |\n|---|---:|---:|---:|---:|---:|\n")
	names := []string{copies, bestFixed, stale}
	for _, s := range strategies() {
		if s.Name != automatic && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	for _, name := range names {
		if s := compare(all, name); s.n > 0 {
			fmt.Fprintf(w, "| %s | %d | %.3f | %.3f | %.2f | %d |\n", name, s.n, s.mean, s.least, s.most, s.faster)
		}
	}
	fmt.Fprintln(w)
}

// printGroups prints the means of the points that have the same field of their keys.
func printGroups(w io.Writer, name string, field int, all []*point) {
	groups, order := map[string][]*point{}, []string{}
	for _, p := range all {
		key := p.key[field]
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
	fmt.Fprintf(w, "| %s | points | joint-flush, mean | best fixed schedule, mean | joint, mean |\n|---|---:|---:|---:|---:|\n", name)
	for _, key := range order {
		fmt.Fprintf(w, "| %s | %d", key, len(groups[key]))
		for _, strategy := range []string{copies, bestFixed, stale} {
			fmt.Fprintf(w, " | %.3f", compare(groups[key], strategy).mean)
		}
		fmt.Fprintln(w, " |")
	}
	fmt.Fprintln(w)
}

func printPoints(w io.Writer, title string, all []*point) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "%s\n\n| chain | devices | GiB | links, GB/s | auto-flush, simulated | by | joint-flush | best fixed | by |\n|---|---:|---:|---|---:|---|---:|---:|---|\n", title)
	for _, p := range all {
		by, s := p.fixed()
		fmt.Fprintf(w, "| %s | %.4g s | %s | %.4g s | %.4g s | %s |\n", strings.Join(p.key, " | "), p.seconds[automatic], p.winner, p.seconds[copies], s, by)
	}
	fmt.Fprintln(w)
}
