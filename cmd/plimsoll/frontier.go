package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"plimsoll/executor/train"
	"plimsoll/internal/atomicfile"
	"plimsoll/internal/units"
	"plimsoll/planner"
	"plimsoll/planner/auto"
	"plimsoll/planner/bound"
	"plimsoll/planner/chain"
	"plimsoll/planner/frontier"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/schedule"
	"plimsoll/planner/strategy"
)

// frontierCommand is plimsoll frontier.
type frontierCommand struct {
	*app
	chain    string
	link     planLink
	strategy string
	points   int
	options  strategyFlags
	out      string
}

func newFrontierCommand(a *app) *cobra.Command {
	c := &frontierCommand{app: a}
	cmd := command("frontier", "Show how fast a chain can be at every memory limit", `Show how the makespan falls as memory grows. Each limit has its fastest plan and the most that this can be slower than the
optimum (gap). It also has the time that each further byte saves, and the time that the next larger unit saves altogether.

rotor-exact, rotor-floating and revolve know every limit at which something changes. For other strategies --points limits are
planned, more of them where the curve is steep, and the curve is made monotone.`, nil)
	cmd.Example = `  plimsoll frontier -c c.json --bandwidth 12GB/s
  plimsoll frontier -c c.json --strategy rotor-exact -o frontier.csv`
	s := cmd.Flags()
	s.StringVarP(&c.chain, "chain", "c", "", "chain file")
	c.link.register(cmd)
	s.StringVar(&c.strategy, "strategy", auto.Name, "strategy; plimsoll plan --list shows them")
	s.IntVar(&c.points, "points", 16, "limits to plan for, where the strategy does not know them all")
	c.options.register(cmd)
	s.StringVarP(&c.out, "output", "o", "", "write the points as CSV, in SI base units, here")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.run(cmd.Context())
	}
	return cmd
}

// frontierFigures is the JSON of plimsoll frontier: seconds and bytes.
type frontierFigures struct {
	Chain         string        `json:"chain"`
	Estimated     bool          `json:"estimated,omitempty"` // the chain's times
	Strategy      string        `json:"strategy"`
	Exact         bool          `json:"exact"` // every limit at which the strategy's makespan changes is there
	Bandwidth     float64       `json:"bandwidth_bytes_per_s,omitempty"`
	Duplex        bool          `json:"duplex,omitempty"`
	StoreAllS     float64       `json:"store_all_s"`
	StoreAllBytes int64         `json:"store_all_peak_bytes"`
	UnitBytes     int64         `json:"unit_bytes"`
	Points        []pointFigure `json:"points"`
}

// pointFigure is a plan of the frontier. It serves every limit from its memory up to the next point's.
type pointFigure struct {
	MemoryBytes int64        `json:"memory_bytes"`
	MakespanS   float64      `json:"makespan_s"`
	BoundS      float64      `json:"lower_bound_s"`
	Gap         train.Number `json:"gap"`             // null, as the others, where it is no number
	PerGiB      train.Number `json:"saved_s_per_gib"` // on the way to the next point
	UnitGain    train.Number `json:"unit_gain"`       // part of the makespan that unit_bytes more save
	By          string       `json:"by"`
}

func (f *frontierCommand) run(ctx context.Context) error {
	s, c, err := f.read()
	if err != nil {
		return err
	}
	link, err := f.link.of(c)
	if err != nil {
		return err
	}
	f.options.HostMemory = f.link.host.Bytes
	all, err := storeAll(c)
	if err != nil {
		return err
	}
	asked, progress := 0, f.progress("frontier")
	curve, exact, err := planner.Curve(ctx, s, strategy.Problem{Chain: c, Link: link, Options: f.options.Options}.Request(), f.points, func() {
		if asked++; progress != nil {
			progress(min(asked, f.points), f.points)
		}
	})
	if err != nil {
		return err
	}
	figures := &frontierFigures{
		Chain: c.Name, Estimated: c.Estimated, Strategy: s.Name, Exact: exact, Bandwidth: link.Bandwidth, Duplex: link.Duplex,
		StoreAllS: all.Makespan, StoreAllBytes: all.Peak, UnitBytes: unitOf(curve),
	}
	if err := figures.add(c, link, curve); err != nil {
		return err
	}
	if f.out != "" {
		if err := atomicfile.WriteFile(f.out, figures.csv); err != nil {
			return err
		}
	}
	return f.print(figures, figures.write)
}

// read checks the flags and reads the chain.
func (f *frontierCommand) read() (s pipeline.Strategy, c *chain.Chain, err error) {
	if s, err = planner.LookupSequence(f.strategy); err != nil {
		return s, nil, err
	}
	if err := required("--chain", f.chain, "-c c.json"); err != nil {
		return s, nil, err
	}
	if f.points < 2 || f.points > mostPoints {
		return s, nil, usage(fmt.Errorf("--points is %d: give a number from 2 to %d", f.points, mostPoints))
	}
	if err := writable("--output", f.out); err != nil {
		return s, nil, err
	}
	c, err = readPlainChain(f.chain, "a frontier")
	return s, c, err
}

// unitOf returns the largest power of two, up to 1 GiB, of which the curve spans a few.
func unitOf(curve []frontier.Point) int64 {
	spans := curve[len(curve)-1].Memory - curve[0].Memory
	unit := int64(1 << 30)
	for unit > 1 && unit > spans/4 {
		unit /= 2
	}
	return unit
}

func (f *frontierFigures) add(c *chain.Chain, link schedule.Link, curve []frontier.Point) error {
	for i, p := range curve {
		least, err := bound.Seconds(c, schedule.Limits{Memory: p.Memory, Link: link})
		if err != nil {
			return err
		}
		least = max(least, p.Bound)
		f.Points = append(f.Points, pointFigure{
			MemoryBytes: p.Memory, MakespanS: p.Makespan, BoundS: least, Gap: train.Number(bound.Gap(p.Makespan, least)),
			PerGiB: train.Number(frontier.Slope(curve, i) * (1 << 30)), UnitGain: train.Number(frontier.Gain(curve, p.Memory, f.UnitBytes)), By: p.By,
		})
	}
	return nil
}

// write prints the frontier for people.
func (f *frontierFigures) write(out io.Writer) {
	unit := units.Bytes(f.UnitBytes)
	fmt.Fprintf(out, "%s with %s, %s; store-all takes %s in %s\n", f.Chain, f.Strategy, f.linkText(), units.Seconds(f.StoreAllS), units.Bytes(f.StoreAllBytes))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "memory\tof store-all\t%s\tof store-all\tgap\ts/GiB\tnext %s\tby\n", estimated("makespan", f.Estimated), unit)
	for _, p := range f.Points {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", units.Bytes(p.MemoryBytes), share(float64(p.MemoryBytes), float64(f.StoreAllBytes)),
			units.Seconds(p.MakespanS), share(p.MakespanS, f.StoreAllS), percent(float64(p.Gap)), slope(float64(p.PerGiB)), percent(-float64(p.UnitGain)), p.By)
	}
	_ = w.Flush() // of a buffer
	first := f.Points[0]
	fmt.Fprintf(out, "the next %s above %s buys %s of the step's time\n", unit, units.Bytes(first.MemoryBytes), percent(float64(first.UnitGain)))
	if !f.Exact {
		fmt.Fprintln(out, "limits between the points were not planned: their plans may be faster than the point below; --points plans for more")
	}
}

// slope prints seconds saved per GiB; beyond any sense, where steps of a few bytes save centuries, only how many there are at least.
func slope(perGiB float64) string {
	const most = 1e12
	if perGiB > most {
		return fmt.Sprintf("over %g", most)
	}
	return fmt.Sprintf("%.3g", perGiB)
}

func (f *frontierFigures) linkText() string {
	switch {
	case f.Bandwidth == 0:
		return "no link"
	case f.Duplex:
		return "duplex link of " + units.Rate(f.Bandwidth, "B")
	}
	return "link of " + units.Rate(f.Bandwidth, "B")
}

// csv writes one line a point, in SI base units.
func (f *frontierFigures) csv(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{{"memory_bytes", "makespan_s", "lower_bound_s", "gap", "saved_s_per_gib", "unit_gain", "by"}}
	for _, p := range f.Points {
		row := []string{strconv.FormatInt(p.MemoryBytes, 10)}
		for _, x := range []float64{p.MakespanS, p.BoundS, float64(p.Gap), float64(p.PerGiB), float64(p.UnitGain)} {
			row = append(row, strconv.FormatFloat(x, 'g', -1, 64))
		}
		rows = append(rows, append(row, p.By))
	}
	return w.WriteAll(rows)
}
